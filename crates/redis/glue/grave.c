/* Lazy frees (UNLINK, FLUSHALL ASYNC, lazyfree-lazy-*). A background thread's frees belong to no batch, and a crash
 * would leak what the thread had not freed yet. So detached values lie in a persistent list, and a timer of the loop
 * frees them in slices, as tracked calls. */
#include "glue.h"

/* In no header. */
size_t lazyfreeGetFreeEffort(robj *key, robj *value, int dbid);
void streamFreeConsumer(streamConsumer *consumer);
void streamFreeCG(streamCG *group);

/* As lazyfree.c: fewer allocations are freed at once. */
#define GRAVE_EFFORT_MIN 64
/* What one slice frees at most, and the time after which a round's work ends. */
#define SLICE_ELEMENTS 512
#define DIG_US 1000
/* Slices of a value that are freed at once while eviction waits for memory. */
#define URGENT_SLICES 16

int memory_is_wanted;
static size_t freed;
static int timer_runs;

static void start_timer(void);

/* ---- into it ---- */

static void push(grave_t *g, size_t len) {
    g->next = root->grave;
    root->grave = g;
    root->grave_len += len;
    start_timer();
}

void grave_bury(kvstore *keys, kvstore *expires) {
    grave_t *g = zcalloc(sizeof *g);
    g->keys = keys;
    g->expires = expires;
    push(g, kvstoreSize(keys));
}

static void bury_value(void *value) {
    grave_t *g = zcalloc(sizeof *g);
    robj *v = value;
    if (!mangrove_app_is_persistent(v) && !left_out("grave-of-requests")) {
        /* SET over a value exchanges the contents of the two: the old one lies in the object of the request. */
        robj *kept = createObject(v->type, v->ptr);
        kept->encoding = v->encoding;
        v->type = OBJ_STRING;
        v->encoding = OBJ_ENCODING_INT;
        v->ptr = NULL;
        decrRefCount(v);
        v = kept;
    }
    g->value = v;
    push(g, 1);
}

void __real_emptyDbAsync(serverDb *db);
static void empty_database(void *ctx) {
    serverDb *db = ctx;
    int bits = 0, flags = KVSTORE_ALLOCATE_HASHTABLES_ON_DEMAND;
    if (server.cluster_enabled) {
        bits = CLUSTER_SLOT_MASK_BITS;
        flags |= KVSTORE_FREE_EMPTY_HASHTABLES;
    }
    grave_bury(db->keys, db->expires);
    db->keys = kvstoreCreate(&kvstoreKeysHashtableType, bits, flags);
    db->expires = kvstoreCreate(&kvstoreExpiresHashtableType, bits, flags);
}
void __wrap_emptyDbAsync(serverDb *db) {
    if (!app)
        __real_emptyDbAsync(db);
    else
        track(empty_database, db);
}

/* ---- out of it ---- */

/* Deletes some entries; true when the rest, one at most, can go with the table: an iterator does not survive the
 * deletion of the last entry, with which the table shrinks at once. */
static bool shrink_table(hashtable *table, const void *(*key_of)(const void *)) {
    hashtableIterator it;
    void *entry;
    int left = SLICE_ELEMENTS;
    hashtableInitIterator(&it, table, HASHTABLE_ITER_SAFE);
    while (left-- > 0 && hashtableSize(table) > 1 && hashtableNext(&it, &entry))
        hashtableDelete(table, key_of ? key_of(entry) : entry);
    hashtableResetIterator(&it);
    return hashtableSize(table) <= 1;
}

static bool shrink_sorted_set(zset *set) {
    zskiplist *list = set->zsl;
    /* The table holds the list's nodes and frees none of them. */
    if (hashtableSize(set->ht)) hashtableEmpty(set->ht, NULL);
    for (int left = SLICE_ELEMENTS; left > 0; left--) {
        zskiplistNode *node = list->header->level[0].forward;
        if (!node) break;
        list->header->level[0].forward = node->level[0].forward;
        /* The server takes it for what is left to free. */
        list->length--;
        sdsfree(node->ele);
        zfree(node);
    }
    return !list->header->level[0].forward;
}

/* Takes entries out of the tree, as many as are left to the slice; true when none is in it any more. */
static bool shrink_tree(rax *tree, void (*free_data)(void *), int *left) {
    raxIterator it;
    raxStart(&it, tree);
    while (*left > 0 && raxSeek(&it, "^", NULL, 0) && raxNext(&it)) {
        if (free_data) free_data(it.data);
        raxRemove(tree, it.key, it.key_len, NULL);
        --*left;
    }
    raxStop(&it);
    return raxSize(tree) == 0;
}

static bool shrink_group(streamCG *group, int *left) {
    raxIterator it;
    bool goes_on = true;
    raxStart(&it, group->consumers);
    while (goes_on && *left > 0 && raxSeek(&it, "^", NULL, 0) && raxNext(&it)) {
        streamConsumer *consumer = it.data;
        /* What is in it belongs to the group. */
        goes_on = shrink_tree(consumer->pel, NULL, left);
        if (!goes_on) continue;
        streamFreeConsumer(consumer);
        raxRemove(group->consumers, it.key, it.key_len, NULL);
        --*left;
    }
    raxStop(&it);
    return raxSize(group->consumers) == 0 && shrink_tree(group->pel, zfree, left);
}

static bool shrink_stream(stream *s) {
    int left = SLICE_ELEMENTS;
    if (!shrink_tree(s->rax, lpFreeVoid, &left)) return false;
    if (!s->cgroups) return true;
    raxIterator it;
    bool goes_on = true;
    raxStart(&it, s->cgroups);
    while (goes_on && left > 0 && raxSeek(&it, "^", NULL, 0) && raxNext(&it)) {
        goes_on = shrink_group(it.data, &left);
        if (!goes_on) continue;
        streamFreeCG(it.data);
        raxRemove(s->cgroups, it.key, it.key_len, NULL);
        left--;
    }
    raxStop(&it);
    return raxSize(s->cgroups) == 0;
}

