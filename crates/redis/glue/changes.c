/* Which keys the batches under way change: for the hash of each key, the newest batch that changed a key with it.
 * Keys that share a hash wait for each other; that costs time only. There are three sources: the keys that a write
 * command names, what the server reports to clients that watch (expiry, eviction, values that blocked clients take),
 * and databases that are emptied or exchanged.
 *
 * Only the low 16 bits of a batch's number are kept, so that the table has a quarter of the cache lines: each change
 * stores to a line that is rarely in the cache. A reader takes the newest batch with these bits, so it waits for the
 * right batch or, once in thousands, for a younger one. */
#include "glue.h"

/* A power of two. */
#define SLOTS 65536

static uint16_t slots[SLOTS];
/* The newest batch of which it is not known what it changed. */
static uint64_t everything;

static uint16_t *slot_of(int db, const char *key, size_t len) {
    uint64_t h = 0x9e3779b97f4a7c15u * (unsigned)(db + 1) + len, word;
    for (; len >= 8; len -= 8, key += 8) {
        memcpy(&word, key, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (; len; len--, key++) h = (h ^ (unsigned char)*key) * 0xc4ceb9fe1a85ec53u;
    h ^= h >> 29;
    return slots + (h * 0x9e3779b97f4a7c15u >> 48) % SLOTS;
}

void changes_key(int db, const robj *key) {
    sections_close();
    if (!left_out("blind")) *slot_of(db, key->ptr, sdslen(key->ptr)) = (uint16_t)open_batch;
}

void changes_all(void) {
    sections_close();
    if (!left_out("blind")) everything = open_batch;
}

uint64_t changes_of(int db, const robj *key) {
    uint16_t noted = *slot_of(db, key->ptr, sdslen(key->ptr));
    /* The batch that collects has changed nothing while it is not dirty, and may never be committed. If it is noted all
     * the same, it hides an older one. */
    uint64_t newest = dirty ? open_batch : open_batch - 1;
    uint16_t back = noted == (uint16_t)open_batch && !dirty ? 0 : (uint16_t)(newest - noted);
    uint64_t batch = back <= newest ? newest - back : 0;
    return batch > everything ? batch : everything;
}

/* Calls `f` with each key that the command names. False: that is not known. */
bool changes_each_key(client *c, void (*f)(int db, const robj *key, void *ctx), void *ctx) {
    const struct serverCommand *cmd = c->cmd;
    const keySpec *spec = cmd->key_specs;
    if (cmd->key_specs_num == 1 && spec->begin_search_type == KSPEC_BS_INDEX &&
        spec->find_keys_type == KSPEC_FK_RANGE && spec->fk.range.lastkey == 0) {
        if (spec->bs.index.pos >= c->argc) return false;
        f(c->db->id, c->argv[spec->bs.index.pos], ctx);
        return true;
    }
    getKeysResult found;
    initGetKeysResult(&found);
    int count = getKeysFromCommandWithSpecs(c->cmd, c->argv, c->argc, GET_KEYSPEC_DEFAULT, &found);
    for (int j = 0; j < count; j++) f(c->db->id, c->argv[found.keys[j].pos], ctx);
    getKeysFreeResult(&found);
    return count > 0;
}

static void newest(int db, const robj *key, void *ctx) {
    uint64_t *newest = ctx, batch = changes_of(db, key);
    if (batch > *newest) *newest = batch;
}

bool changes_of_command(client *c, uint64_t *batch) { return changes_each_key(c, newest, batch); }

static void changes(int db, const robj *key, void *unused) {
    UNUSED(unused);
    changes_key(db, key);
}

void changes_by_command(client *c) {
    if (!changes_each_key(c, changes, NULL)) changes_all();
}

void __real_touchWatchedKey(serverDb *db, robj *key);
void __wrap_touchWatchedKey(serverDb *db, robj *key) {
    HOOKED(TOUCH);
    if (!left_out("touch")) changes_key(db->id, key);
    /* It runs natively, and looks keys up: such a look must not move entries of a table that grows. */
    bool tracked = inside && !left_out("touch-moves");
    if (tracked) policy_outside();
    __real_touchWatchedKey(db, key);
    if (tracked) policy_inside();
}

void __real_touchAllWatchedKeysInDb(serverDb *emptied, serverDb *replaced_with);
void __wrap_touchAllWatchedKeysInDb(serverDb *emptied, serverDb *replaced_with) {
    changes_all();
    bool tracked = inside;
    if (tracked) policy_outside();
    __real_touchAllWatchedKeysInDb(emptied, replaced_with);
    if (tracked) policy_inside();
}
