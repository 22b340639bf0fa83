/* A program's signals are its own threads' matter: whatever the library does, no thread of it runs the program's
 * handler, and each has the program's signals blocked.
 * Usage: signals DIRECTORY ROUNDS. */

#include "said.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* Several of the same number are one while they wait. Of real-time signals each would wait: beside other work the queue
 * grew faster than the worker took them. */
static const int signals[] = { SIGUSR1, SIGUSR2, SIGURG, SIGIO, SIGWINCH, SIGVTALRM };
#define SIGNALS ((int)(sizeof signals / sizeof *signals))

/* The program's threads: only the worker has the signals open. */
#define THREADS 3
static pid_t threads[THREADS];
static _Atomic int known, done;

static atomic_long taken, taken_by_library, seen, seen_open, compared_by_library;

static int is_of_the_program(pid_t thread) {
    for (int i = 0; i < known; i++)
        if (threads[i] == thread) return 1;
    return 0;
}

static void enter_thread(void) {
    /* The next thread starts when this one is known, so that no two come here at once. */
    threads[known] = gettid();
    known++;
}

static void handler(int signal) {
    (void)signal;
    if (is_of_the_program(gettid())) taken++;
    else taken_by_library++;
}

static void send_all(void) {
    for (int i = 0; i < SIGNALS; i++) CHECK(kill(getpid(), signals[i]) == 0);
}

/* Counts the library's threads, and those that have one of the signals open. */
static void look_at_masks(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[200];
        unsigned long long blocked = 0;
        int found = 0, threads = 1;
        pid_t thread = (pid_t)atoi(task->d_name);
        if (thread == 0 || is_of_the_program(thread)) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        if (status == NULL) continue; /* It has ended. */
        while (!found && fgets(line, sizeof line, status)) {
            sscanf(line, "Threads: %d", &threads);
            found = sscanf(line, "SigBlk: %llx", &blocked);
        }
        fclose(status);
        /* Of a thread that has just ended the kernel counts no threads, and tells no signals. */
        if (!found || threads == 0) continue;
        seen++;
        int is_open = 0;
        for (int i = 0; i < SIGNALS; i++) is_open |= !(blocked >> (signals[i] - 1) & 1);
        seen_open += is_open;
    }
    closedir(tasks);
}

static int compare(void *state, const char *a, size_t a_len, const char *b, size_t b_len) {
    (void)state;
    if (!is_of_the_program(gettid())) {
        compared_by_library++;
        /* While the worker has signals to take already, the system offers the next ones to this thread. */
        send_all();
        look_at_masks();
    }
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static const char *name(void *state) {
    (void)state;
    return "signals.c";
}

static void *send_on(void *unused) {
    /* So that the worker does more than to handle signals. */
    const struct timespec pause = { 0, 200000 };
    (void)unused;
    enter_thread();
    while (!done) {
        send_all();
        nanosleep(&pause, NULL);
    }
    return NULL;
}

struct work {
    char path[4096];
    long rounds;
    leveldb_comparator_t *order;
    sigset_t set;
};

static void *open_and_repair(void *data) {
    struct work *work = data;
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
    enter_thread();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_options_set_comparator(options, work->order);
    leveldb_writeoptions_set_sync(synced, 1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &work->set, NULL) == 0);
    for (long round = 0; round < work->rounds; round++) {
        leveldb_t *db = leveldb_open(options, work->path, &error);
        expect_none("open", error);
        look_at_masks();
        for (int i = 0; i < 4; i++) {
            char key[16];
            snprintf(key, sizeof key, "key %d", i);
            leveldb_put(db, synced, key, strlen(key), "value", 5, &error);
            expect_none("put", error);
        }
        leveldb_close(db);
        leveldb_repair_db(options, work->path, &error);
        expect_none("repair", error);
    }
    done = 1;
    leveldb_options_destroy(options);
    leveldb_writeoptions_destroy(synced);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *engine = getenv("MANGROVE_LEVELDB_ENGINE");
    int has_order = engine == NULL || strcmp(engine, "durable") == 0;
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    struct work work;
    pthread_t sender, worker;
    snprintf(work.path, sizeof work.path, "%s/db", argv[1]);
    work.rounds = strtol(argv[2], NULL, 10);
    work.order = has_order ? leveldb_comparator_create(NULL, NULL, compare, name) : NULL;
    sigemptyset(&work.set);
    for (int i = 0; i < SIGNALS; i++) {
        sigaddset(&work.set, signals[i]);
        CHECK(sigaction(signals[i], &action, NULL) == 0);
    }
    CHECK(pthread_sigmask(SIG_BLOCK, &work.set, NULL) == 0);
    enter_thread();
    CHECK(pthread_create(&worker, NULL, open_and_repair, &work) == 0);
    while (known < 2) sched_yield();
    CHECK(pthread_create(&sender, NULL, send_on, NULL) == 0);
    CHECK(pthread_join(worker, NULL) == 0);
    CHECK(pthread_join(sender, NULL) == 0);
    fprintf(stderr, "handled by the program %ld, by the library %ld; threads of the library seen %ld, "
            "with signals open %ld; comparisons there %ld\n", taken, taken_by_library, seen, seen_open,
            compared_by_library);
    CHECK(taken > 0 && seen > 0 && (!has_order || compared_by_library > 0));
    CHECK(taken_by_library == 0);
    CHECK(seen_open == 0);
    if (work.order != NULL) leveldb_comparator_destroy(work.order);
    return 0;
}
