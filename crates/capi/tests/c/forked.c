/* A child of fork must leave its parent's map alone: each call it makes fails with a message, and the parent loses
 * nothing. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const mangrove_range every = {.flags = MANGROVE_RANGE_EVERYTHING};

static void refused(mangrove_status answer) {
    CHECK(answer < 0);
    CHECK(strstr(mangrove_last_error(), "forked") != NULL);
}

/* What the child does; it reads what it had, and opens a map of its own. */
static void child(mangrove_map *map, mangrove_snapshot *before, mangrove_iter *walk, const char *folder) {
    mangrove_map *own;
    mangrove_snapshot *snapshot;
    mangrove_iter *iter;
    void *value;
    size_t len;
    mangrove_batch *batch = mangrove_batch_new();
    value_is(map, "parent 0", "0");
    refused(mangrove_map_put_nowait(map, S("child"), S("x")));
    refused(mangrove_map_delete_nowait(map, S("parent 0")));
    refused(mangrove_map_put(map, S("child"), S("x")));
    refused(mangrove_map_delete(map, S("parent 0")));
    refused(mangrove_map_insert_new(map, S("parent 0"), S("longer than a word")));
    value_is(map, "parent 0", "0");
    OK(mangrove_batch_put(batch, S("child"), S("y")));
    refused(mangrove_map_write(map, batch));
    mangrove_batch_free(batch);
    refused(mangrove_map_sync(map));
    refused(mangrove_map_snapshot(map, &snapshot));
    refused(mangrove_map_iter(map, NULL, &iter));
    refused(mangrove_snapshot_get(before, S("parent 0"), &value, &len));
    refused(mangrove_snapshot_iter(before, NULL, &iter));
    refused(mangrove_iter_next(walk));
    mangrove_iter_free(walk);
    mangrove_snapshot_free(before);
    refused(mangrove_map_check(map, NULL, NULL));
    refused(mangrove_map_checkpoint(map));
    refused(mangrove_map_compact(map));
    refused(mangrove_map_close(map));
    OK(mangrove_map_open(below(folder, "own"), NULL, &own));
    OK(mangrove_map_put(own, S("child"), S("z")));
    OK(mangrove_map_close(own));
}

static volatile int stop;

/* Writes one batch after the other, for as long as the program forks. */
static void *write_batches(void *map) {
    while (!stop) {
        mangrove_batch *batch = mangrove_batch_new();
        for (int n = 0; n < 20; n++) {
            char key[32];
            snprintf(key, sizeof key, "busy %d", n);
            OK(mangrove_batch_put(batch, key, strlen(key), S("longer than a word")));
        }
        OK(mangrove_map_write(map, batch));
        mangrove_batch_free(batch);
    }
    return NULL;
}

/* Compacts for as long. */
static void *compact(void *map) {
    while (!stop) OK(mangrove_map_compact(map));
    return NULL;
}

/* Forks while other threads write and compact: the child waits for nothing that they held. */
static void fork_beside_writers(const char *path) {
    mangrove_options *options = mangrove_options_new();
    mangrove_batch *batch = mangrove_batch_new();
    pthread_t threads[3];
    mangrove_map *map;
    OK(mangrove_options_set_durability_interval(options, 1000)); /* they never wait for the disk */
    OK(mangrove_map_open(path, options, &map));
    OK(mangrove_batch_put(batch, S("busy 1"), S("x")));
    OK(mangrove_batch_put(batch, S("busy 2"), S("y")));
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, i < 2 ? write_batches : compact, map) == 0);
    for (int i = 0; i < 200; i++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(300); /* it hangs */
            refused(mangrove_map_write(map, batch));
            refused(mangrove_map_put(map, S("busy 1"), S("x")));
            refused(mangrove_map_delete_range(map, &every, NULL));
            refused(mangrove_map_compact(map));
            refused(mangrove_map_stat(map, &(mangrove_stat){.size = sizeof(mangrove_stat)}));
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(mangrove_map_close(map));
    mangrove_batch_free(batch);
    mangrove_options_free(options);
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
        mangrove_snapshot *before;
        mangrove_iter *walk;
        OK(mangrove_map_snapshot(map, &before));
        OK(mangrove_map_iter(map, NULL, &walk));
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(map, before, walk, folder);
            exit(0); /* with everything that runs at exit */
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        mangrove_iter_free(walk);
        mangrove_snapshot_free(before);
    }
    OK(mangrove_map_close(map));
    OK(mangrove_map_open(below(folder, "pool"), NULL, &map));
    CHECK(records_of(map) == 20);
    for (int n = 0; n < 20; n++) {
        snprintf(key, sizeof key, "parent %d", n);
        snprintf(value, sizeof value, "%d", n);
        value_is(map, key, value);
    }
    OK(mangrove_map_close(map));
    fork_beside_writers(below(folder, "busy"));
    return 0;
}
