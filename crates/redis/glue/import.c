/* Files that become the state: at the first start a dump.rdb or an AOF, on a replica what its primary sends. The file
 * is read natively, and tracked calls put each piece into the databases, so that the import is committed in batches
 * of about 64 MiB. Until the flag that ends it is committed, a crash leaves nothing of it. */
#include "glue.h"

/* What a file or a primary brings may be any key. */
static void change(void (*f)(void *), void *ctx) {
    changes_all();
    track(f, ctx);
}

#define IMPORT_UNIT_BYTES (64u << 20)

int importing;
static size_t used_at_begin, used_at_commit;

static void begin_import(void) {
    importing = 1;
    used_at_begin = used_at_commit = zmalloc_used_memory();
}

/* No timer runs in a load, so nothing else frees what a replica had before: what is loaded takes the place of that. */
static void make_room(void) {
    if (!root->grave) return;
    size_t before = zmalloc_used_memory(), used = before;
    while (used > used_at_begin && grave_dig()) used = zmalloc_used_memory();
    /* The batch has as much as before. */
    used_at_commit -= before - used;
}

void import_slice(void) {
    size_t used = zmalloc_used_memory();
    if (used < used_at_commit) used_at_commit = used;
    if (used - used_at_commit < IMPORT_UNIT_BYTES) return;
    commit();
    /* One batch at a time: else the log fills faster than the medium takes it. */
    if (mangrove_app_wait(app, last_ticket) != MANGROVE_APP_OK) die("the medium failed");
    used_at_commit = used;
}

/* ---- pieces ---- */

struct object {
    int type, *error, dbid;
    rio *file;
    sds key;
    robj *made;
};
robj *__real_rdbLoadObject(int type, rio *file, sds key, int dbid, int *error);
static void load_object(void *ctx) {
    struct object *o = ctx;
    o->made = __real_rdbLoadObject(o->type, o->file, o->key, o->dbid, o->error);
}
robj *rdbLoadObject(int type, rio *file, sds key, int dbid, int *error) {
    struct object o = {type, error, dbid, file, key, NULL};
    HOOKED(PIECE);
    if (importing && !inside) {
        make_room();
        import_slice();
    }
    change(load_object, &o);
    return o.made;
}

struct piece {
    serverDb *db;
    client *c;
    sds name;
    robj *key, **valref, *value;
    kvstore *tables;
    uint64_t amount;
    long long when;
    int table, try, answer;
};

int __real_dbAddRDBLoad(serverDb *db, sds key, robj **valref);
static void add_piece(void *ctx) {
    struct piece *p = ctx;
    p->answer = __real_dbAddRDBLoad(p->db, p->name, p->valref);
}
int __wrap_dbAddRDBLoad(serverDb *db, sds key, robj **valref) {
    struct piece p = {.db = db, .name = key, .valref = valref};
    change(add_piece, &p);
    return p.answer;
}

robj *__real_setExpire(client *c, serverDb *db, robj *key, long long when);
static void expire_piece(void *ctx) {
    struct piece *p = ctx;
    p->value = __real_setExpire(p->c, p->db, p->key, p->when);
}
robj *__wrap_setExpire(client *c, serverDb *db, robj *key, long long when) {
    if (!app || inside) return __real_setExpire(c, db, key, when);
    struct piece p = {.db = db, .c = c, .key = key, .when = when};
    change(expire_piece, &p);
    return p.value;
}

int __real_dbSyncDelete(serverDb *db, robj *key);
static void delete_piece(void *ctx) {
    struct piece *p = ctx;
    p->answer = __real_dbSyncDelete(p->db, p->key);
}
int __wrap_dbSyncDelete(serverDb *db, robj *key) {
    struct piece p = {.db = db, .key = key};
    change(delete_piece, &p);
    return p.answer;
}

int __real_dbExpand(serverDb *db, uint64_t size, int try);
static void expand_keys(void *ctx) {
    struct piece *p = ctx;
    p->answer = __real_dbExpand(p->db, p->amount, p->try);
}
int __wrap_dbExpand(serverDb *db, uint64_t size, int try) {
    struct piece p = {.db = db, .amount = size, .try = try};
    change(expand_keys, &p);
    return p.answer;
}

int __real_dbExpandExpires(serverDb *db, uint64_t size, int try);
static void expand_expires(void *ctx) {
    struct piece *p = ctx;
    p->answer = __real_dbExpandExpires(p->db, p->amount, p->try);
}
int __wrap_dbExpandExpires(serverDb *db, uint64_t size, int try) {
    struct piece p = {.db = db, .amount = size, .try = try};
    change(expand_expires, &p);
    return p.answer;
}

int __real_kvstoreHashtableExpand(kvstore *tables, int table, unsigned long size);
static void expand_table(void *ctx) {
    struct piece *p = ctx;
    p->answer = __real_kvstoreHashtableExpand(p->tables, p->table, p->amount);
}
int __wrap_kvstoreHashtableExpand(kvstore *tables, int table, unsigned long size) {
    struct piece p = {.tables = tables, .table = table, .amount = size};
    change(expand_table, &p);
    return p.answer;
}

/* ---- whole files ---- */

static void set_syncing(void *on) {
    root->syncing = *(int *)on;
    /* The data that the id and offset belong to are gone. A load that succeeds stores its own with its end, in one
     * batch (`replication_keep`). */
    if (root->syncing) root->replicating = 0;
}
static void begin_sync(void) {
    int on = 1;
    change(set_syncing, &on);
    begin_import();
}
/* Also after a failure: from here on memory is what this server answers from. */
static void end_sync(void) {
    int on = 0;
    importing = 0;
    change(set_syncing, &on);
}

