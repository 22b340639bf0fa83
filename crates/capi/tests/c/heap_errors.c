/* What a program does wrong inside and around transactions: an error and a message, everything undone, and the heap
 * goes on. */
#include "heap.h"
#include <pthread.h>

static mangrove_heap *heap;
static uint64_t *cell;
static mangrove_tx *ended;

static void says(const char *words) {
    if (strstr(mangrove_last_error(), words) == NULL) fprintf(stderr, "it says: %s\n", mangrove_last_error());
    CHECK(strstr(mangrove_last_error(), words) != NULL);
}

static int make(mangrove_tx *tx, void *arg) {
    (void)arg;
    ended = tx;
    TRY(mangrove_tx_alloc_zeroed(tx, sizeof *cell, 0, (void **)&cell));
    return mangrove_tx_set_root(tx, "cell", cell, sizeof *cell);
}

static int get(mangrove_tx *tx, void *arg) {
    return mangrove_tx_load(tx, cell, arg);
}

static uint64_t value(void) {
    uint64_t found;
    OK(mangrove_transaction_read(heap, get, &found, NULL));
    return found;
}

typedef mangrove_status mistake(mangrove_tx *tx);

/* Writes, makes the mistake, and says that all is well. */
static int err_and_hide_it(mangrove_tx *tx, void *arg) {
    uint64_t found = 7;
    mangrove_status first, then;
    TRY(mangrove_tx_store(tx, cell, 13));
    first = (*(mistake **)arg)(tx);
    CHECK(first < 0);
    then = mangrove_tx_load(tx, cell, &found);
    CHECK(then == first && found == 0); /* every later access answers the same */
    CHECK(mangrove_tx_store(tx, cell, 14) == first);
    return MANGROVE_OK;
}

/* The usual way: an error is passed on. */
static int err(mangrove_tx *tx, void *arg) {
    TRY(mangrove_tx_store(tx, cell, 13));
    return (*(mistake **)arg)(tx);
}

static void undone(mangrove_status expected, mistake *mistake, const char *words) {
    int32_t answer = 9;
    ANSWERS(expected, mangrove_transaction(heap, err_and_hide_it, &mistake, &answer));
    says(words);
    CHECK(answer == 0 && value() == 0);
    ANSWERS(expected, mangrove_transaction(heap, err, &mistake, &answer));
    says(words);
    CHECK(answer == 0 && value() == 0);
    ANSWERS(expected, mangrove_transaction_read(heap, err_and_hide_it, &mistake, &answer));
    CHECK(value() == 0);
}

static uint64_t outside;
static mangrove_status read_outside(mangrove_tx *tx) {
    uint64_t into;
    return mangrove_tx_read(tx, &outside, &into, sizeof into);
}
static mangrove_status write_outside(mangrove_tx *tx) { return mangrove_tx_store(tx, &outside, 1); }
static mangrove_status read_null(mangrove_tx *tx) {
    char into[3];
    return mangrove_tx_read(tx, NULL, into, sizeof into);
}
static mangrove_status read_huge(mangrove_tx *tx) {
    char into[3];
    return mangrove_tx_read(tx, cell, into, (size_t)-1);
}
static mangrove_status write_past_the_end(mangrove_tx *tx) {
    void *base;
    static char bytes[64];
    OK(mangrove_heap_base(heap, &base));
    return mangrove_tx_write(tx, (char *)base + (256 << 20) - 32, bytes, sizeof bytes);
}
static mangrove_status write_before_it(mangrove_tx *tx) {
    void *base;
    OK(mangrove_heap_base(heap, &base));
    return mangrove_tx_write(tx, (char *)base - 4, "12345678", 8);
}
static mangrove_status into_null(mangrove_tx *tx) { return mangrove_tx_read(tx, cell, NULL, 8); }
static mangrove_status load_into_null(mangrove_tx *tx) {
    mangrove_status s = mangrove_tx_load(tx, cell, NULL);
    return s;
}
static mangrove_status free_what_is_none(mangrove_tx *tx) { return mangrove_tx_free(tx, (char *)cell + 8); }
static mangrove_status free_outside(mangrove_tx *tx) { return mangrove_tx_free(tx, &outside); }
static mangrove_status free_twice(mangrove_tx *tx) {
    void *at;
    OK(mangrove_tx_alloc(tx, 100, 0, &at));
    OK(mangrove_tx_free(tx, at));
    return mangrove_tx_free(tx, at);
}
static mangrove_status odd_align(mangrove_tx *tx) {
    void *at = &at;
    mangrove_status s = mangrove_tx_alloc(tx, 100, 24, &at);
    CHECK(at == NULL);
    return s;
}
static mangrove_status too_large(mangrove_tx *tx) {
    void *at;
    return mangrove_tx_alloc(tx, (size_t)1 << 40, 0, &at);
}
static mangrove_status too_large_zeroed(mangrove_tx *tx) {
    void *at;
    return mangrove_tx_alloc_zeroed(tx, (size_t)-1, 64, &at);
}
static mangrove_status wrong_size(mangrove_tx *tx) {
    void *at = &at;
    mangrove_status s = mangrove_tx_root(tx, "cell", 4, &at);
    CHECK(at == NULL);
    return s;
}
static mangrove_status long_name(mangrove_tx *tx) {
    return mangrove_tx_set_root(tx, "a name of forty bytes is one byte too long", cell, 8);
}
static mangrove_status no_name(mangrove_tx *tx) { return mangrove_tx_set_root(tx, NULL, cell, 8); }
static mangrove_status latin1(mangrove_tx *tx) { return mangrove_tx_remove_root(tx, "caf\xe9"); }
static mangrove_status root_outside(mangrove_tx *tx) { return mangrove_tx_set_root(tx, "o", &outside, 8); }

