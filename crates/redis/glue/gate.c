/* Replies wait for their batch. A client (a replica is one) that has output is parked with the number of the newest
 * batch on which the output may depend. The loop executes other commands meanwhile, and sends the output when that
 * batch is durable. Output can leave in four ways: the list of pending writes, `writeToClient` (write handlers), the
 * I/O threads, and the bus of a cluster (bus.c).
 *
 * Invariants:
 *   1. A client's output leaves only when every batch up to the newest one in which it can have been written is
 *      durable. Where output was added to a parked client, that is the newest batch there is: `mark` records it.
 *   2. A client that always has newer output (a replica, a subscriber under load) waits at most PARKED_US_MAX: then
 *      the loop itself waits for the medium. */
#include "glue.h"

/* In no header. */
extern int ProcessingEventsWhileBlocked;

#define PARKED_US_MAX 5000
/* Batches under way at most; more rounds join the open batch. */
#define FLYING_MAX 64

typedef struct {
    uint64_t client;    /* id; the descriptor may be another client's by now */
    uint64_t batch;     /* 0: not parked */
    uint64_t mark;
    monotime since;
    /* What reads of this round told a client that is not parked and had nothing else to be sent: until `read_mark`, and
     * it rests on `read_batch`. */
    uint64_t reader, read_round, read_mark, read_batch;
} place_t;

static place_t *places; /* by descriptor */
static int places_len;
static size_t parked;

/* Parked clients in the order of their batches. */
typedef struct {
    int fd;
    uint64_t client, batch;
} entry_t;
static entry_t *queue;
static uint64_t queue_head, queue_tail, queue_len;

/* Batches are numbered: `open_batch` collects, all up to `done_batch` are durable. */
static uint64_t done_batch;
static struct {
    uint64_t ticket, batch;
    monotime since;
} flying[FLYING_MAX];
static uint64_t fly_head, fly_tail;

/* Times that output was sent: what a place says of reads is of one. */
static uint64_t round_number;
static bool releasing;
/* The process is about to end: what a thread is given now it may not get to. */
static bool is_ending;
/* A reply of this round counts on what was executed before it being durable (WAITAOF), whatever the durability mode. */
static bool must_be_durable;
long long gate_waits, gate_held, gate_passed;

size_t gate_parked(void) { return parked; }

/* ---- the medium ---- */

/* For tests: a batch counts as durable only some time after its commit, or once a file is gone. A timer looks again. */
static bool may_hold_back(void) { return settings.hold_ms || settings.hold_file; }

static bool is_held_back(monotime since) {
    if (settings.hold_file && access(settings.hold_file, F_OK) == 0) return true;
    return settings.hold_ms && getMonotonicUs() - since < settings.hold_ms * 1000ULL;
}

static void land(void) {
    uint64_t durable = mangrove_app_durable(app);
    slow_durable(durable);
    while (fly_head != fly_tail && flying[fly_head % FLYING_MAX].ticket <= durable &&
           !is_held_back(flying[fly_head % FLYING_MAX].since))
        done_batch = flying[fly_head++ % FLYING_MAX].batch;
    if (fly_head == fly_tail) done_batch = open_batch - 1;
}

static void take_off(void) {
    commit();
    /* With interval durability replies do not wait. */
    if (!settings.interval_ms && (may_hold_back() || mangrove_app_durable(app) < last_ticket)) {
        flying[fly_tail % FLYING_MAX].ticket = last_ticket;
        flying[fly_tail % FLYING_MAX].since = getMonotonicUs();
        flying[fly_tail++ % FLYING_MAX].batch = open_batch;
    }
    open_batch++;
    land();
}

static void wait_for_all(void) {
    gate_waits++;
    /* With interval durability a wait returns at once. */
    mangrove_app_status status = must_be_durable ? mangrove_app_sync(app) : mangrove_app_wait(app, last_ticket);
    if (status != MANGROVE_APP_OK) die("the medium failed");
    must_be_durable = false;
    fly_head = fly_tail;
    done_batch = open_batch - 1;
}

/* The batch that output of this moment may rest on; 0 when all is durable. */
static uint64_t needed(void) {
    if (must_be_durable) return open_batch;
    if (settings.interval_ms || left_out("gate")) return 0;
    if (dirty) return open_batch;
    return fly_head != fly_tail ? open_batch - 1 : 0;
}

/* ---- parking ---- */

