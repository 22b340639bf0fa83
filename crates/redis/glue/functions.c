/* FUNCTION LOAD and its like: the server makes the interpreter anew at each start, so the libraries' sources are part
 * of the state. The end of each round compares whether they changed. */
#include "glue.h"

/* Compiled sources so far. A library that replaces another one leaves the other numbers as they were. */
static unsigned long long compilations;

compiledFunction **__real_scriptingEngineCallCompileCode(scriptingEngine *engine, subsystemType type, const char *code,
                                                         size_t len, size_t timeout, size_t *count, robj **error);
compiledFunction **__wrap_scriptingEngineCallCompileCode(scriptingEngine *engine, subsystemType type, const char *code,
                                                         size_t len, size_t timeout, size_t *count, robj **error) {
    compilations++;
    return __real_scriptingEngineCallCompileCode(engine, type, code, len, timeout, count, error);
}

static void put_functions(void *sources) {
    sds old = root->functions;
    root->functions = sources ? sdsnewlen(sources, sdslen(sources)) : NULL;
    sdsfree(old);
}

static sds all_sources(void) {
    sds sources = sdsempty();
    dictIterator *it = dictGetIterator(functionsLibGet());
    dictEntry *entry;
    while ((entry = dictNext(it))) {
        functionLibInfo *library = dictGetVal(entry);
        uint64_t len = sdslen(library->code);
        sources = sdscatlen(sources, &len, sizeof len);
        sources = sdscatsds(sources, library->code);
    }
    dictReleaseIterator(it);
    return sources;
}

void functions_keep(void) {
    static const void *context;
    static unsigned long libraries, functions;
    static unsigned long long compiled;
    if (context == functionsLibCtxGetCurrent() && libraries == functionsLibNum() && functions == functionsNum() &&
        compiled == compilations)
        return;
    context = functionsLibCtxGetCurrent();
    libraries = functionsLibNum();
    functions = functionsNum();
    compiled = compilations;
    sds sources = all_sources();
    size_t kept = root->functions ? sdslen(root->functions) : 0;
    if (sdslen(sources) != kept || (kept && memcmp(sources, root->functions, kept)))
        track(put_functions, sdslen(sources) ? sources : NULL);
    sdsfree(sources);
}

void functions_load(void) {
    sds all = root->functions;
    for (size_t at = 0; all && at + sizeof(uint64_t) <= sdslen(all);) {
        uint64_t len;
        memcpy(&len, all + at, sizeof len);
        at += sizeof len;
        sds source = sdsnewlen(all + at, len), error = NULL;
        at += len;
        sds name = functionsCreateWithLibraryCtx(source, 0, &error, functionsLibCtxGetCurrent(), 0);
        if (!name) {
            SAY(LL_WARNING, "mangrove: a library of functions in the state does not load: %s", error ? error : "?");
            exit(1);
        }
        sdsfree(name);
        sdsfree(source);
    }
}