static int nested(mangrove_tx *tx, void *arg) {
    uint64_t found = 5;
    mangrove_heap_figures figures = {.size = sizeof figures};
    (void)arg;
    TRY(mangrove_tx_store(tx, cell, 21));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_transaction(heap, get, &found, NULL));
    says("use its `tx`");
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_heap_stat(heap, &figures));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_heap_check(heap, NULL));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_heap_compact(heap));
    ANSWERS(MANGROVE_ERR_IN_USE, mangrove_heap_close(heap));
    TRY(mangrove_tx_load(tx, cell, &found)); /* none of these ended it */
    CHECK(found == 21);
    return 1;
}

/* Every access with a transaction that cannot be used. */
static void all_refuse(mangrove_tx *tx) {
    uint64_t word = 5;
    size_t bytes = 5;
    void *at = &at;
#define REFUSED(call)                           \
    do {                                        \
        ANSWERS(MANGROVE_ERR_TX_MISPLACED, call); \
        says("has ended");                      \
    } while (0)
    REFUSED(mangrove_tx_read(tx, cell, &word, sizeof word));
    REFUSED(mangrove_tx_write(tx, cell, &word, sizeof word));
    CHECK(word == 5);
    REFUSED(mangrove_tx_load(tx, cell, &word));
    REFUSED(mangrove_tx_store(tx, cell, 9));
    REFUSED(mangrove_tx_alloc(tx, 8, 0, &at));
    CHECK(word == 0 && at == NULL);
    REFUSED(mangrove_tx_alloc_zeroed(tx, 8, 0, &at));
    REFUSED(mangrove_tx_free(tx, cell));
    REFUSED(mangrove_tx_usable_bytes(tx, cell, &bytes));
    REFUSED(mangrove_tx_root(tx, "cell", 8, &at));
    REFUSED(mangrove_tx_set_root(tx, "cell", NULL, 8));
    REFUSED(mangrove_tx_remove_root(tx, "cell"));
    REFUSED(mangrove_tx_retry(tx));
    REFUSED(mangrove_tx_privatise(tx));
    CHECK(bytes == 0);
}

static void *on_another_thread(void *tx) {
    all_refuse(tx);
    return NULL;
}

