/* Transactions that are left in unusual ways: by longjmp, by the end of a thread, for a signal. Each is undone, its
 * thread may go on, and others do. With each executor whose threads wait for others that are in a transaction. */
#include "heap.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 256 << 10 };

static mangrove_heap *heap;
static uint64_t *cell;
static jmp_buf outside;
static volatile sig_atomic_t reached;
static mangrove_tx_ticket ticket;
static uint64_t expected;

static int make(mangrove_tx *tx, void *arg) {
    (void)arg;
    return mangrove_tx_alloc_zeroed(tx, sizeof *cell, 0, (void **)&cell);
}

static int get(mangrove_tx *tx, void *arg) { return mangrove_tx_load(tx, cell, arg); }

static int add(mangrove_tx *tx, void *arg) {
    uint64_t now;
    (void)arg;
    TRY(mangrove_tx_load(tx, cell, &now));
    return mangrove_tx_store(tx, cell, now + 1);
}

static uint64_t value(void) {
    uint64_t found;
    OK(mangrove_transaction_read(heap, get, &found, NULL));
    return found;
}

static void *add_on_another_thread(void *arg) {
    OK(mangrove_transaction(heap, add, NULL, NULL));
    return arg;
}

/* No lock is left: another thread changes the word. */
static void others_go_on(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, add_on_another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    expected++;
    CHECK(value() == expected);
}

/* The word is as it was, and no lock is left. */
static void undone_and_free(void) {
    CHECK(value() == expected);
    others_go_on();
}

static mangrove_tx *stale;

static int write_and_jump(mangrove_tx *tx, void *arg) {
    void *block;
    (void)arg;
    stale = tx;
    TRY(mangrove_tx_store(tx, cell, 999));
    TRY(mangrove_tx_alloc(tx, 100, 0, &block));
    longjmp(outside, 1);
}

static void jump_out(void) {
    if (setjmp(outside) == 0) {
        mangrove_transaction(heap, write_and_jump, NULL, NULL);
        CHECK(!"returned");
    }
}

/* So deep that the stack of the body that was left is below it. */
static void deep(int depth, void (*call)(void)) {
    volatile char frame[300];
    frame[0] = (char)depth;
    if (depth > 0) deep(depth - 1, call);
    else call();
    CHECK(frame[0] == (char)depth);
}

/* The tx of a body that was left is refused where the body was called, and in functions whose frames lie where the
 * body's was. The word stays as it was. */
static void use_stale(void) {
    uint64_t found;
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_load(stale, cell, &found));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_store(stale, cell, 12345));
    CHECK(strstr(mangrove_last_error(), "left by longjmp") != NULL);
}

static void use_stale_in_other_frames(void) {
    volatile char frame[4096];
    size_t at;
    for (at = 0; at < sizeof frame; at++) frame[at] = (char)at;
    use_stale();
    CHECK(frame[5] == 5);
}

static void stale_ones(void) {
    void (*const uses[])(void) = {use_stale, use_stale_in_other_frames};
    size_t at;
    for (at = 0; at < 2; at++) {
        jump_out();
        uses[at]();
        undone_and_free();
        ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_store(stale, cell, 12345));
        undone_and_free();
    }
}

static ucontext_t body_context, coroutine_context;
static mangrove_tx *coroutines_tx;
static int coroutines_answer;

static void coroutine(void) { coroutines_answer = add(coroutines_tx, NULL); }

/* A body that goes on to a stack of its own is not left, whichever of the two stacks is higher. */
static int on_another_stack(mangrove_tx *tx, void *stack) {
    coroutines_tx = tx;
    CHECK(getcontext(&coroutine_context) == 0);
    coroutine_context.uc_stack.ss_sp = stack;
    coroutine_context.uc_stack.ss_size = STACK_BYTES;
    coroutine_context.uc_link = &body_context;
    makecontext(&coroutine_context, coroutine, 0);
    CHECK(swapcontext(&body_context, &coroutine_context) == 0);
    return coroutines_answer;
}

static void *add_on_another_stack(void *stack) {
    OK(mangrove_transaction(heap, on_another_stack, stack, NULL));
    return stack;
}