uint64_t gate_mark(client *c) {
    if (getClientType(c) == CLIENT_TYPE_REPLICA) return (uint64_t)server.primary_repl_offset;
    listNode *last = listLast(c->reply);
    clientReplyBlock *block = last ? listNodeValue(last) : NULL;
    return (uint64_t)c->bufpos + (block ? block->used : 0) + c->reply_bytes + ((uint64_t)listLength(c->reply) << 40);
}

static void places_for(int fd) {
    if (fd < places_len) return;
    places = zrealloc(places, sizeof *places * (fd + 1024));
    memset(places + places_len, 0, sizeof *places * (fd + 1024 - places_len));
    places_len = fd + 1024;
}

static place_t *place_of(client *c) {
    places_for(c->conn->fd);
    return places + c->conn->fd;
}

static void enqueue(int fd, uint64_t client, uint64_t batch) {
    if (queue_tail - queue_head == queue_len) {
        uint64_t old = queue_len, len = old ? old * 2 : 1024;
        entry_t *more = zmalloc(sizeof *more * len);
        for (uint64_t i = queue_head; i < queue_tail; i++) more[i % len] = queue[i % old];
        zfree(queue);
        queue = more;
        queue_len = len;
    }
    queue[queue_tail++ % queue_len] = (entry_t){fd, client, batch};
}

static void park(client *c, uint64_t batch) {
    place_t *p = place_of(c);
    if (p->client == c->id && p->batch) {
        if (p->batch == batch) {
            p->mark = gate_mark(c);
            return;
        }
    } else {
        if (!p->batch) parked++;
        p->since = getMonotonicUs();
    }
    p->client = c->id;
    p->batch = batch;
    p->mark = gate_mark(c);
    enqueue(c->conn->fd, c->id, batch);
}

void gate_read(client *c, uint64_t before, uint64_t batch) {
    place_t *p = place_of(c);
    uint64_t after = gate_mark(c);
    if (after == before) return;
    if (p->client == c->id && p->batch) {
        /* Its earlier output waits, and so does this. */
        if (p->mark != before) return;
        if (batch > p->batch)
            park(c, batch);
        else
            p->mark = after;
        return;
    }
    bool goes_on = p->reader == c->id && p->read_round == round_number && p->read_mark == before;
    if (!goes_on && before) return;
    p->read_batch = goes_on && p->read_batch > batch ? p->read_batch : batch;
    p->reader = c->id;
    p->read_round = round_number;
    p->read_mark = after;
}

/* The batch that the client's output rests on; `batch` if it is not that of reads. */
static uint64_t rests_on(client *c, const place_t *p, uint64_t batch) {
    if (p->reader != c->id || p->read_round != round_number || p->read_mark != gate_mark(c)) return batch;
    return p->read_batch < batch ? p->read_batch : batch;
}

/* Takes clients with output off the server's list: all whose output rests on a batch that is not durable, `batch` at
 * the latest, to wait for it; with 0 those that wait already, whatever else they are told. */
static void park_pending(uint64_t batch) {
    listIter li;
    listNode *ln;
    listRewind(server.clients_pending_write, &li);
    while ((ln = listNext(&li))) {
        client *c = listNodeValue(ln);
        if (!c->conn || c->conn->fd < 0) continue;
        place_t *p = place_of(c);
        bool waits = p->client == c->id && p->batch;
        if (!batch && !waits) continue;
        uint64_t rests = batch && !waits ? rests_on(c, p, batch) : batch;
        if (batch && rests <= done_batch) {
            gate_passed++;
            continue;
        }
        c->flag.pending_write = 0;
        listUnlinkNode(server.clients_pending_write, ln);
        if (batch) park(c, rests);
    }
}

/* Lets go what is durable. True: a client waits for too long already. */
static bool release(void) {
    bool late = false;
    /* What is parked again in here comes behind this. */
    uint64_t end = queue_tail;
    while (queue_head != end && queue[queue_head % queue_len].batch <= done_batch) {
        entry_t e = queue[queue_head++ % queue_len];
        place_t *p = places + e.fd;
        if (p->client != e.client || p->batch != e.batch) continue;
        client *c = lookupClientByID(e.client);
        uint64_t batch = needed();
        if (c && batch && gate_mark(c) != p->mark) {
            late |= getMonotonicUs() - p->since > PARKED_US_MAX;
            p->batch = batch;
            p->mark = gate_mark(c);
            enqueue(e.fd, e.client, batch);
            continue;
        }
        p->batch = 0;
        parked--;
        if (c) putClientInPendingWriteQueue(c);
    }
    bus_send(done_batch);
    return late;
}

