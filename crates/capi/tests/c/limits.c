/* The limits of a process: what is refused names the limit, not the pool or the disk. */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VALUE = 1 << 20 };

/* The status of the first put that is refused; values in plenty otherwise. */
static mangrove_status fill(mangrove_map *map, int puts_max) {
    static char value[VALUE];
    for (int i = 0; i < puts_max; i++) {
        char key[32];
        mangrove_status put;
        snprintf(key, sizeof key, "key %d", i);
        put = mangrove_map_put(map, key, strlen(key), value, sizeof value);
        if (put != MANGROVE_OK) return put;
    }
    return MANGROVE_OK;
}

static void limit(int resource, rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(resource, &limit) == 0);
}

static void file_size(const char *path, int32_t medium) {
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    OK(mangrove_options_set_medium(options, medium));
    OK(mangrove_options_set_log_bytes(options, 1 << 20));
    OK(mangrove_map_open(path, options, &map));
    limit(RLIMIT_FSIZE, 8 << 20);
    CHECK(fill(map, 64) == MANGROVE_ERR_NO_SPACE);
    CHECK(strstr(mangrove_last_error(), "ulimit -f") != NULL);
    OK(mangrove_map_put(map, S("key 0"), S("small"))); /* the pool was not poisoned */
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    OK(fill(map, 16));
    OK(mangrove_map_close(map));
    mangrove_options_free(options);
}

/* A medium that has no space for a new pool is no wrong argument, and no other I/O error. */
static void creation(const char *path, int32_t medium, rlim_t bytes) {
    mangrove_heap_options *heap_options = mangrove_heap_options_new();
    mangrove_options *options = mangrove_options_new();
    mangrove_heap *heap;
    mangrove_map *map;
    OK(mangrove_heap_options_set_medium(heap_options, medium));
    OK(mangrove_options_set_medium(options, medium));
    limit(RLIMIT_FSIZE, bytes);
    ANSWERS(MANGROVE_ERR_NO_SPACE, mangrove_heap_open(path, heap_options, &heap));
    CHECK(strstr(mangrove_last_error(), "ulimit -f") != NULL);
    ANSWERS(MANGROVE_ERR_NO_SPACE, mangrove_map_open(path, options, &map));
    CHECK(strstr(mangrove_last_error(), "ulimit -f") != NULL);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    mangrove_heap_options_free(heap_options);
    mangrove_options_free(options);
}

static int take(mangrove_tx *tx, void *bytes) {
    void *block;
    return mangrove_tx_alloc(tx, *(size_t *)bytes, 0, &block);
}

/* A full medium and a full heap have a status each. */
static void heap_file_size(const char *path, int32_t medium) {
    const size_t some = 32 << 20, too_much = (size_t)1 << 30;
    mangrove_heap_options *options = mangrove_heap_options_new();
    mangrove_heap *heap;
    OK(mangrove_heap_options_set_medium(options, medium));
    OK(mangrove_heap_options_set_capacity(options, 256 << 20));
    OK(mangrove_heap_options_set_log_bytes(options, 1 << 20));
    OK(mangrove_heap_open(path, options, &heap));
    limit(RLIMIT_FSIZE, 24 << 20);
    ANSWERS(MANGROVE_ERR_NO_SPACE, mangrove_transaction(heap, take, (void *)&some, NULL));
    CHECK(strstr(mangrove_last_error(), "ulimit -f") != NULL);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    OK(mangrove_transaction(heap, take, (void *)&some, NULL));
    ANSWERS(MANGROVE_ERR_FULL, mangrove_transaction(heap, take, (void *)&too_much, NULL));
    OK(mangrove_heap_close(heap));
    mangrove_heap_options_free(options);
}

/* In a child, which alone is limited before it opens. */
static void address_space(const char *path) {
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        mangrove_map *map;
        limit(RLIMIT_AS, (rlim_t)400 << 20);
        OK(mangrove_map_open(path, NULL, &map));
        CHECK(fill(map, 1024) == MANGROVE_ERR_FULL);
        CHECK(strstr(mangrove_last_error(), "ulimit -v") != NULL);
        CHECK(strstr(mangrove_last_error(), "larger capacity") == NULL);
        OK(mangrove_map_close(map));
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* In a child, which runs as another user with few threads: an opener that wants many uses those that it gets. */
static void threads(const char *folder) {
    const uid_t nobody = 54321;
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    int status;
    pid_t pid;
    OK(mangrove_map_open(below(folder, "threads"), NULL, &map));
    for (int i = 0; i < 20000; i++) {
        char key[64];
        snprintf(key, sizeof key, "a key that takes a little space %d", i);
        OK(mangrove_map_put_nowait(map, key, strlen(key), S("value")));
    }
    OK(mangrove_map_close(map));
    OK(mangrove_options_set_recovery_threads(options, 64));
    OK(mangrove_options_set_read_only(options, true));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(chdir(folder) == 0);
        CHECK(geteuid() != 0 || setuid(nobody) == 0);
        limit(RLIMIT_NPROC, 4);
        OK(mangrove_map_open("threads", options, &map));
        CHECK(records_of(map) == 20000);
        OK(mangrove_map_close(map));
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    mangrove_options_free(options);
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    address_space(below(folder, "addresses"));
    threads(folder);
    for (rlim_t bytes = 4 << 10; bytes <= 64 << 10; bytes *= 4) { /* the superblock, the log, the first page */
        creation(below(folder, "new on file"), MANGROVE_MEDIUM_FILE, bytes);
        creation(below(folder, "new on emulated"), MANGROVE_MEDIUM_EMULATED, bytes);
    }
    file_size(below(folder, "file"), MANGROVE_MEDIUM_FILE);
    file_size(below(folder, "emulated"), MANGROVE_MEDIUM_EMULATED);
    heap_file_size(below(folder, "heap on file"), MANGROVE_MEDIUM_FILE);
    heap_file_size(below(folder, "heap on emulated"), MANGROVE_MEDIUM_EMULATED);
    return 0;
}
