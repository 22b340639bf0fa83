/* The lock of a pool belongs to its opener: closing frees it while a child of fork lives, no child frees it, and none
 * keeps it. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether another process may open the pool for writing. */
static int others_may_write(const char *program, const char *path) {
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(program, program, "--may-write", path, (char *)NULL);
        _exit(9);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) <= 1);
    return WEXITSTATUS(status) == 0;
}

static int may_write(const char *path) {
    mangrove_map *map;
    mangrove_status opened = mangrove_map_open(path, NULL, &map);
    CHECK(opened == MANGROVE_OK || opened == MANGROVE_ERR_POOL_BUSY);
    if (opened == MANGROVE_OK) OK(mangrove_map_close(map));
    return opened == MANGROVE_OK;
}

/* A child that has what its parent has, and does nothing until its parent ends, if it is not killed before. */
static pid_t sleeper(void) {
    int ends[2];
    char byte;
    pid_t pid;
    CHECK(pipe(ends) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[1]);
        (void)!read(ends[0], &byte, 1);
        _exit(0);
    }
    close(ends[0]);
    return pid;
}

static void end(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

static void closed_beside_a_child(const char *path, const mangrove_options *options) {
    mangrove_map *map;
    pid_t child;
    OK(mangrove_map_open(path, options, &map));
    child = sleeper();
    OK(mangrove_map_close(map));
    OK(mangrove_map_open(path, NULL, &map)); /* for writing: alone */
    OK(mangrove_map_put(map, S("key"), S("value")));
    OK(mangrove_map_close(map));
    end(child);
}

/* A child that closes its parent's map, or ends with everything that runs at exit. */
static void kept_beside_a_child(const char *program, const char *path, const mangrove_options *options, int reads) {
    mangrove_map *map;
    OK(mangrove_map_open(path, options, &map));
    for (int closes = 0; closes < 2; closes++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            if (closes) (void)mangrove_map_close(map);
            exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(others_may_write(program, path) == reads); /* a reader of a file pool keeps no writer out */
    }
    OK(mangrove_map_close(map));
    CHECK(others_may_write(program, path));
}

static void put_in_map(const char *path, const mangrove_options *options) {
    mangrove_map *map;
    OK(mangrove_map_open(path, options, &map));
    OK(mangrove_map_put(map, S("key"), S("value")));
}

static void open_heap(const char *path) {
    mangrove_heap *heap;
    OK(mangrove_heap_open(path, NULL, &heap));
}

/* A process that has the pool is killed, and its child, which it forked then, lives on: the pool opens at once. */
static void killed_beside_a_child(const char *path, const mangrove_options *options, int is_heap) {
    int forked[2], ends[2], status;
    char byte;
    pid_t pid;
    mangrove_map *map;
    mangrove_heap *heap;
    CHECK(pipe(forked) == 0 && pipe(ends) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(ends[1]);
        if (is_heap) open_heap(path);
        else put_in_map(path, options);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) { /* until the test is over */
            CHECK(write(forked[1], "f", 1) == 1);
            (void)!read(ends[0], &byte, 1);
            _exit(0);
        }
        (void)!read(ends[0], &byte, 1);
        _exit(0);
    }
    CHECK(read(forked[0], &byte, 1) == 1);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    if (is_heap) {
        OK(mangrove_heap_open(path, NULL, &heap));
        OK(mangrove_heap_close(heap));
    } else {
        OK(mangrove_map_open(path, NULL, &map));
        value_is(map, "key", "value");
        OK(mangrove_map_close(map));
    }
    close(ends[0]);
    close(ends[1]);
    close(forked[0]);
    close(forked[1]);
}

int main(int argc, char **argv) {
    const char *folder;
    mangrove_options *emulated = mangrove_options_new(), *reader = mangrove_options_new();
    const mangrove_options *ways[3];
    if (argc == 3 && strcmp(argv[1], "--may-write") == 0) return may_write(argv[2]) ? 0 : 1;
    folder = scratch_of(argc, argv);
    OK(mangrove_options_set_medium(emulated, MANGROVE_MEDIUM_EMULATED));
    OK(mangrove_options_set_read_only(reader, true));
    ways[0] = NULL; /* a file, made here and read by the last way */
    ways[1] = emulated;
    ways[2] = reader;
    for (int way = 0; way < 3; way++) {
        const char *path = below(folder, way == 1 ? "emulated" : "file");
        closed_beside_a_child(path, ways[way]);
        kept_beside_a_child(argv[0], path, ways[way], way == 2);
    }
    killed_beside_a_child(below(folder, "killed"), NULL, 0);
    killed_beside_a_child(below(folder, "killed emulated"), emulated, 0);
    killed_beside_a_child(below(folder, "killed heap"), NULL, 1);
    mangrove_options_free(emulated);
    mangrove_options_free(reader);
    return 0;
}