/* A transaction is its thread's; and an earlier one does not become usable because another runs. */
static int refuse_others(mangrove_tx *tx, void *arg) {
    pthread_t thread;
    (void)arg;
    CHECK(tx != ended);
    all_refuse(ended);
    all_refuse(NULL);
    CHECK(pthread_create(&thread, NULL, on_another_thread, tx) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return mangrove_tx_store(tx, cell, 0); /* still alive */
}

static int stop_without_cause(mangrove_tx *tx, void *arg) {
    (void)arg;
    TRY(mangrove_tx_store(tx, cell, 13));
    return MANGROVE_TX_STOP;
}

static int store_one(mangrove_tx *tx, void *arg) {
    (void)arg;
    return mangrove_tx_store(tx, cell, 1);
}

static int just_commit(mangrove_tx *tx, void *arg) {
    (void)tx;
    (void)arg;
    return MANGROVE_OK;
}

static void opening(const char *folder) {
    mangrove_heap_options *options = mangrove_heap_options_new();
    mangrove_heap *other = heap;
    mangrove_map *map;
    ANSWERS(MANGROVE_ERR_POOL_BUSY, mangrove_heap_open(below(folder, "heap"), NULL, &other));
    CHECK(other == NULL);
    OK(mangrove_heap_options_set_create(options, false));
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_heap_open(below(folder, "none"), options, &other));
    OK(mangrove_heap_options_set_create_new(options, true));
    OK(mangrove_map_open(below(folder, "map"), NULL, &map));
    OK(mangrove_map_close(map));
    ANSWERS(MANGROVE_ERR_POOL_EXISTS, mangrove_heap_open(below(folder, "map"), options, &other));
    ANSWERS(MANGROVE_ERR_WRONG_KIND, mangrove_heap_open(below(folder, "map"), NULL, &other));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_open(NULL, NULL, &other));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_open("x", NULL, NULL));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_open("", NULL, &other));
    says("is empty");
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_backup(heap, "", NULL));
    says("is empty");
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_options_set_medium(options, 77));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_options_set_log_count(options, 0));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_options_set_capacity(NULL, 8 << 20));
    mangrove_heap_options_free(options);
    mangrove_heap_options_free(NULL);
}

/* A number out of range is refused where it is set, by the words and the number of the caller. */
static void ranges(void) {
    static const struct {
        mangrove_status (*set)(mangrove_heap_options *, uint64_t);
        uint64_t least, most;
    } all[] = {
        {mangrove_heap_options_set_capacity, 8 << 20, (uint64_t)16 << 40},
        {mangrove_heap_options_set_log_bytes, 16 << 10, 1 << 30},
        {mangrove_heap_options_set_memory_max, 4 << 20, UINT64_MAX},
    };
    mangrove_heap_options *options = mangrove_heap_options_new();
    char number[32];
    size_t i, side;
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        OK(all[i].set(options, all[i].least));
        OK(all[i].set(options, all[i].most));
        for (side = 0; side < 2; side++) {
            const uint64_t wrong = side == 0 ? all[i].least - 1 : all[i].most + 1;
            if (wrong == 0) continue; /* there is no most */
            ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, all[i].set(options, wrong));
            snprintf(number, sizeof number, "not %llu", (unsigned long long)wrong);
            says(number);
            says("of a heap");
        }
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, all[i].set(options, 0));
    }
    mangrove_heap_options_free(options);
}

/* The least of everything opens on both media and takes transactions; with a limit of memory too. */
static void smallest(const char *folder) {
    static const int media[] = {MANGROVE_MEDIUM_FILE, MANGROVE_MEDIUM_EMULATED};
    mangrove_heap_figures figures = {.size = sizeof figures};
    mangrove_heap *small, *before = heap;
    uint64_t *cell_before = cell, found;
    int i, limited;
    for (i = 0; i < 2; i++) {
        for (limited = 0; limited < 2; limited++) {
            mangrove_heap_options *options = mangrove_heap_options_new();
            OK(mangrove_heap_options_set_medium(options, media[i]));
            OK(mangrove_heap_options_set_capacity(options, 8 << 20));
            OK(mangrove_heap_options_set_log_bytes(options, 16 << 10));
            if (limited) {
                OK(mangrove_heap_options_set_memory_max(options, 4 << 20));
                OK(mangrove_heap_options_set_copy_on_write(options, false)); /* the limit takes precedence */
            }
            OK(mangrove_heap_open(below(folder, i ? "least-emulated" : "least-file"), options, &small));
            mangrove_heap_options_free(options);
            heap = small;
            OK(mangrove_transaction(heap, make, NULL, NULL));
            OK(mangrove_transaction(heap, get, &found, NULL));
            OK(mangrove_heap_stat(heap, &figures));
            CHECK(found == 0 && figures.capacity == 8 << 20);
            OK(mangrove_heap_close(heap));
        }
    }
    heap = before;
    cell = cell_before;
}

