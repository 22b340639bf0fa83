/* Values that came in a request are transient: the keyspace gets bytes of its own, made inside the command. */
#include "glue.h"

/* A request's argument. Its bytes were read natively, but may lie in the state's memory: while a value is loaded, the
 * event loop runs inside the tracked call, so a client's new buffer comes from there. */
static bool is_argument(const robj *value) {
    const client *c = server.executing_client;
    for (int j = 0; c && j < c->argc; j++)
        if (c->argv[j] == value) return true;
    return false;
}

static void own(robj **valref) {
    robj *v = *valref;
    if (!app || left_out("setkey") || v->type != OBJ_STRING || v->encoding != OBJ_ENCODING_RAW) return;
    /* Of a value with several references the server itself makes a copy. */
    if (v->refcount != 1) return;
    /* What a command has made itself stays. The interpreter keeps arguments for later calls and writes to them
     * natively, in the state's memory, too: a command may have trimmed them. */
    if (mangrove_app_is_persistent(v->ptr) && !scriptIsRunning() && !is_argument(v)) return;
    sds copy = sdsnewlen(v->ptr, sdslen(v->ptr));
    sdsfree(v->ptr);
    v->ptr = copy;
}

void __real_setKey(client *c, serverDb *db, robj *key, robj **valref, int flags);
void __wrap_setKey(client *c, serverDb *db, robj *key, robj **valref, int flags) {
    HOOKED(SET_KEY);
    own(valref);
    __real_setKey(c, db, key, valref, flags);
}

void __real_dbAdd(serverDb *db, robj *key, robj **valref);
void __wrap_dbAdd(serverDb *db, robj *key, robj **valref) {
    HOOKED(ADD);
    own(valref);
    __real_dbAdd(db, key, valref);
}

void __real_dbReplaceValue(serverDb *db, robj *key, robj **valref);
void __wrap_dbReplaceValue(serverDb *db, robj *key, robj **valref) {
    HOOKED(REPLACE);
    own(valref);
    __real_dbReplaceValue(db, key, valref);
}

/* Frees by I/O threads belong to no batch. */
int __real_tryOffloadFreeObjToIOThreads(robj *o);
int __wrap_tryOffloadFreeObjToIOThreads(robj *o) { return app ? C_ERR : __real_tryOffloadFreeObjToIOThreads(o); }

int __real_tryOffloadFreeArgvToIOThreads(client *c, int argc, robj **argv);
int __wrap_tryOffloadFreeArgvToIOThreads(client *c, int argc, robj **argv) {
    if (app) {
        if (mangrove_app_is_persistent(argv)) return C_ERR;
        for (int j = 0; j < argc; j++) {
            if (!argv[j]) continue;
            if (mangrove_app_is_persistent(argv[j]) || argv[j]->refcount != 1) return C_ERR;
            if (argv[j]->encoding == OBJ_ENCODING_RAW && mangrove_app_is_persistent(argv[j]->ptr)) return C_ERR;
        }
    }
    return __real_tryOffloadFreeArgvToIOThreads(c, argc, argv);
}