int __real_rdbLoad(char *file, rdbSaveInfo *rsi, int flags);
int __wrap_rdbLoad(char *file, rdbSaveInfo *rsi, int flags) {
    if (!app || inside) return __real_rdbLoad(file, rsi, flags);
    if (starting && root->loaded) {
        if (access(file, F_OK) == 0)
            SAY(LL_NOTICE, "mangrove: %s is ignored: the state is here already", file);
        return replication_found(rsi) ? RDB_OK : RDB_NOT_EXIST;
    }
    if (starting) {
        begin_import();
        int answer = __real_rdbLoad(file, rsi, flags);
        importing = 0;
        return answer;
    }
    begin_sync();
    int answer = __real_rdbLoad(file, rsi, flags);
    end_sync();
    return answer;
}

int __real_rdbLoadRioWithLoadingCtxScopedRdb(rio *file, int flags, rdbSaveInfo *rsi, rdbLoadingCtx *into);
int __wrap_rdbLoadRioWithLoadingCtxScopedRdb(rio *file, int flags, rdbSaveInfo *rsi, rdbLoadingCtx *into) {
    if (!app || inside || importing) return __real_rdbLoadRioWithLoadingCtxScopedRdb(file, flags, rsi, into);
    if (into->dbarray == server.db) {
        begin_sync();
        int answer = __real_rdbLoadRioWithLoadingCtxScopedRdb(file, flags, rsi, into);
        end_sync();
        return answer;
    }
    begin_import();
    int answer = __real_rdbLoadRioWithLoadingCtxScopedRdb(file, flags, rsi, into);
    importing = 0;
    return answer;
}

bool import_finds_aof(void) {
    const aofManifest *manifest = server.aof_manifest;
    /* The second is where servers before 7.0 have it. */
    return manifest->base_aof_info || listLength(manifest->incr_aof_list) || access(server.aof_filename, F_OK) == 0;
}

static void set_aof_begun(void *unused) {
    UNUSED(unused);
    root->aof_begun = 1;
}

int __real_loadAppendOnlyFiles(aofManifest *manifest);
int __wrap_loadAppendOnlyFiles(aofManifest *manifest) {
    if (!app || inside || !starting) return __real_loadAppendOnlyFiles(manifest);
    if (root->aof_begun) SAY(LL_NOTICE, "mangrove: the import of the append-only file was cut short and begins again");
    if (import_finds_aof()) {
        /* Durable before the first piece: a later start without the file must not pass for one that is complete. */
        track(set_aof_begun, NULL);
        settle();
    }
    begin_import();
    int answer = __real_loadAppendOnlyFiles(manifest);
    importing = 0;
    return answer;
}

/* ---- databases beside the databases: repl-diskless-load swapdb ---- */

static void keep_temporary(serverDb *dbs) {
    for (int j = 0; j < server.dbnum; j++) root->temporary[j] = (database_t){dbs[j].keys, dbs[j].expires};
}
serverDb *__real_initTempDb(void);
static void init_temporary(void *ctx) {
    serverDb *dbs = *(serverDb **)ctx = __real_initTempDb();
    root->temporary = zcalloc(sizeof *root->temporary * server.dbnum);
    keep_temporary(dbs);
}
serverDb *__wrap_initTempDb(void) {
    serverDb *made = NULL;
    if (!app) return __real_initTempDb();
    change(init_temporary, &made);
    return made;
}
void __real_swapMainDbWithTempDb(serverDb *dbs);
static void swap_temporary(void *dbs) {
    __real_swapMainDbWithTempDb(dbs);
    if (root->temporary) keep_temporary(dbs);
    /* As in `set_syncing`. With two channels the id and offset of the new data come rounds later. */
    root->replicating = 0;
}
void __wrap_swapMainDbWithTempDb(serverDb *dbs) {
    if (!app) {
        __real_swapMainDbWithTempDb(dbs);
        return;
    }
    change(swap_temporary, dbs);
}
void __real_discardTempDb(serverDb *dbs);
static void discard_temporary(void *dbs) {
    __real_discardTempDb(dbs);
    zfree(root->temporary);
    root->temporary = NULL;
}
void __wrap_discardTempDb(serverDb *dbs) {
    if (!app) {
        __real_discardTempDb(dbs);
        return;
    }
    change(discard_temporary, dbs);
}

/* ---- start ---- */

static void drop_temporary(void *unused) {
    UNUSED(unused);
    for (int j = 0; j < root->databases; j++) grave_bury(root->temporary[j].keys, root->temporary[j].expires);
    zfree(root->temporary);
    root->temporary = NULL;
}
static void drop_database(void *ctx) {
    database_t *db = ctx;
    kvstoreEmpty(db->expires, NULL);
    kvstoreEmpty(db->keys, NULL);
}
static void forget_sync(void *unused) {
    UNUSED(unused);
    root->syncing = root->replicating = 0;
}

void import_recover(void) {
    if (root->temporary) change(drop_temporary, NULL);
    if (root->loaded && !root->syncing) return;
    unsigned long long keys = 0;
    for (int j = 0; j < root->databases; j++) {
        keys += kvstoreSize(root->db[j].keys);
        change(drop_database, &root->db[j]);
    }
    if (keys)
        SAY(LL_NOTICE, "mangrove: dropped %llu keys of %s that a crash cut off", keys,
            root->loaded ? "a synchronisation with a primary" : "an import");
    change(forget_sync, NULL);
    settle();
}

static void set_loaded(void *unused) {
    UNUSED(unused);
    root->loaded = 1;
    root->aof_begun = 0;
}
void import_end(void) {
    importing = 0;
    if (!root->loaded) change(set_loaded, NULL);
    settle();
}
