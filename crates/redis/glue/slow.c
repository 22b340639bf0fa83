/* Slow batches: a round of the event loop whose batch took long from its commit to durability is logged, with what
 * was in it and what took the time. With interval durability replies do not wait for the medium, so its time does not
 * count. The launcher sets the limit (`--slow-batch-ms`). */
#include "glue.h"

/* Batches under way at most; more are not watched. */
#define WATCHED_MAX 128

typedef struct {
    uint64_t ticket;
    monotime committed;
    long long commands;
    unsigned long long bytes;
    long long run_us, commit_us;
} unit_t;

static unit_t watched[WATCHED_MAX];
static uint64_t head, tail;
static monotime round_began, commit_began;
static long long calls_before;
static uint64_t bytes_before;
long long slow_units;

static uint64_t logged_bytes(void) {
    mangrove_app_counters c = {0};
    /* Not the fields behind it, which cost more. */
    mangrove_app_stat(app, &c, offsetof(mangrove_app_counters, bytes) + sizeof c.bytes);
    return c.bytes;
}

/* The round's first tracked call. */
void slow_round(void) {
    if (settings.slow_ms) round_began = getMonotonicUs();
}

void slow_commit(void) {
    if (settings.slow_ms) commit_began = getMonotonicUs();
}

static void report(const unit_t *u, long long medium_us) {
    slow_units++;
    SAY(LL_WARNING,
        "mangrove: slow batch %llu: %lld commands, %llu bytes logged; %.1f ms for the commands, %.1f ms for the commit, "
        "%.1f ms until it was durable", (unsigned long long)u->ticket, u->commands, u->bytes, u->run_us / 1000.0,
        u->commit_us / 1000.0, medium_us / 1000.0);
}

/* The batch has its ticket; `commands` is how many there were since the start. */
void slow_committed(uint64_t ticket, long long commands) {
    if (!settings.slow_ms) return;
    uint64_t bytes = logged_bytes();
    monotime now = getMonotonicUs();
    unit_t unit = {.ticket = ticket,
                   .committed = now,
                   .commands = commands - calls_before,
                   .bytes = bytes - bytes_before,
                   .run_us = (long long)(commit_began - round_began),
                   .commit_us = (long long)(now - commit_began)};
    calls_before = commands;
    bytes_before = bytes;
    if (settings.interval_ms || mangrove_app_durable(app) >= ticket) {
        if (unit.commit_us >= settings.slow_ms * 1000LL) report(&unit, 0);
    } else if (tail - head < WATCHED_MAX) {
        watched[tail++ % WATCHED_MAX] = unit;
    }
}

/* All batches up to this ticket are durable. */
void slow_durable(uint64_t durable) {
    if (head == tail || watched[head % WATCHED_MAX].ticket > durable) return;
    monotime now = getMonotonicUs();
    while (head != tail && watched[head % WATCHED_MAX].ticket <= durable) {
        const unit_t *u = &watched[head++ % WATCHED_MAX];
        long long medium_us = (long long)(now - u->committed);
        if (u->commit_us + medium_us >= settings.slow_ms * 1000LL) report(u, medium_us);
    }
}