static void coroutines(void) {
    static char stacks[3][STACK_BYTES];
    pthread_attr_t in_the_middle;
    pthread_t thread;
    int at;
    CHECK(pthread_attr_init(&in_the_middle) == 0);
    CHECK(pthread_attr_setstack(&in_the_middle, stacks[1], STACK_BYTES) == 0);
    for (at = 0; at < 3; at += 2) {
        CHECK(pthread_create(&thread, &in_the_middle, add_on_another_stack, stacks[at]) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        expected++;
        CHECK(value() == expected);
    }
    CHECK(pthread_attr_destroy(&in_the_middle) == 0);
}

/* Every function of a heap, with its answer where it is called neither inside a transaction nor in a signal handler. */
enum { CALL_COUNT = 14 };

static mangrove_status call(int number) {
    const char *nowhere = "/nowhere/heap";
    mangrove_heap_figures figures = {.size = sizeof figures};
    mangrove_tx *tx = NULL;
    mangrove_heap *other;
    uint64_t found;
    void *base;
    bool durable;
    switch (number) {
    case 0: return mangrove_transaction_read(heap, get, &found, NULL);
    case 1: return mangrove_transaction(heap, get, &found, NULL);
    case 2: return mangrove_transaction_nowait(heap, get, &found, NULL, NULL);
    case 3: return mangrove_heap_sync(heap);
    case 4: return mangrove_heap_wait(heap, ticket);
    case 5: return mangrove_heap_is_durable(heap, ticket, &durable);
    case 6: return mangrove_heap_base(heap, &base);
    case 7: return mangrove_heap_stat(heap, &figures);
    case 8: return mangrove_heap_check(heap, NULL);
    case 9: return mangrove_heap_backup(heap, nowhere, NULL);
    case 10: return mangrove_heap_open(nowhere, NULL, &other);
    case 11: return mangrove_tx_commit(&tx);
    case 12: return mangrove_tx_abort(&tx);
    default: {
        mangrove_status status = mangrove_tx_begin(heap, true, &tx);
        if (status == MANGROVE_OK) ANSWERS(MANGROVE_TX_ABORTED, mangrove_tx_abort(&tx));
        return status;
    }
    }
}

static int called;

static void call_it(void) {
    const mangrove_status status = call(called);
    CHECK(called >= 9 && called <= 12 ? status < 0 : status == MANGROVE_OK);
}

static void jumps(void) {
    int depth;
    OK(mangrove_transaction_nowait(heap, get, &(uint64_t){0}, NULL, &ticket));
    for (depth = 0; depth < 60; depth++) {
        jump_out();
        deep(depth, undone_and_free);
        deep(depth, jump_out);
        undone_and_free();
    }
    for (called = 0; called < CALL_COUNT; called++) {
        jump_out();
        deep(9, call_it);
        others_go_on();
        jump_out();
        call_it();
        others_go_on();
    }
    undone_and_free();
}

static void *jump_and_end(void *arg) {
    jump_out();
    return arg;
}

static int write_and_end_the_thread(mangrove_tx *tx, void *arg) {
    TRY(mangrove_tx_store(tx, cell, 999));
    pthread_exit(arg);
}

static void *end_inside(void *arg) {
    mangrove_transaction(heap, write_and_end_the_thread, arg, NULL);
    return NULL;
}

static int write_and_wait(mangrove_tx *tx, void *arg) {
    (void)arg;
    TRY(mangrove_tx_store(tx, cell, 999));
    reached = 1;
    for (;;) pause(); /* a cancellation point */
}

static void sleep_a_little(void) {
    const struct timespec time = {0, 50000};
    nanosleep(&time, NULL);
}

static void *wait_inside(void *arg) {
    mangrove_transaction(heap, write_and_wait, arg, NULL);
    return NULL;
}

static void *begin_and_end(void *arg) {
    mangrove_tx *tx;
    OK(mangrove_tx_begin(heap, false, &tx));
    CHECK(mangrove_tx_store(tx, cell, 999) >= 0);
    return arg;
}

static void threads(void) {
    static void *(*const ways[])(void *) = {jump_and_end, end_inside, begin_and_end};
    pthread_t thread;
    void *answer;
    int round;
    for (round = 0; round < 300; round++) {
        CHECK(pthread_create(&thread, NULL, ways[round % 3], &outside) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == &outside);
        if (round % 30 < 3) undone_and_free();
    }
    for (round = 0; round < 5; round++) {
        reached = 0;
        CHECK(pthread_create(&thread, NULL, wait_inside, NULL) == 0);
        while (!reached) sleep_a_little();
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
        undone_and_free();
    }
}

static volatile sig_atomic_t inside, refused, handled;
static void (*handle)(void);

static void on_signal(int signal) {
    (void)signal;
    handle();
    handled++;
}

static void call_the_heap(void) {
    uint64_t found;
    if (!inside) return;
    switch (mangrove_transaction_read(heap, get, &found, NULL)) {
    case MANGROVE_ERR_TX_MISPLACED:
        refused++;
        break;
    case MANGROVE_OK: /* the transaction has just ended */
        break;
    default:
        CHECK(!"another error");
    }
}

static int add_and_signal(mangrove_tx *tx, void *arg) {
    int before = refused;
    inside = 1;
    TRY(add(tx, arg));
    raise(SIGUSR1);
    CHECK(refused > before && mangrove_last_error()[0] != '\0');
    return add(tx, arg);
}

static void *send_signals(void *to) {
    while (reached) {
        const int before = handled;
        CHECK(pthread_kill(*(pthread_t *)to, SIGUSR1) == 0);
        /* One after the other: a thread that only handles signals gets nowhere. */
        while (reached && handled == before) sleep_a_little();
        sleep_a_little();
    }
    return NULL;
}

/* Also signals that come at any time, in the library too. */
static void signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    const uint64_t before = value();
    pthread_t sender, self = pthread_self();
    int round;
    handle = call_the_heap;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    reached = 1;
    CHECK(pthread_create(&sender, NULL, send_signals, &self) == 0);
    for (round = 0; round < 500; round++) {
        OK(mangrove_transaction(heap, add_and_signal, NULL, NULL));
        inside = 0;
    }
    reached = 0;
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(refused >= 500 && value() == before + 1000);
}