/* Executors and protocols: what goes together, and what is refused. */
static void choices(const char *folder) {
    static const int protocols[] = {MANGROVE_PROTOCOL_AUTO, MANGROVE_PROTOCOL_ONE_FENCE};
    mangrove_heap_options *options = mangrove_heap_options_new();
    mangrove_heap_figures figures = {.size = sizeof figures};
    mangrove_heap *one;
    size_t i;
    OK(mangrove_heap_options_set_capacity(options, 64 << 20));
    OK(mangrove_heap_options_set_emulated_latency(options, 0, 0));
    OK(mangrove_heap_options_set_domain(options, MANGROVE_DOMAIN_ADR));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_options_set_executor(options, 77));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_options_set_protocol(options, -1));
    OK(mangrove_heap_options_set_protocol(options, MANGROVE_PROTOCOL_SPHT));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_open(below(folder, "choices"), options, &one));
    says("the executor with one lock");
    CHECK(strstr(mangrove_last_error(), "::") == NULL); /* names of another language */
    OK(mangrove_heap_options_set_executor(options, MANGROVE_EXECUTOR_ONE_LOCK));
    OK(mangrove_heap_options_set_protocol(options, MANGROVE_PROTOCOL_SPHT_EADR));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_open(below(folder, "choices"), options, &one));
    says("eADR");
    for (i = 0; i < 2; i++) {
        OK(mangrove_heap_options_set_protocol(options, protocols[i]));
        OK(mangrove_heap_open(below(folder, "choices"), options, &one));
        OK(mangrove_transaction(one, just_commit, NULL, NULL));
        OK(mangrove_heap_stat(one, &figures));
        CHECK(figures.thread_commits == 1 && figures.thread_serial == 1 && figures.thread_hardware == 0);
        OK(mangrove_heap_close(one));
        OK(mangrove_heap_options_set_executor(options, MANGROVE_EXECUTOR_ONE_LOCK));
    }
    OK(mangrove_heap_options_set_protocol(options, MANGROVE_PROTOCOL_AUTO));
    OK(mangrove_heap_options_set_executor(options, MANGROVE_EXECUTOR_HARDWARE_MODEL));
    OK(mangrove_heap_open(below(folder, "choices"), options, &one));
    OK(mangrove_transaction(one, just_commit, NULL, NULL));
    OK(mangrove_heap_stat(one, &figures));
    CHECK(figures.thread_commits == 1 && figures.thread_hardware == 1 && figures.thread_serial == 0);
    OK(mangrove_heap_close(one));
    mangrove_heap_options_free(options);
}

static int get_aligned(mangrove_tx *tx, void *arg) {
    char bytes[10000], zeros[10000] = {0};
    void *at;
    (void)arg;
    TRY(mangrove_tx_alloc_zeroed(tx, sizeof bytes, 4096, &at));
    CHECK((uintptr_t)at % 4096 == 0);
    TRY(mangrove_tx_read(tx, at, bytes, sizeof bytes));
    CHECK(memcmp(bytes, zeros, sizeof bytes) == 0);
    memset(bytes, 7, sizeof bytes);
    TRY(mangrove_tx_write(tx, at, bytes, sizeof bytes)); /* the next block of this size is dirty */
    return mangrove_tx_free(tx, at);
}

/* Reads, and refuses to change. */
static void read_only(const char *path) {
    mangrove_heap_options *options = mangrove_heap_options_new();
    int32_t answer = 9;
    OK(mangrove_heap_options_set_read_only(options, true));
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_heap_open("/nowhere/heap", options, &heap));
    OK(mangrove_heap_options_set_create_new(options, true)); /* contradicts it */
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_open(path, options, &heap));
    OK(mangrove_heap_options_set_create_new(options, false));
    OK(mangrove_heap_open(path, options, &heap));
    mangrove_heap_options_free(options);
    CHECK(value() == 1);
    ANSWERS(MANGROVE_ERR_READ_ONLY, mangrove_transaction(heap, store_one, NULL, &answer));
    says("read-only");
    CHECK(answer == 0 && value() == 1);
    ANSWERS(MANGROVE_ERR_READ_ONLY, mangrove_heap_compact(heap));
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
}

/* A root that points to outside, which only a bug can store: a check tells, open or not. */
static int break_a_root(mangrove_tx *tx, void *base) {
    char *slot = (char *)base + 64;
    return mangrove_tx_store(tx, (uint64_t *)(slot + 40), (uint64_t)(uintptr_t)&outside);
}

static int mend_the_root(mangrove_tx *tx, void *base) {
    (void)base;
    return mangrove_tx_set_root(tx, "cell", cell, sizeof *cell);
}

