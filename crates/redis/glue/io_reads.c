/* Reads on I/O threads. With `io-threads` above 1 a thread of the server's own reads and parses a client's request; if
 * that is a plain read, the same thread executes it in a read section (sections.c) and keeps the answer. When the main
 * thread comes to the client it takes the command through all of the server's checks and statistics as ever (ACL,
 * MULTI, pauses, MONITOR, command log), but where it would call the command's function it adds the answer that is
 * there. A read that a thread leaves alone, and an answer that must not be used, cost nothing but time: the main thread
 * executes the command.
 *
 * Invariants:
 *   1. An answer is that of a state between two batches, at an instant after the request came and before its reply is
 *      made. It is used once, for the very command that the thread has parsed: `io_parsed_cmd` is set for that one
 *      only.
 *   2. An answer rests on the newest batch that had changed its keys when it was made (changes.c), and leaves with it.
 *   3. The thread writes to nothing that another thread reads, but for the note of when a value was used: the command's
 *      function replies to a client of the thread's own, finds keys by `look_up`, and every error, expired key or
 *      compressed list ends in no answer. */
#include "glue.h"
#include "memory_prefetch.h"
#include "quicklist.h"

/* Answers up to this length need no memory of their own. */
#define SHORT_BYTES 160
/* Clients by descriptor: so many pages of so many. */
#define PAGES_MAX 4096
#define PAGE_LEN 256

typedef struct {
    uint64_t client;            /* whose request may be answered; 0: nobody's */
    struct serverCommand *cmd;  /* what was executed; NULL: there is no answer */
    uint64_t batch;             /* the answer rests on it */
    int hits, misses;
    size_t len;
    char *text;                 /* of more than SHORT_BYTES */
    char short_text[SHORT_BYTES];
} answer_t;

/* Made by the main thread before it hands a client over, and never moved. */
static answer_t *pages[PAGES_MAX];

typedef struct {
    _Alignas(128) client *stage; /* replies of the thread's commands go to it */
    client *parsed;              /* whose request the thread is at */
    mstime_t now;
    int lookups, hits, misses;
    bool gives_up;
} reader_t;
static reader_t readers[IO_THREADS_MAX_NUM];

static __thread reader_t *self;    /* of an I/O thread that reads a request */
static __thread reader_t *reading; /* while it executes one */

/* By command number; NULL: not for threads. */
static serverCommandProc *elsewhere[COMMANDS_MAX];
static bool is_on;
/* The answer for the command that the main thread is about to execute; without `cmd` it is used up. */
static answer_t *at_hand;
long long io_reads_given, io_reads_dropped;

static answer_t *answer_of(const client *c) {
    int fd = c->conn ? c->conn->fd : -1;
    answer_t *page = fd >= 0 && fd < PAGES_MAX * PAGE_LEN ? pages[fd / PAGE_LEN] : NULL;
    return page ? page + fd % PAGE_LEN : NULL;
}

/* ---- on the I/O thread ---- */

/* As a lookup's note of the main thread. Type and encoding lie in the same word, which the main thread may write too,
 * and neither changes while a section is open. */
