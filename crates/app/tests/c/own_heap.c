/*
 * A program with an allocator of its own over mmap, kept as it is: its memory and its variables are persistent when
 * it is called inside commands.
 *
 *   own_heap STATE COUNT    makes COUNT more commands and checks everything
 */
#include "check.h"
#include <stdint.h>
#include <sys/mman.h>

#define CHUNK ((size_t)1 << 20)

typedef struct cell {
    struct cell *next;
    size_t len;
    unsigned char bytes[];
} cell;

/* The allocator: chunks aligned to their size by mapping too much and unmapping the rest, and free lists. */
static struct {
    char *chunk, *end;
    size_t chunks;
    cell *free_cells[32];
} heap;

static void new_chunk(void) {
    char *room = mmap(NULL, 2 * CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED);
    char *at = (char *)(((uintptr_t)room + CHUNK - 1) & ~(CHUNK - 1));
    if (at > room) CHECK(munmap(room, (size_t)(at - room)) == 0);
    if (room + CHUNK > at) CHECK(munmap(at + CHUNK, (size_t)(room + CHUNK - at)) == 0);
    CHECK(mprotect(at, CHUNK, PROT_READ | PROT_WRITE) == 0);
    heap.chunk = at;
    heap.end = at + CHUNK;
    heap.chunks++;
}

static cell *take(size_t len) {
    size_t class = len / 64;
    cell *c = heap.free_cells[class];
    if (c != NULL) {
        heap.free_cells[class] = c->next;
    } else {
        size_t bytes = sizeof(cell) + 64 * (class + 1);
        if (heap.chunk == NULL || heap.chunk + bytes > heap.end) new_chunk();
        c = (cell *)heap.chunk;
        heap.chunk += bytes;
    }
    c->len = len;
    return c;
}

static void give(cell *c) {
    c->next = heap.free_cells[c->len / 64];
    heap.free_cells[c->len / 64] = c;
}

static cell *table[5000];
static uint64_t count;

static void command(void *ctx) {
    (void)ctx;
    for (int i = 0; i < 50; i++) {
        uint64_t r = (count * 50 + (uint64_t)i) * 0x9E3779B97F4A7C15u;
        r ^= r >> 29;
        cell **slot = &table[r % 5000];
        if (*slot != NULL) give(*slot);
        size_t len = (r >> 20) % 2000;
        *slot = take(len);
        memset((*slot)->bytes, (int)(r % 5000 % 251), len);
    }
    count++;
}

static void check(void *ctx) {
    (void)ctx;
    for (size_t i = 0; i < 5000; i++) {
        if (table[i] == NULL) continue;
        for (size_t j = 0; j < table[i]->len; j++) CHECK(table[i]->bytes[j] == i % 251);
    }
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = command};
    mangrove_app *app;
    mangrove_app_client *client;
    CHECK(argc == 3);
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    OK(mangrove_app_read(client, check, NULL));
    for (long n = strtol(argv[2], NULL, 10); n > 0; n--) OK(mangrove_app_cmd(client, NULL));
    OK(mangrove_app_read(client, check, NULL));
    printf("%llu %zu\n", (unsigned long long)count, heap.chunks);
    fflush(stdout);
    _Exit(0); /* without closing */
}
