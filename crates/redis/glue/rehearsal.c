/* The check at the start that each hook is the one in use: a few commands on a database of their own, each of which
 * must reach its hook. The linker cannot replace what the compiler inlined; the build refuses that too
 * (`scripts/build`). */
#include "glue.h"

struct rehearsal {
    client *c;
    serverDb db;
};

static void make_stage(void *ctx) {
    struct rehearsal *r = ctx;
    r->db = server.db[0];
    int bits = server.cluster_enabled ? CLUSTER_SLOT_MASK_BITS : 0;
    r->db.keys = kvstoreCreate(&kvstoreKeysHashtableType, bits, KVSTORE_ALLOCATE_HASHTABLES_ON_DEMAND);
    r->db.expires = kvstoreCreate(&kvstoreExpiresHashtableType, bits, KVSTORE_ALLOCATE_HASHTABLES_ON_DEMAND);
}
static void free_stage(void *ctx) {
    struct rehearsal *r = ctx;
    kvstoreRelease(r->db.keys);
    kvstoreRelease(r->db.expires);
}

static void play(struct rehearsal *r, const char *line) {
    int argc;
    sds *words = sdssplitargs(line, &argc);
    client *c = r->c;
    c->argc = argc;
    c->argv = zmalloc(sizeof *c->argv * argc);
    for (int j = 0; j < argc; j++) c->argv[j] = createObject(OBJ_STRING, words[j]);
    zfree(words);
    c->cmd = c->lastcmd = c->realcmd = lookupCommandOrOriginal(c->argv, c->argc);
    server.current_client = server.executing_client = c;
    c->cmd->proc(c);
    server.current_client = server.executing_client = NULL;
    freeClientArgv(c);
    c->cmd = NULL;
}

static bool expect(long long before, enum hook h, const char *what) {
    if (hook_calls[h] > before) return false;
    SAY(LL_WARNING, "mangrove: the hook '%s' is not in use: %s did not come to it; the server was built in another way "
                    "than scripts/build does", hook_name(h), what);
    return true;
}
#define REHEARSE(h, line)                              \
    do {                                               \
        long long before = hook_calls[HOOK_##h];       \
        play(&r, line);                                \
        missing |= expect(before, HOOK_##h, line);     \
    } while (0)

void databasesCron(void); /* of server.c, in no header */

static bool hook_is_missing(void) {
    struct rehearsal r = {.c = createClient(NULL)};
    long long dirty_before = server.dirty, expired = server.stat_expiredkeys, hits = server.stat_keyspace_hits;
    long long misses = server.stat_keyspace_misses;
    bool missing = expect(0, HOOK_DICT_SEED, "the start") | expect(0, HOOK_TABLE_SEED, "the start");
    track(make_stage, &r);
    r.c->flag.script = 1; /* replies go nowhere */
    r.c->db = &r.db;
    REHEARSE(COMMANDS, "set {s} 1234567890123456789012345678901234567890123456789012345678901234567890");
    REHEARSE(SET_KEY, "set {s} 2234567890123456789012345678901234567890123456789012345678901234567890");
    REHEARSE(TOUCH, "append {s} 0");
    REHEARSE(ADD, "rpush {l} a");
    play(&r, "set {n} 100000");
    REHEARSE(REPLACE, "incrbyfloat {n} 1.5");
    REHEARSE(FREE, "unlink {l}");
    long long policy = hook_calls[HOOK_POLICY];
    updateDictResizePolicy();
    missing |= expect(policy, HOOK_POLICY, "updateDictResizePolicy");
    long long resized = hook_calls[HOOK_RESIZE];
    databasesCron();
    if (!hasActiveChildProcess()) missing |= expect(resized, HOOK_RESIZE, "databasesCron");
    track(free_stage, &r);
    r.c->db = &server.db[0];
    r.c->flag.script = 0;
    freeClient(r.c);
    settle();
    server.dirty = dirty_before;
    server.stat_expiredkeys = expired;
    server.stat_keyspace_hits = hits;
    server.stat_keyspace_misses = misses;
    return missing;
}

void hooks_check(void) {
    if (settings.without) {
        SAY(LL_WARNING, "mangrove: the hook '%s' is left out: nothing here is durable", settings.without);
        return;
    }
    if (!hook_is_missing()) return;
    exit(1);
}
