/*
 * A state whose blocks come and go, and that gives space back all the time, to be killed anywhere.
 *
 *     compacting STATE run|check
 *
 * `run` prints the number of each command that is durable. `check` prints how many commands the state has, and fails
 * unless it holds exactly what they left.
 */
#include "check.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 300
/* Blocks that one command replaces or frees. */
#define CHANGES 40

typedef struct {
    uint64_t commands;
    /* By which command a slot was filled; 0: it is empty. */
    uint64_t filled[SLOTS];
    unsigned char *blocks[SLOTS];
} table;

static mangrove_app *app;

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static size_t bytes_of(uint64_t command, unsigned slot) {
    uint64_t random = mix(command * SLOTS + slot);
    return random % 4 == 0 ? 1 + random % 60000 : 1 + random % 3000;
}

/* What command number `n` does to its k-th slot. Every eighth frees most of what there is. */
static unsigned slot_of(uint64_t n, unsigned k, int *fills) {
    uint64_t random = mix(n * 1000 + k + 1);
    *fills = n % 8 != 0 && random % 3 != 0;
    return n % 8 == 0 ? k : (unsigned)(random >> 8) % SLOTS;
}

static unsigned changes_of(uint64_t n) {
    return n % 8 == 0 ? SLOTS - 20 : CHANGES;
}

static void process(void *ctx) {
    (void)ctx;
    table *t = *mangrove_app_root(app, 0);
    uint64_t n = t->commands + 1;
    for (unsigned k = 0; k < changes_of(n); k++) {
        int fills;
        unsigned slot = slot_of(n, k, &fills);
        free(t->blocks[slot]);
        t->blocks[slot] = NULL;
        t->filled[slot] = 0;
        if (!fills) continue;
        size_t bytes = bytes_of(n, slot);
        /* Half of them are asked for as zeros, and some of these bytes are never written. */
        t->blocks[slot] = slot % 2 == 0 ? calloc(1, bytes) : malloc(bytes);
        t->filled[slot] = n;
        memset(t->blocks[slot], (int)(n % 251) + 1, slot % 2 == 0 ? bytes / 2 : bytes);
    }
    t->commands = n;
}

static int init_state(void *user) {
    (void)user;
    *mangrove_app_root(app, 0) = calloc(1, sizeof(table));
    return 0;
}

static void check_all(void) {
    const table *t = *mangrove_app_root(app, 0);
    static uint64_t filled[SLOTS];
    for (uint64_t n = 1; n <= t->commands; n++) {
        for (unsigned k = 0; k < changes_of(n); k++) {
            int fills;
            unsigned slot = slot_of(n, k, &fills);
            filled[slot] = fills ? n : 0;
        }
    }
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        CHECK(t->filled[slot] == filled[slot]);
        CHECK((t->blocks[slot] != NULL) == (filled[slot] != 0));
        if (filled[slot] == 0) continue;
        size_t bytes = bytes_of(filled[slot], slot), written = slot % 2 == 0 ? bytes / 2 : bytes;
        for (size_t at = 0; at < bytes; at++)
            CHECK(t->blocks[slot][at] == (at < written ? filled[slot] % 251 + 1 : 0));
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process, .init_state = init_state};
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    check_all();
    if (strcmp(argv[2], "check") == 0) {
        printf("%llu\n", (unsigned long long)((const table *)*mangrove_app_root(app, 0))->commands);
        OK(mangrove_app_close(app));
        return 0;
    }
    mangrove_app_client *client;
    OK(mangrove_app_client_new(app, &client));
    for (;;) {
        OK(mangrove_app_cmd(client, NULL));
        uint64_t done = ((const table *)*mangrove_app_root(app, 0))->commands;
        printf("%llu\n", (unsigned long long)done);
        fflush(stdout);
        if (done % 4 == 0) OK(mangrove_app_compact(app));
    }
}
