/* Threads that transfer between the same accounts, readers that see whole states, a thread that waits by retry; and
 * what was acknowledged is there after SIGKILL. */
#include "heap.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ACCOUNTS = 8, EACH = 1000, THREADS = 4, ROUNDS = 300 };

typedef struct {
    uint64_t balance[ACCOUNTS];
    uint64_t done[THREADS]; /* transfers of each thread */
    uint64_t gate;
} bank;

static mangrove_heap *heap;

static int make(mangrove_tx *tx, void *arg) {
    bank *at, new;
    int i;
    mangrove_status s = mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at);
    (void)arg;
    if (s != MANGROVE_NOT_FOUND) return s;
    memset(&new, 0, sizeof new);
    for (i = 0; i < ACCOUNTS; i++) new.balance[i] = EACH;
    TRY(mangrove_tx_alloc(tx, sizeof *at, 0, (void **)&at));
    TRY(MANGROVE_TX_STORE(tx, at, new));
    return mangrove_tx_set_root(tx, "bank", at, sizeof *at);
}

typedef struct {
    unsigned thread, seed;
    uint64_t done;
    int hides_stops;
} job;

static int transfer(mangrove_tx *tx, void *arg) {
    job *job = arg;
    unsigned random = job->seed * 2654435761u;
    unsigned from = random % ACCOUNTS, to = (from + 1 + (random >> 8) % (ACCOUNTS - 1)) % ACCOUNTS;
    uint64_t has = 0, had = 0, amount = (random >> 16) % 50;
    bank *at;
    mangrove_status s;
    TRY(mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at));
    TRY(MANGROVE_TX_LOAD(tx, &at->balance[from], &has));
    if (has < amount) amount = 0;
    TRY(mangrove_tx_store(tx, &at->balance[from], has - amount));
    s = mangrove_tx_load(tx, &at->balance[to], &had);
    if (s == MANGROVE_TX_STOP && job->hides_stops) return MANGROVE_OK; /* wrong, and harmless: it runs again */
    if (s != MANGROVE_OK) return s;
    TRY(mangrove_tx_store(tx, &at->balance[to], had + amount));
    TRY(mangrove_tx_load(tx, &at->done[job->thread], &job->done));
    job->done++;
    return mangrove_tx_store(tx, &at->done[job->thread], job->done);
}

static int look(mangrove_tx *tx, void *arg) {
    bank *at, now;
    uint64_t sum = 0;
    int i;
    TRY(mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at));
    TRY(MANGROVE_TX_LOAD(tx, at, &now));
    for (i = 0; i < ACCOUNTS; i++) sum += now.balance[i];
    CHECK(sum == ACCOUNTS * EACH); /* also in runs that are undone in the end */
    if (arg != NULL) *(bank *)arg = now;
    return MANGROVE_OK;
}

static int wait_for_gate(mangrove_tx *tx, void *arg) {
    bank *at;
    TRY(mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at));
    TRY(mangrove_tx_load(tx, &at->gate, arg));
    if (*(uint64_t *)arg == 0) return mangrove_tx_retry(tx);
    return MANGROVE_OK;
}

static int open_gate(mangrove_tx *tx, void *arg) {
    bank *at;
    TRY(mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at));
    return mangrove_tx_store(tx, &at->gate, *(uint64_t *)arg);
}

static void *wait_there(void *gate) {
    OK(mangrove_transaction(heap, wait_for_gate, gate, NULL));
    return NULL;
}

static void *work(void *number) {
    job job = {.thread = *(unsigned *)number, .hides_stops = *(unsigned *)number % 2};
    unsigned i;
    for (i = 0; i < ROUNDS; i++) {
        job.seed = job.thread * 1000003 + i;
        OK(mangrove_transaction(heap, transfer, &job, NULL));
        CHECK(job.done == i + 1);
        if (i % 8 == 0) OK(mangrove_transaction_read(heap, look, NULL, NULL));
    }
    return NULL;
}

static void transfers_of_threads(const char *path) {
    pthread_t threads[THREADS], waiter;
    unsigned numbers[THREADS], i;
    uint64_t gate = 0, opened = 42;
    bank now;
    heap = open_heap(path);
    OK(mangrove_transaction(heap, make, NULL, NULL));
    CHECK(pthread_create(&waiter, NULL, wait_there, &gate) == 0);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(mangrove_transaction(heap, open_gate, &opened, NULL));
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK(gate == 42);
    OK(mangrove_transaction_read(heap, look, &now, NULL));
    for (i = 0; i < THREADS; i++) CHECK(now.done[i] == ROUNDS);
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
}

typedef struct {
    uint64_t thread, done;
} told;

static int pipe_end;

static void *work_for_ever(void *number) {
    job job = {.thread = *(unsigned *)number};
    for (;; job.seed++) {
        told told = {job.thread, 0};
        OK(mangrove_transaction(heap, transfer, &job, NULL));
        told.done = job.done;
        CHECK(write(pipe_end, &told, sizeof told) == (ssize_t)sizeof told);
    }
    return NULL;
}

/* Acknowledges by the pipe what is durable, until it is killed. */
static void child(const char *path) {
    pthread_t threads[THREADS];
    unsigned numbers[THREADS], i;
    heap = open_heap(path);
    OK(mangrove_transaction(heap, make, NULL, NULL));
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work_for_ever, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    _exit(1);
}

static void survive_sigkill(const char *path) {
    uint64_t acknowledged[THREADS] = {0};
    int life, i;
    for (life = 0; life < 3; life++) {
        int ends[2], status;
        told told;
        bank now;
        pid_t pid;
        CHECK(pipe(ends) == 0);
        pid = fork(); /* this process has no heap open */
        CHECK(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            pipe_end = ends[1];
            child(path);
        }
        close(ends[1]);
        for (i = 0; i < 300; i++) {
            CHECK(read(ends[0], &told, sizeof told) == (ssize_t)sizeof told);
            acknowledged[told.thread] = told.done;
        }
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        while (read(ends[0], &told, sizeof told) == (ssize_t)sizeof told) acknowledged[told.thread] = told.done;
        close(ends[0]);

        heap = open_heap(path);
        OK(mangrove_transaction_read(heap, look, &now, NULL)); /* the total is right */
        for (i = 0; i < THREADS; i++) {
            /* At most the one transfer that was under way was added. */
            CHECK(now.done[i] == acknowledged[i] || now.done[i] == acknowledged[i] + 1);
            acknowledged[i] = now.done[i];
        }
        OK(mangrove_heap_check(heap, NULL));
        OK(mangrove_heap_close(heap));
    }
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    survive_sigkill(below(folder, "killed"));
    transfers_of_threads(below(folder, "heap"));
    return 0;
}