static __attribute__((noinline)) void io_read_touch(robj *value) {
    unsigned use = server.maxmemory_policy & MAXMEMORY_FLAG_LFU
                       ? (unsigned)(LFUGetTimeInMinutes() << 8 | LFULogIncr(LFUDecrAndReturn(value)))
                       : LRU_CLOCK();
    uint32_t *word = (uint32_t *)value, old = __atomic_load_n(word, __ATOMIC_RELAXED);
    uint32_t noted = (old & 0xff) | use << 8;
    /* If somebody else notes a use at this moment, that is as good. */
    if (noted != old) __atomic_compare_exchange_n(word, &old, noted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static robj *look_up(serverDb *db, const robj *key, bool touches) {
    reader_t *r = reading;
    void *found = NULL;
    r->lookups++;
    if (!kvstoreHashtableFind(db->keys, 0, key->ptr, &found)) {
        r->misses++;
        return NULL;
    }
    robj *value = found;
    long long expire = objectGetExpire(value);
    if ((expire != -1 && r->now >= expire) ||
        (value->encoding == OBJ_ENCODING_QUICKLIST && ((quicklist *)value->ptr)->compress)) {
        r->gives_up = true;
        return NULL;
    }
    if (touches && !r->parsed->flag.no_touch && !hasActiveChildProcess()) io_read_touch(value);
    r->hits++;
    return value;
}

robj *__real_lookupKeyRead(serverDb *db, robj *key);
robj *__wrap_lookupKeyRead(serverDb *db, robj *key) {
    return reading ? look_up(db, key, true) : __real_lookupKeyRead(db, key);
}
robj *__real_lookupKeyReadOrReply(client *c, robj *key, robj *reply);
robj *__wrap_lookupKeyReadOrReply(client *c, robj *key, robj *reply) {
    if (!reading) return __real_lookupKeyReadOrReply(c, key, reply);
    robj *value = look_up(c->db, key, true);
    if (!value) addReplyOrErrorObject(c, reply);
    return value;
}

/* In the server these two are in the file of the lookups, and go by its clock, which stands while it is idle. */
static void exists(client *c) {
    long long count = 0;
    for (int j = 1; j < c->argc; j++) count += look_up(c->db, c->argv[j], false) != NULL;
    addReplyLongLong(c, count);
}

static void ttl(client *c) {
    const robj *value = look_up(c->db, c->argv[1], false);
    long long expire = value ? objectGetExpire(value) : -1;
    addReplyLongLong(c, !value ? -2 : expire == -1 ? -1 : (expire - reading->now + 500) / 1000);
}

static const struct {
    const char *name;
    serverCommandProc *proc;
    int arguments; /* the least that it takes, its name included */
} commands[] = {{"get", getCommand, 2},     {"mget", mgetCommand, 2},     {"strlen", strlenCommand, 2},
                {"exists", exists, 2},      {"ttl", ttl, 2},              {"hget", hgetCommand, 3},
                {"hmget", hmgetCommand, 3}, {"hgetall", hgetallCommand, 2}, {"lrange", lrangeCommand, 4},
                {"zscore", zscoreCommand, 3}, {"zrange", zrangeCommand, 4}, {"sismember", sismemberCommand, 3}};
#define COMMANDS ((int)(sizeof commands / sizeof *commands))

static void leave_stage(client *stage) {
    stage->bufpos = 0;
    if (listLength(stage->reply)) listEmpty(stage->reply);
    stage->reply_bytes = 0;
    if (stage->deferred_reply_errors) listRelease(stage->deferred_reply_errors);
    stage->deferred_reply_errors = NULL;
}

static void keep_text(answer_t *a, client *stage) {
    listIter li;
    listNode *ln;
    a->len = (size_t)stage->bufpos;
    listRewind(stage->reply, &li);
    while ((ln = listNext(&li))) a->len += ((clientReplyBlock *)listNodeValue(ln))->used;
    char *to = a->text = a->len > SHORT_BYTES ? zmalloc(a->len) : NULL;
    if (!to) to = a->short_text;
    memcpy(to, stage->buf, (size_t)stage->bufpos);
    to += stage->bufpos;
    listRewind(stage->reply, &li);
    while ((ln = listNext(&li))) {
        const clientReplyBlock *block = listNodeValue(ln);
        memcpy(to, block->buf, block->used);
        to += block->used;
    }
}

static void execute(reader_t *r, serverCommandProc *proc) {
    r->lookups = r->hits = r->misses = 0;
    r->gives_up = false;
    r->now = mstime();
    reading = r;
    proc(r->stage);
    reading = NULL;
}

static void answer(reader_t *r, struct serverCommand *cmd, robj **argv, int argc) {
    answer_t *a = answer_of(r->parsed);
    serverCommandProc *proc = cmd->id >= 0 && cmd->id < COMMANDS_MAX ? elsewhere[cmd->id] : NULL;
    if (!proc || !a || a->client != r->parsed->id || !commandCheckArity(cmd, argc, NULL)) return;
    client *stage = r->stage;
    stage->db = r->parsed->db;
    stage->resp = r->parsed->resp;
    stage->cmd = stage->lastcmd = stage->realcmd = cmd;
    stage->argv = argv;
    stage->argc = argc;
    uint64_t batch = 0;
    if (!section_enter((int)(r - readers))) return;
    execute(r, proc);
    bool is_good = !r->gives_up && !stage->deferred_reply_errors && changes_of_command(stage, &batch);
    section_leave((int)(r - readers));
    if (is_good) {
        keep_text(a, stage);
        a->batch = left_out("io-batch") ? 0 : batch;
        a->hits = r->hits;
        a->misses = r->misses;
        a->cmd = cmd;
    }
    stage->argv = NULL;
    stage->argc = 0;
    leave_stage(stage);
}

void __real_ioThreadReadQueryFromClient(void *data);
void __wrap_ioThreadReadQueryFromClient(void *data) {
    client *c = data;
    /* Before the call, which ends with giving the client back to the main thread. */
    self = is_on ? readers + c->cur_tid : NULL;
    if (self) self->parsed = c;
    __real_ioThreadReadQueryFromClient(data);
    self = NULL;
}

/* The last thing but one that a thread does with a request: the client is still its own. */
struct serverCommand *__real_lookupCommand(robj **argv, int argc);
struct serverCommand *__wrap_lookupCommand(robj **argv, int argc) {
    struct serverCommand *cmd = __real_lookupCommand(argv, argc);
    if (self && cmd) answer(self, cmd, argv, argc);
    return cmd;
}

/* ---- on the main thread ---- */

static void forget(answer_t *a) {
    zfree(a->text);
    a->text = NULL;
    a->cmd = NULL;
}

/* Whether threads may look at the client's next request. What changes until its reply is made is looked at again. */
static bool may_be_answered(client *c) {
    return !starting && !importing && !server.loading && !server.cluster_enabled && !c->flag.multi &&
           !c->flag.tracking && getClientType(c) == CLIENT_TYPE_NORMAL;
}

int __real_trySendReadToIOThreads(client *c);
int __wrap_trySendReadToIOThreads(client *c) {
    /* A client that is not idle is at a thread already. */
    if (is_on && c->io_read_state == CLIENT_IDLE && c->conn->fd >= 0 && c->conn->fd < PAGES_MAX * PAGE_LEN) {
        answer_t **page = pages + c->conn->fd / PAGE_LEN;
        if (!*page) *page = zcalloc(sizeof **page * PAGE_LEN);
        answer_t *a = answer_of(c);
        forget(a);
        a->client = may_be_answered(c) ? c->id : 0;
    }
    return __real_trySendReadToIOThreads(c);
}

int __real_addCommandToBatchAndProcessIfFull(client *c);
int __wrap_addCommandToBatchAndProcessIfFull(client *c) {
    answer_t *a = is_on ? answer_of(c) : NULL;
    HOOKED(IO_READ);
    if (!a || !a->cmd || a->client != c->id || !c->flag.pending_command)
        return __real_addCommandToBatchAndProcessIfFull(c);
    /* Its keys need not be prefetched with those of others. The descriptor may be another client's after the call. */
    answer_t taken = *a, *outer = at_hand;
    a->text = NULL;
    a->cmd = NULL;
    at_hand = &taken;
    int alive = processPendingCommandAndInputBuffer(c);
    at_hand = outer;
    if (taken.cmd) io_reads_dropped++;
    forget(&taken);
    if (alive == C_OK) beforeNextClient(c);
    return C_OK;
}

bool io_reads_answer(client *c, uint64_t *batch) {
    answer_t *a = at_hand;
    if (!a || !a->cmd || a->client != c->id || c->io_parsed_cmd != a->cmd) return false;
    /* A client that caches is told of changes from the moment at which the main thread notes its keys. */
    if (c->flag.tracking || (a->misses && server.notify_keyspace_events & NOTIFY_KEY_MISS)) return false;
    addReplyProto(c, a->text ? a->text : a->short_text, a->len);
    server.stat_keyspace_hits += a->hits;
    server.stat_keyspace_misses += a->misses;
    *batch = a->batch;
    a->cmd = NULL;
    io_reads_given++;
    return true;
}

/* ---- the start ---- */

static client *make_stage(void) {
    client *stage = createClient(NULL);
    /* Replies are kept and go nowhere; errors are kept apart and not counted. */
    stage->flag.fake = stage->flag.module = 1;
    return stage;
}

/* Each function, executed as on a thread, must find its key by `look_up`: a lookup of the server's own would delete
 * what has expired, and count. */
static bool come_to_look_up(void) {
    reader_t *r = readers;
    bool all = true;
    robj *words[4], value = {.lru = LRU_CLOCK_MAX};
    r->parsed = r->stage = make_stage();
    for (int j = 0; j < 4; j++) words[j] = createStringObject("0", 1);
    for (int j = 0; j < COMMANDS; j++) {
        r->stage->argv = words;
        r->stage->argc = commands[j].arguments;
        execute(r, commands[j].proc);
        if (r->lookups == 1 && !r->stage->deferred_reply_errors && (r->stage->bufpos || r->gives_up)) continue;
        SAY(LL_WARNING, "mangrove: reads stay on the main thread: %s does not look its key up as it did",
            commands[j].name);
        all = false;
    }
    for (int j = 0; j < 4; j++) decrRefCount(words[j]);
    r->stage->argv = NULL;
    r->stage->argc = 0;
    leave_stage(r->stage);
    freeClient(r->stage);
    r->stage = NULL;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return all && word == (uint32_t)LRU_CLOCK_MAX << 8;
}

static void choose(struct serverCommand *cmd) {
    for (int j = 0; j < COMMANDS; j++)
        if (!strcmp(cmd->fullname, commands[j].name) && cmd->id >= 0 && cmd->id < COMMANDS_MAX)
            elsewhere[cmd->id] = commands[j].proc;
}

void io_reads_start(void) {
    if (server.io_threads_num < 2 || !settings.io_reads || !come_to_look_up()) return;
    each_command(choose);
    for (int j = 1; j < server.io_threads_num; j++) readers[j].stage = make_stage();
    sections_start(server.io_threads_num);
    is_on = true;
}
