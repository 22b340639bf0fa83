/* A list in a heap: made, read, changed, undone, freed, and there again. */
#include "heap.h"

typedef struct node {
    uint64_t value;
    struct node *next;
    char name[22]; /* no padding: its bytes would be undefined, and stored */
    uint16_t small;
} node;

typedef struct {
    node *first;
    uint64_t count;
} list;

static int make(mangrove_tx *tx, void *arg) {
    list *at;
    CHECK(arg == NULL);
    CHECK(mangrove_tx_root(tx, "list", sizeof *at, (void **)&at) == MANGROVE_NOT_FOUND && at == NULL);
    TRY(mangrove_tx_alloc_zeroed(tx, sizeof *at, 0, (void **)&at));
    return mangrove_tx_set_root(tx, "list", at, sizeof *at);
}

static int push(mangrove_tx *tx, void *arg) {
    list *at;
    node *new, *first;
    uint64_t count;
    TRY(mangrove_tx_root(tx, "list", sizeof *at, (void **)&at));
    TRY(MANGROVE_TX_LOAD(tx, &at->first, &first));
    TRY(mangrove_tx_alloc(tx, sizeof *new, 64, (void **)&new));
    CHECK((uintptr_t)new % 64 == 0);
    TRY(MANGROVE_TX_STORE(tx, new, {.value = *(uint64_t *)arg, .next = first, .name = "a node", .small = 7}));
    TRY(MANGROVE_TX_STORE(tx, &at->first, new));
    TRY(mangrove_tx_load(tx, &at->count, &count));
    TRY(mangrove_tx_store(tx, &at->count, count + 1));
    /* Its own writes are there, the bytes beside them untouched. */
    TRY(mangrove_tx_write(tx, &new->name[2], "NOD", 3));
    {
        node now;
        TRY(MANGROVE_TX_LOAD(tx, new, &now));
        CHECK(now.value == *(uint64_t *)arg && now.next == first && now.small == 7);
        CHECK(strcmp(now.name, "a NODe") == 0);
    }
    return MANGROVE_OK;
}

/* The sum of all values, and whether the count is right. */
static int sum(mangrove_tx *tx, void *arg) {
    list all, *at;
    node now, *next;
    uint64_t total = 0, count = 0;
    TRY(mangrove_tx_root(tx, "list", sizeof *at, (void **)&at));
    TRY(MANGROVE_TX_LOAD(tx, at, &all));
    for (next = all.first; next != NULL; next = now.next, count++) {
        TRY(MANGROVE_TX_LOAD(tx, next, &now));
        total += now.value;
    }
    CHECK(count == all.count);
    *(uint64_t *)arg = total;
    return MANGROVE_OK;
}

static uint64_t total(mangrove_heap *heap) {
    uint64_t found;
    OK(mangrove_transaction_read(heap, sum, &found, NULL));
    return found;
}

static int pop_all(mangrove_tx *tx, void *arg) {
    list *at;
    node *first;
    size_t usable;
    (void)arg;
    TRY(mangrove_tx_root(tx, "list", sizeof *at, (void **)&at));
    for (;;) {
        TRY(MANGROVE_TX_LOAD(tx, &at->first, &first));
        if (first == NULL) break;
        TRY(mangrove_tx_usable_bytes(tx, first, &usable));
        CHECK(usable >= sizeof *first);
        TRY(MANGROVE_TX_STORE(tx, &at->first, NULL));
        {
            node now;
            TRY(MANGROVE_TX_LOAD(tx, first, &now));
            TRY(MANGROVE_TX_STORE(tx, &at->first, now.next));
        }
        TRY(mangrove_tx_free(tx, first));
        CHECK(mangrove_tx_usable_bytes(tx, first, &usable) == MANGROVE_NOT_FOUND && usable == 0);
    }
    TRY(mangrove_tx_free(tx, NULL));
    TRY(mangrove_tx_store(tx, &at->count, 0));
    TRY(mangrove_tx_free(tx, at));
    TRY(mangrove_tx_remove_root(tx, "list"));
    CHECK(mangrove_tx_remove_root(tx, "list") == MANGROVE_NOT_FOUND);
    return MANGROVE_OK;
}