static volatile sig_atomic_t interrupted;
static __thread volatile sig_atomic_t may_not_allocate;

/* The signal may have come inside the C library's allocator, whose lock the thread then holds. (Under valgrind its
 * allocator takes the place of these functions.) */
static void allocates(void) {
    if (may_not_allocate) {
        static const char text[] = "a function allocates before it refuses a signal handler\n";
        if (write(STDERR_FILENO, text, sizeof text - 1) > 0) abort();
        _exit(1);
    }
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes) {
    allocates();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocates();
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes) {
    allocates();
    return __libc_realloc(block, bytes);
}

void free(void *block) {
    allocates();
    __libc_free(block);
}

/* What one function refuses as called inside the library, all refuse, and allocate nothing before. */
static void call_every_function(void) {
    int number;
    if (call(0) != MANGROVE_ERR_TX_MISPLACED || strstr(mangrove_last_error(), "signal handler") == NULL) return;
    may_not_allocate = 1;
    for (number = 0; number < CALL_COUNT; number++) ANSWERS(MANGROVE_ERR_TX_MISPLACED, call(number));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_heap_close(heap));
    may_not_allocate = 0;
    interrupted++;
}

static void signals_in_the_library(void) {
    /* valgrind switches threads at few places, hardly any of them in the library: a hundred may take minutes. */
    const int enough = getenv("MANGROVE_TEST_QUICK") == NULL ? 100 : 5;
    const uint64_t before = value();
    mangrove_heap_figures figures = {.size = sizeof figures};
    pthread_t sender, self = pthread_self();
    bool durable;
    int round = 0;
    handle = call_every_function;
    reached = 1;
    CHECK(pthread_create(&sender, NULL, send_signals, &self) == 0);
    do {
        OK(mangrove_transaction(heap, add, NULL, NULL));
        OK(mangrove_transaction_nowait(heap, add, NULL, NULL, &ticket));
        OK(mangrove_heap_is_durable(heap, ticket, &durable));
        OK(mangrove_heap_wait(heap, ticket));
        OK(mangrove_transaction_nowait(heap, add, NULL, NULL, NULL));
        OK(mangrove_heap_sync(heap));
        OK(mangrove_heap_stat(heap, &figures));
        OK(mangrove_heap_check(heap, NULL));
        round++;
    } while (interrupted < enough);
    reached = 0;
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(value() == before + 3 * (uint64_t)round);
}

/* A cancellation that comes while the heap writes waits until it has. */
static void *sync_when_canceled(void *arg) {
    OK(mangrove_transaction_nowait(heap, add, NULL, NULL, &ticket));
    CHECK(pthread_cancel(pthread_self()) == 0);
    if (arg == &outside) OK(mangrove_heap_sync(heap));
    else OK(mangrove_heap_wait(heap, ticket));
    reached = 1;
    pthread_testcancel();
    return arg;
}

static void cancellations(void) {
    pthread_t thread;
    void *answer;
    int round;
    for (round = 0; round < 10; round++) {
        reached = 0;
        CHECK(pthread_create(&thread, NULL, sync_when_canceled, round % 2 ? NULL : &outside) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED && reached);
    }
}

