/* A child of fork must leave its parent's map alone: what it tries fails with a sentence, and the parent loses nothing. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static void refused(mangrove_status answer) {
    CHECK(answer < 0);
    CHECK(strstr(mangrove_last_error(), "forked") != NULL);
}

/* What the child does; it reads what it had, and opens a map of its own. */
static void child(mangrove_map *map, const char *folder) {
    mangrove_map *own;
    mangrove_batch *batch = mangrove_batch_new();
    value_is(map, "parent 0", "0");
    refused(mangrove_map_put(map, S("child"), S("x")));
    refused(mangrove_map_delete(map, S("parent 0")));
    OK(mangrove_batch_put(batch, S("child"), S("y")));
    refused(mangrove_map_write(map, batch));
    mangrove_batch_free(batch);
    refused(mangrove_map_sync(map));
    refused(mangrove_map_checkpoint(map));
    refused(mangrove_map_close(map));
    OK(mangrove_map_open(below(folder, "own"), NULL, &own));
    OK(mangrove_map_put(own, S("child"), S("z")));
    OK(mangrove_map_close(own));
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    mangrove_map *map;
    char key[32], value[32];
    OK(mangrove_map_open(below(folder, "pool"), NULL, &map));
    for (int n = 0; n < 20; n++) {
        int status;
        pid_t pid;
        snprintf(key, sizeof key, "parent %d", n);
        snprintf(value, sizeof value, "%d", n);
        OK(mangrove_map_put(map, key, strlen(key), value, strlen(value)));
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(map, folder);
            exit(0); /* with everything that runs at exit */
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    OK(mangrove_map_close(map));
    OK(mangrove_map_open(below(folder, "pool"), NULL, &map));
    CHECK(mangrove_map_len(map) == 20);
    for (int n = 0; n < 20; n++) {
        snprintf(key, sizeof key, "parent %d", n);
        snprintf(value, sizeof value, "%d", n);
        value_is(map, key, value);
    }
    OK(mangrove_map_close(map));
    return 0;
}
