/*
 * The same steps as `mangrove-stress space`, as a durable application: a table of blocks from malloc.
 *
 *     app STATE whole|rest|open RECORDS VALUE
 */
#include <mangrove_app.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steps.h"

/* Records that one command changes. */
#define COMMAND 500

typedef struct {
    uint64_t records;
    size_t value_len;
    unsigned char *values[];
} table;

typedef struct {
    uint64_t first, last, step;
    bool deletes;
} command;

static mangrove_app *app;
static mangrove_app_client *client;
static uint64_t records;
static size_t value_len;

static void check(mangrove_app_status status) {
    if (status == MANGROVE_APP_OK) return;
    fprintf(stderr, "%s\n", mangrove_app_last_error());
    exit(3);
}

static void process(void *ctx) {
    const command *c = ctx;
    table *t = *mangrove_app_root(app, 0);
    for (uint64_t n = c->first; n < c->last; n += c->step) {
        if (!c->deletes) {
            t->values[n] = malloc(t->value_len);
            memset(t->values[n], (int)(n % 251) + 1, t->value_len);
        } else if (n % ONE_STAYS != 0) {
            free(t->values[n]);
            t->values[n] = NULL;
        }
    }
}

static int init_state(void *user) {
    (void)user;
    table *t = calloc(1, sizeof *t + records * sizeof t->values[0]);
    t->records = records;
    t->value_len = value_len;
    *mangrove_app_root(app, 0) = t;
    return 0;
}

static void run(uint64_t step, bool deletes) {
    for (uint64_t n = 0; n < records; n += COMMAND) {
        uint64_t last = n + COMMAND < records ? n + COMMAND : records;
        command c = {.first = n, .last = last, .step = step, .deletes = deletes};
        check(mangrove_app_cmd(client, &c));
    }
    check(mangrove_app_checkpoint(app));
}

static void read_all(void) {
    const table *t = *mangrove_app_root(app, 0);
    uint64_t found = 0;
    for (uint64_t n = 0; n < t->records; n++)
        if (t->values[n] != NULL && t->values[n][t->value_len - 1] == (n % 251) + 1) found++;
    if (found == (records + ONE_STAYS - 1) / ONE_STAYS) return;
    fprintf(stderr, "%llu records are there\n", (unsigned long long)found);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    records = strtoull(argv[3], NULL, 10);
    value_len = strtoull(argv[4], NULL, 10);
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process, .init_state = init_state};
    check(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    check(mangrove_app_client_new(app, &client));
    if (strcmp(argv[2], "whole") == 0) {
        run(1, false);
        pause_at("filled");
        run(1, true);
        pause_at("nine tenths deleted");
        check(mangrove_app_compact(app));
        pause_at("compacted");
    } else if (strcmp(argv[2], "rest") == 0) {
        run(ONE_STAYS, false);
        pause_at("a fresh load of the rest");
    } else {
        read_all();
        pause_at("opened again");
    }
    mangrove_app_client_free(client);
    check(mangrove_app_close(app));
    return 0;
}