static int commit_it(mangrove_tx *tx, void *arg) {
    (void)arg;
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_commit(&tx));
    CHECK(tx == NULL);
    return 1;
}

static void *add_many(void *arg) {
    int round;
    for (round = 0; round < 500; round++) {
        mangrove_status status;
        mangrove_tx *tx;
        OK(mangrove_tx_begin(heap, false, &tx));
        do {
            add(tx, NULL);
            status = mangrove_tx_commit(&tx);
            CHECK(status == MANGROVE_TX_STOP ? tx != NULL : tx == NULL);
        } while (status == MANGROVE_TX_STOP);
        CHECK(status == MANGROVE_OK);
    }
    return arg;
}

static void steps(void) {
    const uint64_t before = value();
    uint64_t found;
    mangrove_tx *tx, *kept;
    mangrove_heap *other = heap;
    pthread_t thread[2];
    int i;
    OK(mangrove_tx_begin(heap, false, &tx));
    kept = tx;
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_begin(heap, true, &tx)); /* inside */
    CHECK(tx == NULL);
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_transaction(heap, add, NULL, NULL));
    ANSWERS(MANGROVE_ERR_IN_USE, mangrove_heap_close(other));
    CHECK(strstr(mangrove_last_error(), "commit or abort it") != NULL);
    tx = kept;
    OK(add(tx, NULL));
    OK(mangrove_tx_commit(&tx));
    CHECK(tx == NULL && value() == before + 1);
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_store(kept, cell, 999));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_commit(&kept));
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_tx_abort(&kept));
    OK(mangrove_tx_begin(heap, false, &tx));
    OK(mangrove_tx_store(tx, cell, 999));
    ANSWERS(MANGROVE_TX_ABORTED, mangrove_tx_abort(&tx));
    CHECK(tx == NULL && value() == before + 1);
    OK(mangrove_tx_begin(heap, false, &tx));
    OK(mangrove_tx_store(tx, cell, 999));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_tx_read(tx, NULL, &found, sizeof found));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_tx_commit(&tx)); /* that of the access */
    CHECK(tx == NULL && value() == before + 1);
    ANSWERS(MANGROVE_TX_ABORTED, mangrove_transaction(heap, commit_it, NULL, NULL));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_tx_begin(heap, false, NULL));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_tx_begin(NULL, false, &tx));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_tx_commit(NULL));
    for (i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, add_many, NULL) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(value() == before + 1001);
}

static pthread_barrier_t barrier;

/* Ends with a transaction that it began, or jumped out of. */
static void *leave_open(void *arg) {
    mangrove_tx *tx;
    if (arg == &outside) {
        if (setjmp(outside) == 0) mangrove_transaction(heap, write_and_jump, NULL, NULL);
    } else {
        OK(mangrove_tx_begin(heap, false, &tx));
        OK(mangrove_tx_store(tx, cell, 999));
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void closing_while_a_thread_is_inside(void) {
    int round;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (round = 0; round < 2; round++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, leave_open, round ? NULL : &outside) == 0);
        pthread_barrier_wait(&barrier);
        ANSWERS(MANGROVE_ERR_IN_USE, mangrove_heap_close(heap));
        CHECK(strstr(mangrove_last_error(), "another thread") != NULL);
        pthread_barrier_wait(&barrier);
        CHECK(pthread_join(thread, NULL) == 0);
        undone_and_free();
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static void by(const heap_way *way, const char *folder) {
    mangrove_heap_figures figures = {.size = sizeof figures};
    uint64_t blocks;
    fprintf(stderr, "with %s\n", way->name);
    heap = open_heap_by(way, below(folder, way->name));
    if (heap == NULL) {
        fprintf(stderr, "not here: %s\n", mangrove_last_error());
        return;
    }
    expected = 0;
    refused = interrupted = 0;
    OK(mangrove_transaction(heap, make, NULL, NULL));
    OK(mangrove_heap_stat(heap, &figures));
    blocks = figures.blocks;
    jumps();
    stale_ones();
    /* valgrind takes a switch of stacks for a jump in one. */
    if (getenv("MANGROVE_TEST_QUICK") == NULL) coroutines();
    threads();
    signals();
    signals_in_the_library();
    cancellations();
    steps();
    expected = value();
    closing_while_a_thread_is_inside();
    OK(mangrove_heap_stat(heap, &figures));
    CHECK(figures.blocks == blocks); /* what was allocated was given back */
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    int way;
    alarm(300);
    for (way = 0; way < HEAP_WAYS; way++) by(&heap_ways[way], folder);
    return 0;
}
