/* One round of the event loop is one batch: tracked calls collect in it, and its end commits them as one atomic
 * group. So a transaction, a script, and everything that they change is atomic without further work. */
#include "glue.h"

/* What `before_commit` takes. */
#define BEFORE_COMMIT_MAX 4

static bool batch_is_open, committing;

int starting = 1, inside, dirty;
uint64_t last_ticket, open_batch = 1;
long long tracked_calls, commits;

void track(void (*f)(void *), void *ctx) {
    if (!app || inside) {
        f(ctx);
        return;
    }
    sections_close();
    if (!dirty) slow_round();
    inside = dirty = 1;
    batch_is_open = true;
    tracked_calls++;
    policy_inside();
    if (mangrove_app_batch_call(app, f, ctx) != MANGROVE_APP_OK) die("a command could not be tracked");
    policy_outside();
    inside = 0;
    /* The injected fault: a transaction is not one batch then. Its reply waits for the last of its calls. */
    if (left_out("unit") && !starting && !committing) {
        commit();
        dirty = 1;
    }
}

static void (*before[BEFORE_COMMIT_MAX])(void);
static int before_len;

void before_commit(void (*f)(void)) {
    serverAssert(before_len < BEFORE_COMMIT_MAX);
    before[before_len++] = f;
}

void collect(void) {
    for (int j = 0; j < before_len; j++) before[j]();
}

static void put_databases(void *unused) {
    UNUSED(unused);
    for (int j = 0; j < server.dbnum; j++) {
        root->db[j].keys = server.db[j].keys;
        root->db[j].expires = server.db[j].expires;
    }
}

/* SWAPDB, FLUSHALL ASYNC and a replica's loading exchange tables. */
static bool databases_moved(void) {
    for (int j = 0; j < server.dbnum; j++)
        if (root->db[j].keys != server.db[j].keys || root->db[j].expires != server.db[j].expires) return true;
    return false;
}

void commit(void) {
    if (!app || inside) return;
    committing = true;
    collect();
    if (dirty && databases_moved()) track(put_databases, NULL);
    committing = false;
    dirty = 0;
    if (!batch_is_open) return;
    batch_is_open = false;
    commits++;
    slow_commit();
    if (mangrove_app_batch_commit(app, &last_ticket) != MANGROVE_APP_OK) die("a batch could not be committed");
    slow_committed(last_ticket, tracked_calls);
}

void settle(void) {
    if (!app || inside || server.in_exec || scriptIsRunning()) return;
    collect();
    bool has_batch = dirty;
    commit();
    /* With interval durability a wait would return at once. */
    if (mangrove_app_sync(app) != MANGROVE_APP_OK) die("the medium failed");
    /* Output that waits for this batch would else wait for the next one, too. */
    if (has_batch) open_batch++;
}
