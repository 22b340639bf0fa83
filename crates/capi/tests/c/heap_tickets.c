/* Commits that nobody waits for, then their tickets: of the last, of another heap, of another opening. */
#include "heap.h"

#define COUNT 300

static int make(mangrove_tx *tx, void *arg) {
    uint64_t *counter;
    (void)arg;
    TRY(mangrove_tx_alloc_zeroed(tx, sizeof *counter, 0, (void **)&counter));
    return mangrove_tx_set_root(tx, "counter", counter, sizeof *counter);
}

static int count(mangrove_tx *tx, void *arg) {
    uint64_t *counter, value;
    TRY(mangrove_tx_root(tx, "counter", sizeof *counter, (void **)&counter));
    TRY(mangrove_tx_load(tx, counter, &value));
    TRY(mangrove_tx_store(tx, counter, value + 1));
    return arg == NULL ? MANGROVE_OK : *(int *)arg;
}

static int value_of(mangrove_tx *tx, void *arg) {
    uint64_t *counter;
    TRY(mangrove_tx_root(tx, "counter", sizeof *counter, (void **)&counter));
    return mangrove_tx_load(tx, counter, (uint64_t *)arg);
}

int main(int argc, char **argv) {
    mangrove_heap *heap, *other;
    mangrove_tx_ticket ticket, first, of_other;
    uint64_t value = 0;
    int abort_with = 5, i;
    int32_t aborted = 0;
    bool durable = false;
    const char *path = below(scratch_of(argc, argv), "heap");
    heap = open_heap(path);
    other = open_heap(below(scratch_of(argc, argv), "other"));
    CHECK(mangrove_transaction(heap, make, NULL, NULL) == MANGROVE_OK);
    CHECK(mangrove_transaction(other, make, NULL, NULL) == MANGROVE_OK);

    CHECK(mangrove_transaction_nowait(heap, count, NULL, NULL, &first) == MANGROVE_OK);
    for (i = 1; i < COUNT; i++)
        CHECK(mangrove_transaction_nowait(heap, count, NULL, NULL, &ticket) == MANGROVE_OK);
    CHECK(mangrove_heap_wait(heap, ticket) == MANGROVE_OK);
    CHECK(mangrove_heap_is_durable(heap, first, &durable) == MANGROVE_OK && durable);
    CHECK(mangrove_heap_is_durable(heap, ticket, &durable) == MANGROVE_OK && durable);

    /* An abort has no ticket; a NULL one is no mistake. */
    CHECK(mangrove_transaction_nowait(heap, count, &abort_with, &aborted, &of_other) == MANGROVE_TX_ABORTED);
    CHECK(aborted == 5 && of_other.opening == 0 && of_other.position == 0);
    CHECK(mangrove_transaction_nowait(heap, count, NULL, NULL, NULL) == MANGROVE_OK);
    CHECK(mangrove_heap_sync(heap) == MANGROVE_OK);

    CHECK(mangrove_transaction_nowait(other, count, NULL, NULL, &of_other) == MANGROVE_OK);
    CHECK(mangrove_heap_wait(heap, of_other) == MANGROVE_ERR_INVALID_ARGUMENT);
    CHECK(strstr(mangrove_last_error(), "another heap") != NULL);
    CHECK(mangrove_heap_is_durable(heap, of_other, &durable) == MANGROVE_ERR_INVALID_ARGUMENT && !durable);
    CHECK(mangrove_heap_wait(NULL, ticket) == MANGROVE_ERR_INVALID_ARGUMENT);
    CHECK(mangrove_heap_wait(other, of_other) == MANGROVE_OK);

    CHECK(mangrove_heap_close(other) == MANGROVE_OK);
    CHECK(mangrove_heap_close(heap) == MANGROVE_OK);
    heap = open_heap(path);
    CHECK(mangrove_transaction_read(heap, value_of, &value, NULL) == MANGROVE_OK && value == COUNT + 1);
    CHECK(mangrove_heap_wait(heap, ticket) == MANGROVE_ERR_INVALID_ARGUMENT);
    CHECK(mangrove_heap_close(heap) == MANGROVE_OK);
    return 0;
}