/* Does everything, then aborts. */
static int change_and_abort(mangrove_tx *tx, void *arg) {
    uint64_t value = 1000;
    TRY(push(tx, &value));
    if (*(int *)arg < 0) TRY(pop_all(tx, NULL));
    return *(int *)arg;
}

static int zeros(mangrove_tx *tx, void *arg) {
    size_t len, align;
    (void)arg;
    for (len = 1; len < 20000; len = len * 3 + 1) {
        for (align = 0; align <= 4096; align = align ? align * 16 : 1) {
            unsigned char *at, bytes[20000];
            size_t i;
            memset(bytes, 255, sizeof bytes);
            TRY(mangrove_tx_alloc(tx, len, align, (void **)&at));
            TRY(mangrove_tx_write(tx, at, bytes, len));
            TRY(mangrove_tx_free(tx, at));
            TRY(mangrove_tx_alloc_zeroed(tx, len, align, (void **)&at));
            CHECK((uintptr_t)at % (align ? align : 1) == 0);
            TRY(mangrove_tx_read(tx, at, bytes, len));
            for (i = 0; i < len; i++) CHECK(bytes[i] == 0);
            TRY(mangrove_tx_free(tx, at));
        }
    }
    return MANGROVE_OK;
}

/* An empty string need not be anywhere. */
static int nothing(mangrove_tx *tx, void *arg) {
    char outside = 'x';
    (void)arg;
    TRY(mangrove_tx_read(tx, NULL, NULL, 0));
    TRY(mangrove_tx_read(tx, &outside, &outside, 0));
    TRY(mangrove_tx_write(tx, NULL, NULL, 0));
    TRY(mangrove_tx_write(tx, &outside, "y", 0));
    CHECK(outside == 'x');
    return MANGROVE_OK;
}

static uint64_t blocks_of(mangrove_heap *heap) {
    mangrove_heap_figures figures = {.size = sizeof figures};
    OK(mangrove_heap_stat(heap, &figures));
    CHECK(figures.size == sizeof figures && figures.capacity == 256 << 20);
    return figures.blocks;
}

int main(int argc, char **argv) {
    const char *path = below(scratch_of(argc, argv), "heap");
    mangrove_heap *heap = open_heap(path);
    mangrove_heap_figures figures = {.size = sizeof figures};
    void *base, *again;
    uint64_t value, blocks, expected = 0;
    int32_t answer = 99, aborts[] = {1, 5, 6, 77, -1, -3, INT32_MAX};
    size_t i;
    OK(mangrove_heap_stat(heap, &figures));
    CHECK(figures.created);
    blocks = figures.blocks;
    OK(mangrove_heap_base(heap, &base));
    OK(mangrove_transaction(heap, make, NULL, &answer));
    CHECK(answer == 0);
    for (value = 1; value <= 100; value++) {
        OK(mangrove_transaction(heap, push, &value, NULL));
        expected += value;
    }
    CHECK(total(heap) == expected);
    for (i = 0; i < sizeof aborts / sizeof *aborts; i++) {
        ANSWERS(MANGROVE_TX_ABORTED, mangrove_transaction(heap, change_and_abort, &aborts[i], &answer));
        CHECK(answer == aborts[i]);
        ANSWERS(MANGROVE_TX_ABORTED, mangrove_transaction_read(heap, change_and_abort, &aborts[i], NULL));
        CHECK(total(heap) == expected);
        CHECK(blocks_of(heap) == blocks + 101);
    }
    OK(mangrove_transaction(heap, zeros, NULL, NULL));
    OK(mangrove_transaction(heap, nothing, NULL, NULL));
    OK(mangrove_transaction_read(heap, nothing, NULL, NULL));
    OK(mangrove_heap_sync(heap));
    OK(mangrove_heap_compact(heap));
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));

    heap = open_heap(path);
    OK(mangrove_heap_stat(heap, &figures));
    CHECK(!figures.created);
    OK(mangrove_heap_base(heap, &again));
    CHECK(again == base);
    CHECK(total(heap) == expected);
    OK(mangrove_transaction(heap, pop_all, NULL, NULL));
    CHECK(blocks_of(heap) == blocks);
    OK(mangrove_heap_check(heap, NULL));
    OK(mangrove_heap_close(heap));
    return 0;
}
