/* A child of fork that uses its parent's heap is refused at once, and the parent goes on. */
#include "heap.h"
#include <sys/wait.h>
#include <unistd.h>

static mangrove_heap *heap;
static uint64_t *cell;

static int make(mangrove_tx *tx, void *arg) {
    (void)arg;
    return mangrove_tx_alloc_zeroed(tx, sizeof *cell, 0, (void **)&cell);
}

static int get(mangrove_tx *tx, void *arg) { return mangrove_tx_load(tx, cell, arg); }

static int store_one(mangrove_tx *tx, void *arg) {
    (void)arg;
    return mangrove_tx_store(tx, cell, 1);
}

static uint64_t value(void) {
    uint64_t found;
    OK(mangrove_transaction_read(heap, get, &found, NULL));
    return found;
}

static int fork_inside(mangrove_tx *tx, void *child) {
    uint64_t found = 5;
    TRY(mangrove_tx_store(tx, cell, 2));
    *(pid_t *)child = fork();
    CHECK(*(pid_t *)child >= 0);
    if (*(pid_t *)child > 0) return MANGROVE_OK;
    alarm(120);
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_tx_load(tx, cell, &found));
    CHECK(strstr(mangrove_last_error(), "forked inside") != NULL);
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_tx_store(tx, cell, 3));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_transaction(heap, store_one, NULL, NULL));
    return MANGROVE_OK; /* which commits nothing */
}

static void inside(void) {
    int status;
    pid_t pid;
    mangrove_status ended = mangrove_transaction(heap, fork_inside, &pid, NULL);
    if (pid == 0) {
        CHECK(ended == MANGROVE_ERR_UNSUPPORTED);
        CHECK(strstr(mangrove_last_error(), "forked inside") != NULL);
        _exit(0);
    }
    CHECK(ended == MANGROVE_OK);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(value() == 2);
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    int status;
    pid_t pid;
    heap = open_heap(below(folder, "heap"));
    OK(mangrove_transaction(heap, make, NULL, NULL));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(120);
        ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_transaction(heap, store_one, NULL, NULL));
        CHECK(strstr(mangrove_last_error(), "forked") != NULL);
        ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_backup(heap, below(folder, "backup"), NULL));
        ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_heap_close(heap));
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(value() == 0);
    OK(mangrove_transaction(heap, store_one, NULL, NULL));
    CHECK(value() == 1);
    inside();
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
    return 0;
}