static bool shrink_value(robj *v) {
    if (v->type == OBJ_STREAM) return shrink_stream(v->ptr);
    if (v->encoding == OBJ_ENCODING_HASHTABLE)
        return shrink_table(v->ptr, hashtableGetType(v->ptr)->entryGetKey);
    if (v->encoding == OBJ_ENCODING_SKIPLIST) return shrink_sorted_set(v->ptr);
    if (v->encoding == OBJ_ENCODING_QUICKLIST) {
        quicklistDelRange(v->ptr, 0, SLICE_ELEMENTS);
        return quicklistCount(v->ptr) == 0;
    }
    return true;
}

static void buried_gone(size_t count) {
    root->grave_len -= count;
    freed += count;
}

/* True: what is left of the value can go at once. */
static bool shrink_large(robj *v, int *left) {
    size_t effort = lazyfreeGetFreeEffort(NULL, v, 0);
    *left -= effort < SLICE_ELEMENTS ? (int)effort : SLICE_ELEMENTS;
    return effort <= GRAVE_EFFORT_MIN || v->refcount != 1 || shrink_value(v);
}

/* Deletes keys of one table, as many as are left to the slice. */
static void shrink_keys(kvstore *keys, int at, int *left) {
    void *entry;
    robj *last = NULL;
    kvstoreHashtableIterator *it = kvstoreGetHashtableIterator(keys, at, HASHTABLE_ITER_SAFE);
    while (*left > 0 && kvstoreHashtableIteratorNext(it, &entry)) {
        if (!shrink_large(entry, left))
            *left = 0; /* the next slice finds it again */
        else if (kvstoreHashtableSize(keys, at) > 1)
            kvstoreHashtableDelete(keys, at, objectGetKey(entry));
        else
            last = entry;
    }
    kvstoreReleaseHashtableIterator(it);
    /* As in `shrink_table`: not before the iterator has ended. */
    if (last) kvstoreHashtableDelete(keys, at, objectGetKey(last));
}

static bool shrink_database(grave_t *g) {
    if (g->expires) {
        /* Its entries are those of `keys`. */
        kvstoreRelease(g->expires);
        g->expires = NULL;
    }
    size_t before = kvstoreSize(g->keys);
    int left = SLICE_ELEMENTS;
    while (left > 0 && kvstoreSize(g->keys) > 0)
        shrink_keys(g->keys, kvstoreGetFirstNonEmptyHashtableIndex(g->keys), &left);
    buried_gone(before - kvstoreSize(g->keys));
    return kvstoreSize(g->keys) == 0;
}

static void dig(void *unused) {
    UNUSED(unused);
    grave_t *g = root->grave;
    bool leaks = left_out("grave");
    if (leaks) {
        /* The planted bug: nothing is freed. */
        buried_gone(g->value ? 1 : kvstoreSize(g->keys));
    } else if (g->value ? !shrink_value(g->value) : !shrink_database(g)) {
        return;
    } else if (g->value) {
        decrRefCount(g->value);
        buried_gone(1);
    } else {
        kvstoreRelease(g->keys);
    }
    root->grave = g->next;
    zfree(g);
}

bool grave_dig(void) {
    if (!app || !root->grave) return false;
    track(dig, NULL);
    return true;
}

void __real_freeObjAsync(robj *key, robj *value, int dbid);
void __wrap_freeObjAsync(robj *key, robj *value, int dbid) {
    HOOKED(FREE);
    if (!app) {
        __real_freeObjAsync(key, value, dbid);
    } else if (lazyfreeGetFreeEffort(key, value, dbid) > GRAVE_EFFORT_MIN && value->refcount == 1) {
        grave_t *before = root->grave;
        track(bury_value, value);
        if (!memory_is_wanted) return;
        /* Eviction goes on until it sees enough memory freed, and no thread frees meanwhile. */
        for (int left = URGENT_SLICES; left > 0 && root->grave != before; left--) grave_dig();
    } else {
        decrRefCount(value);
    }
}

static long long grave_timer(struct aeEventLoop *loop, long long id, void *data) {
    UNUSED(loop);
    UNUSED(id);
    UNUSED(data);
    monotime begin = getMonotonicUs();
    while (getMonotonicUs() - begin < DIG_US && grave_dig()) {}
    if (root->grave) return 1;
    timer_runs = 0;
    return AE_NOMORE;
}

long long __real_aeCreateTimeEvent(aeEventLoop *, long long, aeTimeProc *, void *, aeEventFinalizerProc *);
static void start_timer(void) {
    if (timer_runs) return;
    timer_runs = 1;
    if (__real_aeCreateTimeEvent(server.el, 1, grave_timer, NULL, NULL) == AE_ERR) die("no timer for lazy frees");
}

void grave_start(void) {
    if (root->grave) start_timer();
}

/* ---- statistics ---- */

size_t __real_lazyfreeGetPendingObjectsCount(void);
size_t __wrap_lazyfreeGetPendingObjectsCount(void) {
    return __real_lazyfreeGetPendingObjectsCount() + (app && root->grave ? root->grave_len : 0);
}
size_t __real_lazyfreeGetFreedObjectsCount(void);
size_t __wrap_lazyfreeGetFreedObjectsCount(void) { return __real_lazyfreeGetFreedObjectsCount() + freed; }
void __real_lazyfreeResetStats(void);
void __wrap_lazyfreeResetStats(void) {
    freed = 0;
    __real_lazyfreeResetStats();
}
