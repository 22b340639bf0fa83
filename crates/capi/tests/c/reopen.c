/* What survives: a close, a process that ends without one, and SIGKILL while it writes. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void text_of(int i, char *key, char *value) {
    snprintf(key, 32, "key %d", i);
    snprintf(value, 64, "value %d of the writer who gets killed", i);
}

/*
 * Puts, and writes each acknowledged number to the pipe, until killed. The put itself acknowledges or, with a
 * durability that would let a minute pass, the sync after it.
 */
static void write_until_killed(const char *path, int pipe_end, int lazily) {
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    int i;
    if (lazily) OK(mangrove_options_set_durability_interval(options, 60000));
    OK(mangrove_map_open(path, options, &map));
    for (i = 0;; i++) {
        char key[32], value[64];
        text_of(i, key, value);
        OK(mangrove_map_put(map, key, strlen(key), value, strlen(value)));
        if (lazily) OK(mangrove_map_sync(map));
        CHECK(write(pipe_end, &i, sizeof i) == (ssize_t)sizeof i);
    }
}

static void survive_sigkill(const char *path, int lazily) {
    int ends[2], last = -1, i, status;
    pid_t child;
    mangrove_map *map;
    mangrove_recovery recovery = {.size = sizeof recovery};
    CHECK(pipe(ends) == 0);
    child = fork(); /* this process has opened nothing yet */
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        write_until_killed(path, ends[1], lazily);
        _exit(1);
    }
    close(ends[1]);
    for (i = 0; i < 500; i++) CHECK(read(ends[0], &last, sizeof last) == (ssize_t)sizeof last);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    while (read(ends[0], &i, sizeof i) == (ssize_t)sizeof i) last = i; /* acknowledged before the end */
    close(ends[0]);

    OK(mangrove_map_open(path, NULL, &map));
    OK(mangrove_map_recovery(map, &recovery));
    CHECK(!recovery.clean && recovery.size == sizeof recovery);
    for (i = 0; i <= last; i++) {
        char key[32], value[64];
        text_of(i, key, value);
        value_is(map, key, value);
    }
    /* At most the one put that was under way was added. */
    CHECK(records_of(map) == (uint64_t)last + 1 || records_of(map) == (uint64_t)last + 2);
    CHECK(recovery.records == records_of(map));
    OK(mangrove_map_check(map, NULL, NULL));
    OK(mangrove_map_close(map));
}

static void survive_close(const char *path) {
    mangrove_map *map;
    mangrove_recovery recovery = {.size = sizeof recovery};
    mangrove_options *options = mangrove_options_new();
    OK(mangrove_options_set_durability_interval(options, 1000));
    OK(mangrove_map_open(path, options, &map));
    OK(mangrove_map_put(map, S("k"), S("v")));
    OK(mangrove_map_close(map)); /* makes everything durable, whatever the durability */

    OK(mangrove_options_set_durability_sync(options));
    OK(mangrove_options_set_create(options, false));
    OK(mangrove_map_open(path, options, &map));
    OK(mangrove_map_recovery(map, &recovery));
    CHECK(recovery.clean && !recovery.created && recovery.records == 1);
    value_is(map, "k", "v");
    OK(mangrove_map_close(map));
    mangrove_options_free(options);
}

int main(int argc, char **argv) {
    const char *scratch = scratch_of(argc, argv);
    survive_sigkill(below(scratch, "killed"), 0);
    survive_sigkill(below(scratch, "killed lazily"), 1);
    survive_close(below(scratch, "closed"));
    return 0;
}
