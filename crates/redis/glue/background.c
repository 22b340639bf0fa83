/* Work on the keyspace that no command asks for: expiry, eviction, resizing, what cluster and replication drop. */
#include "glue.h"

/* ---- expiry ---- */

/* A lookup that finds a key expired deletes it, also in a command that only reads. */
struct expired {
    serverDb *db;
    robj *key;
    int table;
};
void __real_deleteExpiredKeyAndPropagateWithDictIndex(serverDb *db, robj *key, int table);
static void delete_expired(void *ctx) {
    struct expired *e = ctx;
    __real_deleteExpiredKeyAndPropagateWithDictIndex(e->db, e->key, e->table);
}
void deleteExpiredKeyAndPropagateWithDictIndex(serverDb *db, robj *key, int table) {
    struct expired e = {db, key, table};
    HOOKED(EXPIRED);
    if (left_out("expiry"))
        delete_expired(&e);
    else
        track(delete_expired, &e);
}

/* The server asks for a fast cycle in each round, and runs one each 2 ms at most. To find in a tracked call that it is
 * too early costs a batch, and with I/O threads the loop makes thousands of rounds while it waits for them. */
#define FAST_CYCLE_US_MIN 1000

void __real_activeExpireCycle(int type);
static void expire_cycle(void *ctx) { __real_activeExpireCycle(*(int *)ctx); }
void __wrap_activeExpireCycle(int type) {
    HOOKED(EXPIRE_CYCLE);
    if (app && !inside) {
        bool any = false;
        for (int j = 0; j < server.dbnum && !any; j++) any = kvstoreSize(server.db[j].expires) > 0;
        if (!any) return;
        static monotime last_fast;
        if (type == ACTIVE_EXPIRE_CYCLE_FAST) {
            monotime now = getMonotonicUs();
            if (now - last_fast < FAST_CYCLE_US_MIN) return;
            last_fast = now;
        }
    }
    if (left_out("expiry"))
        expire_cycle(&type);
    else
        track(expire_cycle, &type);
}

void __real_expireReplicaKeys(void);
static void expire_replica_keys(void *unused) {
    UNUSED(unused);
    __real_expireReplicaKeys();
}
void __wrap_expireReplicaKeys(void) { track(expire_replica_keys, NULL); }

/* ---- tables ---- */

struct tables {
    kvstore *tables;
    uint64_t amount, answer;
};
void __real_kvstoreTryResizeHashtables(kvstore *tables, int limit);
static void try_resize(void *ctx) {
    struct tables *t = ctx;
    __real_kvstoreTryResizeHashtables(t->tables, (int)t->amount);
}
void __wrap_kvstoreTryResizeHashtables(kvstore *tables, int limit) {
    struct tables t = {.tables = tables, .amount = (uint64_t)limit};
    HOOKED(RESIZE);
    if (app && !inside && kvstoreBuckets(tables) == 0) return;
    track(try_resize, &t);
}

uint64_t __real_kvstoreIncrementallyRehash(kvstore *tables, uint64_t us);
static void rehash(void *ctx) {
    struct tables *t = ctx;
    t->answer = __real_kvstoreIncrementallyRehash(t->tables, t->amount);
}
uint64_t __wrap_kvstoreIncrementallyRehash(kvstore *tables, uint64_t us) {
    struct tables t = {.tables = tables, .amount = us};
    HOOKED(REHASH);
    if (app && !inside && kvstoreHashtableRehashingCount(tables) == 0) return 0;
    track(rehash, &t);
    return t.answer;
}

/* ---- eviction ---- */

int __real_performEvictions(void);
static void evict(void *ctx) {
    int *answer = ctx;
    memory_is_wanted = 1;
    *answer = __real_performEvictions();
    memory_is_wanted = 0;
    /* As the server waits for its thread that frees: what lies in the grave is no reason to refuse a write. */
    while (*answer == EVICT_FAIL && grave_dig())
        if (getMaxmemoryState(NULL, NULL, NULL, NULL) == C_OK) *answer = __real_performEvictions();
}
int __wrap_performEvictions(void) {
    int answer = EVICT_OK;
    HOOKED(EVICT);
    /* Then it evicts nothing, and notes how long memory was exceeded. */
    if (app && !inside && getMaxmemoryState(NULL, NULL, NULL, NULL) == C_OK) return __real_performEvictions();
    if (left_out("eviction"))
        evict(&answer);
    else
        track(evict, &answer);
    return answer;
}

