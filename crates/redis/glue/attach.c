/* Between the server's own initialisation and its loading of files: the databases of the state take the place of the
 * empty ones, and the hooks are set. Then, before it serves, the import counts. */
#include "glue.h"

static void make_databases(void *unused) {
    UNUSED(unused);
    int bits = 0, flags = KVSTORE_ALLOCATE_HASHTABLES_ON_DEMAND; /* the shape that initServer gives them */
    if (server.cluster_enabled) {
        bits = CLUSTER_SLOT_MASK_BITS;
        flags |= KVSTORE_FREE_EMPTY_HASHTABLES;
    }
    for (int j = 0; j < server.dbnum; j++) {
        root->db[j].keys = kvstoreCreate(&kvstoreKeysHashtableType, bits, flags);
        root->db[j].expires = kvstoreCreate(&kvstoreExpiresHashtableType, bits, flags);
    }
    root->cluster = server.cluster_enabled;
    root->databases = server.dbnum;
    root->ready = 1;
}

static void refuse(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    SAY(LL_WARNING, "mangrove: %s", text);
    fprintf(stderr, "mangrove: %s\n", text);
    exit(2);
}

/* Runs before modules are loaded, and so before anything that a module does. */
void __real_moduleLoadFromQueue(void);
void __wrap_moduleLoadFromQueue(void) {
    if (app && listLength(server.loadmodule_queue))
        refuse("loadmodule is refused by a durable server: modules change values from timers and threads of their own");
    __real_moduleLoadFromQueue();
}

/* The first start takes one file. What the configuration passes over would never be taken: the state counts from then
 * on. */
static void check_import(void) {
    bool has_aof = import_finds_aof();
    if (server.aof_state == AOF_OFF && has_aof)
        refuse("the state in %s is new, and beside it is an append-only file (%s or %s), which a start without "
               "appendonly yes would ignore: start with appendonly yes to import it, or move it away", settings.state,
               server.aof_dirname, server.aof_filename);
    if (server.aof_state != AOF_OFF && !has_aof && access(server.rdb_filename, F_OK) == 0)
        refuse("the state in %s is new, and beside it is %s but no append-only file, so a start with appendonly yes "
               "would begin empty: start with appendonly no to import %s, or move it away", settings.state,
               server.rdb_filename, server.rdb_filename);
}

static void check_configuration(void) {
    if (server.dbnum > DATABASES_MAX) refuse("at most %d databases are possible (databases)", DATABASES_MAX);
    if (server.active_defrag_enabled) refuse("activedefrag is refused: it moves values outside of commands");
    if (root->ready && root->cluster != server.cluster_enabled)
        refuse("the state in %s was made with cluster-enabled %s, and the configuration says %s: set cluster-enabled "
               "to %s", settings.state, root->cluster ? "yes" : "no", server.cluster_enabled ? "yes" : "no",
               root->cluster ? "yes" : "no");
    if (root->ready && root->databases != server.dbnum)
        refuse("the state in %s has %d databases, and the configuration says %d: set databases to %d", settings.state,
               root->databases, server.dbnum, root->databases);
    if (root->loaded && server.aof_state != AOF_OFF) {
        const char *place = getenv("MANGROVE_REDIS_APPENDONLY_IN");
        refuse("appendonly yes is refused on a state that exists: the one in %s has every acknowledged write, so the "
               "append-only file is not needed; remove `appendonly yes` from the %s", settings.state,
               place ? place : "configuration");
    }
    if (root->aof_begun && server.aof_state == AOF_OFF && import_finds_aof())
        refuse("the import of the append-only file was cut short, so the state in %s has nothing of it: start with "
               "appendonly yes to begin the import again, or move the append-only file away to start empty",
               settings.state);
    if (!root->loaded && getenv("MANGROVE_REDIS_COPIED"))
        refuse("the import into the state in %s was cut short, so it has nothing that an update could bring to another "
               "build: start the server until it serves, and update then", settings.state);
    if (!root->loaded) check_import();
}

void __real_aofLoadManifestFromDisk(void);
void __wrap_aofLoadManifestFromDisk(void) {
    static int attached;
    __real_aofLoadManifestFromDisk();
    if (!app && !attached++) SAY(LL_WARNING, "mangrove: MANGROVE_REDIS_STATE names no state: nothing here is durable");
    if (!app || attached++) return; /* DEBUG LOADAOF comes here again */
    check_configuration();
    address_note(false);
    bool is_new = !root->ready;
    if (is_new) track(make_databases, NULL);
    for (int j = 0; j < server.dbnum; j++) {
        kvstoreRelease(server.db[j].keys);
        kvstoreRelease(server.db[j].expires);
        server.db[j].keys = root->db[j].keys;
        server.db[j].expires = root->db[j].expires;
    }
    if (is_new) settle();
    server.memcheck_enabled = 0; /* it would write to all of the reserve */
    hook_commands();
    hook_reads();
    before_commit(functions_keep);
    before_commit(replication_keep);
    policy_outside();
    /* Also of a state that does not count yet: freeing what an import left would take it below zero. */
    if (!is_new) memory_recovered();
    import_recover();
    if (root->loaded) functions_load();
    unsigned long long keys = 0;
    for (int j = 0; j < server.dbnum; j++) keys += kvstoreSize(server.db[j].keys);
    SAY(LL_NOTICE, "mangrove: the state in %s is %s, %llu keys, %d commands hooked", settings.state,
        root->loaded ? "found" : "new", keys, commands_hooked);
    if (settings.medium == MANGROVE_APP_MEDIUM_EMULATED)
        SAY(LL_WARNING, "mangrove: the medium is emulated: the state survives the process, and no power cut");
}

/* The loop's first event: nothing that ends the start comes after it. */
static long long serves(aeEventLoop *loop, long long id, void *data) {
    UNUSED(loop);
    UNUSED(id);
    UNUSED(data);
    address_note(true);
    return AE_NOMORE;
}

void __real_aofOpenIfNeededOnServerStart(void);
void __wrap_aofOpenIfNeededOnServerStart(void) {
    if (app) {
        import_end();
        grave_start();
        gate_start();
        io_reads_start();
        hooks_check();
        if (aeCreateTimeEvent(server.el, 0, (aeTimeProc *)serves, NULL, NULL) == AE_ERR) die("the loop has no timer");
    }
    starting = 0;
    __real_aofOpenIfNeededOnServerStart();
}

/* The last thing of a shutdown before the sockets close. */
void __real_flushReplicasOutputBuffers(void);
void __wrap_flushReplicasOutputBuffers(void) {
    /* Eviction calls it, too, inside a tracked call; what its clients get waits for the round's end. */
    gate_flush();
    __real_flushReplicasOutputBuffers();
}
