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
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
    return 0;
}
