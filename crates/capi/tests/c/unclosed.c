/* Processes that end without closing: a return from main and exit write what was put without waiting, _exit does not
 * unless it was read, and a child of fork never writes for its parent. */
#include "check.h"
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 100, LARGE_COUNT = 40 };

/* Opens a map whose writes do not become durable by themselves. */
static mangrove_map *open_idle(const char *path) {
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    OK(mangrove_options_set_nowait_within(options, 0));
    OK(mangrove_map_open(path, options, &map));
    mangrove_options_free(options);
    return map;
}

/* Puts without waiting; by itself nothing becomes durable. */
static mangrove_map *fill(const char *path) {
    mangrove_map *map = open_idle(path);
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

/* A map that was closed, and is large enough to be recovered in the background. */
static void make_large(const char *path) {
    size_t len = 1 << 20;
    char *value = malloc(len);
    mangrove_map *map;
    CHECK(value != NULL);
    memset(value, 'v', len);
    OK(mangrove_map_open(path, NULL, &map));
    for (int i = 0; i < LARGE_COUNT; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%d", i);
        OK(mangrove_map_put_nowait(map, key, strlen(key), value, len));
    }
    OK(mangrove_map_close(map));
    free(value);
}

static mangrove_map *left_open;

static void put_one_more(void) {
    OK(mangrove_map_put_nowait(left_open, S("at exit"), S("before the hook")));
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    const char *paths[] = {below(folder, "return"), below(folder, "exit"), below(folder, "_exit"),
                           below(folder, "child"), below(folder, "atexit"), below(folder, "large"),
                           below(folder, "read")};
    pid_t pid;

    /* First, while this process has opened no pool: what is hooked while a thread recovers the map runs before the
     * pool's hook. */
    if ((pid = fork()) == 0) {
        make_large(paths[5]);
        return 0;
    }
    ended_well(pid);
    if ((pid = fork()) == 0) {
        left_open = open_idle(paths[5]);
        CHECK(atexit(put_one_more) == 0);
        OK(mangrove_map_wait_recovered(left_open));
        exit(0);
    }
    ended_well(pid);
    holds(paths[5], LARGE_COUNT + 1);

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

    /* A read makes durable what it returns, also where it puts the value over the key. */
    if ((pid = fork()) == 0) {
        mangrove_map *map = open_idle(paths[6]);
        char both[32] = "key";
        size_t len;
        OK(mangrove_map_put_nowait(map, S("key"), S("longer than a word")));
        OK(mangrove_map_get_into(map, both, 3, both, sizeof both, &len));
        CHECK(len == 18 && memcmp(both, "longer than a word", len) == 0);
        _exit(0);
    }
    ended_well(pid);
    holds(paths[6], 1);

    if ((pid = fork()) == 0) {
        fill(paths[3]);
        if ((pid = fork()) == 0) {
            alarm(300); /* it hangs */
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

    /* That thread opens no file: the process may have no descriptor left by then. */
    if ((pid = fork()) == 0) {
        struct rlimit before, none;
        left_open = open_idle(paths[5]);
        CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
        none = before;
        none.rlim_cur = 3;
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        OK(mangrove_map_wait_recovered(left_open));
        OK(mangrove_map_put(left_open, S("later"), S("no descriptor was needed")));
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        OK(mangrove_map_close(left_open));
        _exit(0);
    }
    ended_well(pid);
    holds(paths[5], LARGE_COUNT + 2);
    return 0;
}
