/* A child of fork that uses its parent's heap is refused at once, and the parent goes on. */
#include "heap.h"
#include <sys/wait.h>
#include <unistd.h>

static mangrove_heap *heap;
static uint64_t *cell;

static int make(mangrove_tx *tx, void *arg) {
    (void)arg;
    return mangrove_tx_alloc_zeroed(tx, sizeof *cell, 0, (void **)&cell);
}

static int get(mangrove_tx *tx, void *arg) { return mangrove_tx_load(tx, cell, arg); }

static int store_one(mangrove_tx *tx, void *arg) {
    (void)arg;
    return mangrove_tx_store(tx, cell, 1);
}

static uint64_t value(void) {
    uint64_t found;
    OK(mangrove_transaction_read(heap, get, &found, NULL));
    return found;
}

static int fork_inside(mangrove_tx *tx, void *child) {
    uint64_t found = 5;
    TRY(mangrove_tx_store(tx, cell, 2));
    *(pid_t *)child = fork();
    CHECK(*(pid_t *)child >= 0);
    if (*(pid_t *)child > 0) return MANGROVE_OK;
    alarm(300);
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_tx_load(tx, cell, &found));
    CHECK(strstr(mangrove_last_error(), "forked inside") != NULL);
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_tx_store(tx, cell, 3));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_transaction(heap, store_one, NULL, NULL));
    return MANGROVE_OK; /* which commits nothing */
}

static void inside(void) {
    int status;
    pid_t pid;
    mangrove_status ended = mangrove_transaction(heap, fork_inside, &pid, NULL);
    if (pid == 0) {
        CHECK(ended == MANGROVE_ERR_UNSUPPORTED);
        CHECK(strstr(mangrove_last_error(), "forked inside") != NULL);
        _exit(0);
    }
    CHECK(ended == MANGROVE_OK);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(value() == 2);
}

/* Every function that would use what is the parent's. */
static void refused_in_a_child(const char *folder, mangrove_tx_ticket ticket) {
    mangrove_heap_figures figures = {.size = sizeof figures};
    mangrove_tx *tx;
    bool durable;
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_transaction(heap, store_one, NULL, NULL));
    CHECK(strstr(mangrove_last_error(), "forked") != NULL);
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_tx_begin(heap, true, &tx));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_sync(heap));
    CHECK(strstr(mangrove_last_error(), "forked") != NULL);
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_wait(heap, ticket));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_is_durable(heap, ticket, &durable));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_stat(heap, &figures));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_check(heap, NULL));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_compact(heap));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_backup(heap, below(folder, "backup"), NULL));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_close(heap));
}

static void on_medium(const char *folder, const char *name, int medium) {
    mangrove_heap_options *options = mangrove_heap_options_new();
    mangrove_tx_ticket ticket;
    int status;
    pid_t pid;
    OK(mangrove_heap_options_set_capacity(options, 256 << 20));
    OK(mangrove_heap_options_set_log_bytes(options, 1 << 20));
    OK(mangrove_heap_options_set_medium(options, medium));
    OK(mangrove_heap_open(below(folder, name), options, &heap));
    mangrove_heap_options_free(options);
    OK(mangrove_transaction(heap, make, NULL, NULL));
    OK(mangrove_transaction_nowait(heap, make, NULL, NULL, &ticket));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(300);
        refused_in_a_child(folder, ticket);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(value() == 0);
    OK(mangrove_transaction(heap, store_one, NULL, NULL));
    CHECK(value() == 1);
    inside();
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    on_medium(folder, "file", MANGROVE_MEDIUM_FILE);
    on_medium(folder, "emulated", MANGROVE_MEDIUM_EMULATED);
    return 0;
}
