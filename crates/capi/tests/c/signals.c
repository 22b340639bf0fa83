/* A program takes its signals where it wants: no thread of the library gets one. */
#include "check.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM};
    const struct timespec patience = {30, 0};
    const char *folder = scratch_of(argc, argv);
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    sigset_t set;
    OK(mangrove_options_set_durability_interval(options, 1000)); /* a thread more */
    OK(mangrove_map_open(below(folder, "pool"), options, &map));
    OK(mangrove_map_put(map, S("key"), S("value")));
    /* Blocked after opening, in this thread alone: any other of the process that has them open is given them. */
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&set, signals[i]);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        CHECK(kill(getpid(), signals[i]) == 0);
        CHECK(sigtimedwait(&set, NULL, &patience) == signals[i]);
    }
    OK(mangrove_map_close(map));
    mangrove_options_free(options);
    return 0;
}