static void checks(const char *path) {
    void *base;
    char *problems;
    OK(mangrove_heap_base(heap, &base));
    ANSWERS(MANGROVE_ERR_POOL_BUSY, mangrove_pool_check(path, NULL));
    OK(mangrove_transaction(heap, break_a_root, base, NULL));
    ANSWERS(MANGROVE_UNSOUND, mangrove_heap_check(heap, &problems));
    CHECK(strstr(problems, "do not lie in a block in use") != NULL);
    mangrove_free(problems);
    OK(mangrove_heap_close(heap));
    ANSWERS(MANGROVE_UNSOUND, mangrove_pool_check(path, &problems));
    CHECK(strstr(problems, "\"cell\" points to 8 bytes") != NULL);
    mangrove_free(problems);
    heap = open_heap(path);
    OK(mangrove_transaction(heap, mend_the_root, NULL, NULL));
    OK(mangrove_heap_close(heap));
    OK(mangrove_pool_check(path, &problems));
    CHECK(problems == NULL);
    heap = open_heap(path);
}

static int back_up_inside(mangrove_tx *tx, void *path) {
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_heap_backup(heap, path, NULL));
    return mangrove_tx_store(tx, cell, 1);
}

/* The copy belongs where its original lies. */
static void backup(const char *path, const char *copy) {
    uint64_t bytes = 0;
    mangrove_heap *other;
    OK(mangrove_transaction(heap, back_up_inside, (void *)copy, NULL));
    OK(mangrove_heap_backup(heap, copy, &bytes));
    CHECK(bytes > 0);
    ANSWERS(MANGROVE_ERR_POOL_EXISTS, mangrove_heap_backup(heap, copy, &bytes));
    CHECK(bytes == 0);
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_backup(heap, NULL, NULL));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_open(copy, NULL, &other));
    says("at address");
    OK(mangrove_heap_close(heap));
    OK(mangrove_pool_check(copy, NULL));
    OK(mangrove_heap_open(copy, NULL, &heap));
    CHECK(value() == 1);
    OK(mangrove_heap_close(heap));
    heap = open_heap(path);
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    int32_t answer = 9;
    heap = open_heap(below(folder, "heap"));
    OK(mangrove_transaction(heap, make, NULL, NULL));
    all_refuse(ended);
    OK(mangrove_transaction(heap, refuse_others, NULL, NULL));

    undone(MANGROVE_ERR_INVALID_ARGUMENT, read_outside, "not in the heap");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, write_outside, "not in the heap");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, read_null, "not in the heap");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, read_huge, "more than memory has");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, write_past_the_end, "not in the heap");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, write_before_it, "not in the heap");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, into_null, "'into' is NULL");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, load_into_null, "'value' is NULL");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, free_what_is_none, "no block");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, free_outside, "no block");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, free_twice, "free already");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, odd_align, "power of two");
    undone(MANGROVE_ERR_FULL, too_large, "no room");
    undone(MANGROVE_ERR_FULL, too_large_zeroed, "no room");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, wrong_size, "8 bytes, not of 4");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, long_name, "1 to 39 bytes");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, no_name, "'name' is NULL");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, latin1, "UTF-8");
    undone(MANGROVE_ERR_INVALID_ARGUMENT, root_outside, "not in the heap");

    ANSWERS(MANGROVE_TX_ABORTED, mangrove_transaction(heap, nested, NULL, &answer));
    CHECK(answer == 1 && value() == 0);
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_transaction(heap, stop_without_cause, NULL, &answer));
    says("no access had");
    CHECK(answer == 0 && value() == 0);
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_transaction(heap, NULL, NULL, &answer));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_transaction(NULL, get, NULL, &answer));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_close(NULL));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_sync(NULL));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_heap_compact(NULL));
    opening(folder);
    ranges();
    smallest(folder);
    choices(folder);
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_transaction(heap, store_one, NULL, NULL)); /* the heap goes on */
    CHECK(value() == 1);
    OK(mangrove_transaction(heap, get_aligned, NULL, NULL));
    OK(mangrove_transaction(heap, get_aligned, NULL, NULL));
    checks(below(folder, "heap"));
    backup(below(folder, "heap"), below(folder, "backup"));
    OK(mangrove_heap_close(heap));
    read_only(below(folder, "heap"));
    return 0;
}