/* ---- the doors ---- */

int __real_handleClientsWithPendingWrites(void);
static int let_go(void) {
    releasing = true;
    int processed = __real_handleClientsWithPendingWrites();
    releasing = false;
    round_number++;
    return processed;
}

/* A round within a round: a slow script, or a command that loads a file, lets the event loop run. Nothing is committed
 * then: that would tear the script, unless it has changed nothing yet. What a command is answered in such a round
 * (LOADING, BUSY) rests on no value and leaves at once. All else waits: what was answered before, and what the script
 * itself tells others (PUBLISH, keyspace events, MONITOR). */
static bool parked_inside;
static long long calls_before_script;

static bool round_is_inner(void) { return inside || server.in_exec || scriptIsRunning(); }

/* A commit in this inner round would tear a script or a transaction. */
static bool commit_would_tear(void) {
    return inside || server.in_exec || (scriptIsRunning() && tracked_calls != calls_before_script);
}

int __real_scriptPrepareForRun(scriptRunCtx *, client *, client *, const char *, uint64_t, int);
int __wrap_scriptPrepareForRun(scriptRunCtx *context, client *engine, client *caller, const char *name, uint64_t flags,
                               int read_only) {
    calls_before_script = tracked_calls;
    return __real_scriptPrepareForRun(context, engine, caller, name, flags, read_only);
}

int __real_processCommand(client *c);
int __wrap_processCommand(client *c) {
    /* While a replica loads into other tables, reads are answered, too. */
    bool rests_on_nothing = ProcessingEventsWhileBlocked && app && !starting && round_is_inner() &&
                            !server.async_loading && c->conn && c->conn->fd >= 0;
    uint64_t before = rests_on_nothing ? gate_mark(c) : 0;
    int answer = __real_processCommand(c);
    /* After an error there is no client. */
    if (rests_on_nothing && answer == C_OK && c->conn && c->conn->fd >= 0) gate_read(c, before, 0);
    return answer;
}

void gate_hold_until_durable(void) { must_be_durable = settings.interval_ms && !left_out("gate"); }

static void make_durable(void) {
    if (!must_be_durable) return;
    /* Readers look at the number of the batch, which output may wait for though nothing came into it. */
    sections_close();
    if (dirty)
        take_off();
    else
        open_batch++;
    wait_for_all();
}

static int inner_round(void) {
    if (commit_would_tear()) {
        park_pending(left_out("inner") ? 0 : open_batch);
        parked_inside = true;
        return let_go();
    }
    /* What FUNCTION LOAD and its like have changed, too, is in the batch that their replies wait for. */
    collect();
    make_durable();
    /* The client that is to stop the script may be one that was answered before it began. */
    if (dirty) take_off();
    land();
    if (fly_head != fly_tail) wait_for_all();
    bus_rests_on(0);
    release();
    /* What the collecting tracked was not the script's. */
    calls_before_script = tracked_calls;
    return let_go();
}

int __wrap_handleClientsWithPendingWrites(void) {
    HOOKED(PENDING);
    if (!app || starting) return __real_handleClientsWithPendingWrites();
    if (round_is_inner()) return inner_round();
    /* Readers look at the number of the batch. */
    if (parked_inside) sections_close();
    collect();
    if (parked_inside && !dirty) open_batch++; /* nothing came into the batch that they wait for */
    parked_inside = false;
    land();
    if (dirty && fly_tail - fly_head < FLYING_MAX - 1) {
        take_off();
        if (settings.wait_in_loop && fly_head != fly_tail) wait_for_all();
    }
    make_durable();
    uint64_t batch = needed();
    bus_rests_on(batch);
    if (batch) park_pending(batch);
    if (release()) {
        if (dirty) take_off();
        wait_for_all();
        release();
    }
    space_give_back();
    /* Within a round this is not: a load, too, lets the event loop run. */
    if (!dirty && !importing && !server.loading && !ProcessingEventsWhileBlocked) sections_open();
    return let_go();
}

