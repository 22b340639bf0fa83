/* Processes that end without closing: a return from main and exit write what was put without waiting, _exit does not,
 * and a child of fork never writes for its parent. */
#include "check.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 100 };

/* Puts without waiting; by itself nothing becomes durable. */
static mangrove_map *fill(const char *path) {
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    OK(mangrove_options_set_nowait_within(options, 0));
    OK(mangrove_map_open(path, options, &map));
    mangrove_options_free(options);
    for (int i = 0; i < COUNT; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%d", i);
        OK(mangrove_map_put_nowait(map, key, strlen(key), S("longer than a word")));
    }
    return map;
}

static void ended_well(pid_t pid) {
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void holds(const char *path, uint64_t records) {
    mangrove_map *map;
    OK(mangrove_map_open(path, NULL, &map));
    CHECK(records_of(map) == records);
    OK(mangrove_map_close(map));
}

static mangrove_map *left_open;

static void put_one_more(void) {
    OK(mangrove_map_put_nowait(left_open, S("at exit"), S("before the hook")));
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    const char *paths[] = {below(folder, "return"), below(folder, "exit"), below(folder, "_exit"),
                           below(folder, "child"), below(folder, "atexit")};
    pid_t pid;

    if ((pid = fork()) == 0) {
        fill(paths[0]);
        return 0;
    }
    ended_well(pid);
    holds(paths[0], COUNT);

    if ((pid = fork()) == 0) {
        fill(paths[1]);
        exit(0);
    }
    ended_well(pid);
    holds(paths[1], COUNT);

    if ((pid = fork()) == 0) {
        fill(paths[2]);
        _exit(0);
    }
    ended_well(pid);
    holds(paths[2], 0);

    if ((pid = fork()) == 0) {
        fill(paths[3]);
        if ((pid = fork()) == 0) {
            alarm(120); /* it hangs */
            exit(0);
        }
        ended_well(pid);
        _exit(0);
    }
    ended_well(pid);
    holds(paths[3], 0);

    /* What was hooked after the pool was opened runs before the pool's hook. */
    if ((pid = fork()) == 0) {
        left_open = fill(paths[4]);
        CHECK(atexit(put_one_more) == 0);
        exit(0);
    }
    ended_well(pid);
    holds(paths[4], COUNT + 1);
    return 0;
}
