/* A program receives its signals on its own threads: no thread of the library gets one. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static int asked;

static void nobody_may_take_it(int signal) {
    (void)signal;
    CHECK(!"a thread of the library took a signal");
}

/* Blocks the signal here too: now every thread has it blocked, or a thread of the library gets it. */
static int progress(const mangrove_progress *so_far, void *set) {
    const struct timespec patience = {300, 0};
    (void)so_far;
    asked++;
    CHECK(pthread_sigmask(SIG_BLOCK, set, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    CHECK(sigtimedwait(set, NULL, &patience) == SIGUSR2);
    return 0;
}

struct backup {
    mangrove_map *map;
    const char *path;
    sigset_t *set;
};

/* With the signal open, while the main thread has it blocked. */
static void *back_up(void *data) {
    const struct backup *backup = data;
    CHECK(pthread_sigmask(SIG_UNBLOCK, backup->set, NULL) == 0);
    OK(mangrove_map_backup(backup->map, backup->path, progress, backup->set, NULL));
    CHECK(asked > 0);
    return NULL;
}

static void a_backup_takes_none(mangrove_map *map, const char *path) {
    struct sigaction action = {0};
    struct backup backup;
    sigset_t set;
    pthread_t worker;
    backup.map = map, backup.path = path, backup.set = &set;
    action.sa_handler = nobody_may_take_it;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(pthread_create(&worker, NULL, back_up, &backup) == 0);
    CHECK(pthread_join(worker, NULL) == 0);
}

int main(int argc, char **argv) {
    const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM};
    const struct timespec patience = {300, 0};
    const char *folder = scratch_of(argc, argv);
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    sigset_t set;
    OK(mangrove_options_set_durability_interval(options, 1000)); /* one more thread */
    OK(mangrove_map_open(below(folder, "pool"), options, &map));
    OK(mangrove_map_put(map, S("key"), S("value")));
    /* Blocked after opening, in this thread alone: any other thread of the process that has them open gets them. */
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&set, signals[i]);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        CHECK(kill(getpid(), signals[i]) == 0);
        CHECK(sigtimedwait(&set, NULL, &patience) == signals[i]);
    }
    a_backup_takes_none(map, below(folder, "copy"));
    OK(mangrove_map_close(map));
    mangrove_options_free(options);
    return 0;
}