/* Write handlers come here, and flushReplicasOutputBuffers. Weak in networking.o, whose calls these are. */
int __real_writeToClient(client *c);
int writeToClient(client *c) {
    HOOKED(WRITE);
    if (app && !releasing && !starting && c->conn && c->conn->fd >= 0 && !left_out("writeToClient")) {
        /* Functions and replication write to the state at the end of a batch, which may be what this tells. */
        if (!inside && !server.in_exec && !scriptIsRunning()) collect();
        place_t *p = place_of(c);
        /* In an inner round it may tell of what the glue has not looked for yet, or, with interval durability, of what
         * is not committed. */
        bool is_torn = ProcessingEventsWhileBlocked && commit_would_tear() && !left_out("inner") && !left_out("gate");
        uint64_t batch = is_torn ? open_batch : needed();
        bool waits = p->client == c->id && p->batch;
        if (batch || waits || (c->flag.pending_write && !left_out("gate"))) {
            if (connHasWriteHandler(c->conn)) connSetWriteHandler(c->conn, NULL);
            /* In the list of pending writes it comes to the round's end by itself. */
            if (!c->flag.pending_write && !waits) park(c, batch);
            parked_inside |= is_torn;
            gate_held++;
            return C_OK;
        }
        p->reader = 0;
    }
    return __real_writeToClient(c);
}

/* An I/O thread that is done with a client would be given its newer output at once. */
int __real_trySendWriteToIOThreads(client *c);
int __wrap_trySendWriteToIOThreads(client *c) {
    HOOKED(IO_WRITE);
    if (app && (!releasing || is_ending) && !left_out("gate") && !left_out("io-threads")) return C_ERR;
    int answer = __real_trySendWriteToIOThreads(c);
    /* The thread has no room for more jobs, and reads the client's next request. The server would send nothing now and
     * forget the client, whose output never leaves then: it adds a client to its list with the first output only. */
    if (app && releasing && answer != C_OK && c->io_read_state != CLIENT_IDLE && clientHasPendingReplies(c))
        putClientInPendingWriteQueue(c);
    return answer;
}

/* ---- wake-up and end ---- */

static void something_durable(aeEventLoop *loop, int fd, void *data, int mask) {
    UNUSED(loop);
    UNUSED(data);
    UNUSED(mask);
    uint64_t n;
    if (read(fd, &n, sizeof n) < 0) return;
    /* The round that follows looks at what is durable; a medium that failed makes nothing durable any more. */
    mangrove_app_counters now = {0};
    size_t up_to_failed = offsetof(mangrove_app_counters, failed) + sizeof now.failed;
    if (mangrove_app_stat(app, &now, up_to_failed) != MANGROVE_APP_OK || !now.failed) return;
    mangrove_app_sync(app); /* fails, and says why */
    die("the medium failed");
}

static long long look_again(aeEventLoop *loop, long long id, void *data) {
    UNUSED(loop);
    UNUSED(id);
    UNUSED(data);
    return 1; /* ms: the round that follows looks at what is durable */
}

void gate_start(void) {
    int fd = mangrove_app_notify_fd(app);
    if (fd < 0 || aeCreateFileEvent(server.el, fd, AE_READABLE, something_durable, NULL) == AE_ERR)
        die("the loop cannot be told what is durable");
    /* Not with the first client that waits: `used_memory` would grow by 64 KB in the middle of something small. */
    places_for(0);
    done_batch = open_batch - 1;
    if (may_hold_back() && aeCreateTimeEvent(server.el, 1, (aeTimeProc *)look_again, NULL, NULL) == AE_ERR)
        die("the loop has no timer");
}

/* A client whose next request a thread has read is not written to until that is executed. No more is. */
static void take_back_from_threads(void) {
    listIter li;
    listNode *ln;
    drainIOThreadsQueue();
    processIOThreadsWriteDone();
    listRewind(server.clients_pending_write, &li);
    while ((ln = listNext(&li))) ((client *)listNodeValue(ln))->io_read_state = CLIENT_IDLE;
}

/* Before the end of the process: everything that was executed becomes durable, and every reply leaves as far as its
 * socket takes it. If a script is cut off, what was committed before becomes durable. */
void gate_flush(void) {
    if (!app || inside || starting) return;
    bool is_cut_off = server.in_exec || scriptIsRunning();
    if (!is_cut_off) {
        collect();
        if (dirty) take_off();
    }
    if (mangrove_app_sync(app) != MANGROVE_APP_OK) die("the medium failed");
    if (is_cut_off) return;
    must_be_durable = false;
    fly_head = fly_tail;
    done_batch = open_batch - 1;
    bus_rests_on(0);
    release();
    /* A client whose output a thread is writing may have newer output. */
    take_back_from_threads();
    is_ending = true;
    let_go();
    is_ending = false;
}
