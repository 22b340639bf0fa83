/* Transactions that are left in unusual ways: by longjmp, by the end of a thread, for a signal. Each is undone, its
 * thread may go on, and others do. */
#include "heap.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static mangrove_heap *heap;
static uint64_t *cell;
static jmp_buf outside;
static volatile sig_atomic_t reached;

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

/* The word is as it was, and no lock is left: another thread changes it. */
static void undone_and_free(void) {
    static uint64_t expected;
    pthread_t thread;
    CHECK(value() == expected);
    CHECK(pthread_create(&thread, NULL, add_on_another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    expected++;
    CHECK(value() == expected);
}

static int write_and_jump(mangrove_tx *tx, void *arg) {
    void *block;
    (void)arg;
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

static void stat_is_given(void) {
    mangrove_heap_figures figures = {.size = sizeof figures};
    OK(mangrove_heap_stat(heap, &figures));
}

static void check_is_given(void) { OK(mangrove_heap_check(heap, NULL)); }

static void jumps(void) {
    int depth;
    for (depth = 0; depth < 60; depth++) {
        jump_out();
        deep(depth, undone_and_free);
        deep(depth, jump_out);
        undone_and_free();
    }
    jump_out();
    deep(9, stat_is_given);
    jump_out();
    check_is_given();
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

static volatile sig_atomic_t inside, refused;

static void call_the_heap(int signal) {
    uint64_t found;
    (void)signal;
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
        CHECK(pthread_kill(*(pthread_t *)to, SIGUSR1) == 0);
        sleep_a_little();
    }
    return NULL;
}

/* Also signals that come at any time, in the library too. */
static void signals(void) {
    struct sigaction action = {.sa_handler = call_the_heap};
    const uint64_t before = value();
    pthread_t sender, self = pthread_self();
    int round;
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

int main(int argc, char **argv) {
    mangrove_heap_figures figures = {.size = sizeof figures};
    uint64_t blocks;
    alarm(300);
    heap = open_heap(below(scratch_of(argc, argv), "heap"));
    OK(mangrove_transaction(heap, make, NULL, NULL));
    OK(mangrove_heap_stat(heap, &figures));
    blocks = figures.blocks;
    jumps();
    threads();
    signals();
    steps();
    OK(mangrove_heap_stat(heap, &figures));
    CHECK(figures.blocks == blocks); /* what was allocated was given back */
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
    return 0;
}