/* Of a candidate with a long key the pool has a copy, which belongs to the process: a kill would leave one in the state
 * that nothing leads to. Runs natively (native.c). */
sds __real_sdsdup(const sds s);
__attribute__((noinline)) sds candidate_key(const sds key) { return __real_sdsdup(key); }
sds __wrap_sdsdup(const sds s) { return app && memory_is_wanted ? candidate_key(s) : __real_sdsdup(s); }

/* A timer that is made inside a tracked call (evict.c does) works on the keyspace, and so does the one that CONFIG SET
 * maxmemory asks evict.c for. */
struct timer {
    aeTimeProc *proc;
    aeEventLoop *loop;
    long long id;
    void *data;
    int answer;
};
static aeTimeProc *inner_timer;
static bool is_asked_for;
static void run_timer(void *ctx) {
    struct timer *t = ctx;
    memory_is_wanted = 1;
    t->answer = t->proc(t->loop, t->id, t->data);
    memory_is_wanted = 0;
}
static long long tracked_timer(aeEventLoop *loop, long long id, void *data) {
    struct timer t = {inner_timer, loop, id, data, 0};
    track(run_timer, &t);
    return t.answer;
}
long long __real_aeCreateTimeEvent(aeEventLoop *, long long, aeTimeProc *, void *, aeEventFinalizerProc *);
long long __wrap_aeCreateTimeEvent(aeEventLoop *loop, long long ms, aeTimeProc *proc, void *data,
                                   aeEventFinalizerProc *end) {
    if (app && (inside || is_asked_for) && !left_out("eviction")) {
        inner_timer = proc;
        proc = (aeTimeProc *)tracked_timer;
    }
    return __real_aeCreateTimeEvent(loop, ms, proc, data, end);
}
void __real_startEvictionTimeProc(void);
void __wrap_startEvictionTimeProc(void) {
    is_asked_for = true;
    __real_startEvictionTimeProc();
    is_asked_for = false;
}

/* ---- what cluster and replication drop and exchange ---- */

/* A slot that another node took over is emptied by the cluster's bus, key by key. */
struct deleted {
    serverDb *db;
    robj *key;
    int answer;
};
int __real_dbDelete(serverDb *db, robj *key);
static void delete_key(void *ctx) {
    struct deleted *d = ctx;
    d->answer = __real_dbDelete(d->db, d->key);
}
int __wrap_dbDelete(serverDb *db, robj *key) {
    if (!app || inside) return __real_dbDelete(db, key);
    struct deleted d = {db, key, 0};
    changes_key(db->id, key);
    track(delete_key, &d);
    return d.answer;
}

/* The table of such a slot is freed with the iterator that led to its last key. */
void __real_kvstoreReleaseHashtableIterator(kvstoreHashtableIterator *iterator);
static void release_iterator(void *iterator) { __real_kvstoreReleaseHashtableIterator(iterator); }
void __wrap_kvstoreReleaseHashtableIterator(kvstoreHashtableIterator *iterator) {
    if (server.cluster_enabled)
        track(release_iterator, iterator);
    else
        __real_kvstoreReleaseHashtableIterator(iterator);
}

struct emptied {
    int database, flags;
    void (*callback)(hashtable *);
    long long removed;
};
long long __real_emptyData(int database, int flags, void(callback)(hashtable *));
static void empty(void *ctx) {
    struct emptied *e = ctx;
    e->removed = __real_emptyData(e->database, e->flags, e->callback);
}
long long __wrap_emptyData(int database, int flags, void(callback)(hashtable *)) {
    /* The callback serves the event loop meanwhile: not from inside a tracked call. */
    struct emptied e = {database, flags, app ? NULL : callback, 0};
    HOOKED(EMPTY);
    changes_all();
    track(empty, &e);
    return e.removed;
}
