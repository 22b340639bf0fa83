/* The write fence, for tests: outside of tracked calls the state is read-only, and each writer is reported as a line
 * `mangrove: write fence: FUNCTION`, its callers on the next. Some writes are known to do no harm, and pass. */
#include "glue.h"

/* A function that writes outside of tracked calls, and why that is harmless: what it writes is given back before the
 * round's commit, or is advice that may be lost. */
static const char *const harmless[] = {
    /* A lookup's note of when a value was used. */
    "lookupKey", "io_read_touch", "lookupKeyReadWithFlags", "updateLFU", "objectSetLRUOrLFU", "initObjectLRUOrLFU",
    /* References that a reply or a request holds for a while. */
    "incrRefCount", "decrRefCount", "getDecodedObject",
    /* A scan or an iterator holds the moving of entries while it looks. */
    "hashtableScan", "hashtableScanDefrag", "hashtableInitIterator", "hashtableReinitIterator",
    "hashtableResetIterator", "hashtableNext", "hashtableReleaseIterator", "hashtableCleanupIterator",
    "hashtableRandomEntry", "hashtableFairRandomEntry", "hashtableSampleEntries", "kvstoreScan", "kvstoreIteratorNext",
    "kvstoreHashtableIteratorNext",
    /* Arguments that the interpreter keeps for later calls: what is stored of them is copied (values.c). */
    "luaArgsToServerArgv",
    NULL};

/* The compiler names the parts into which it takes a function apart after it: `.part.0`, `.constprop.1`, `.cold`. */
static bool is(const char *name, const char *function) {
    size_t len = strlen(function);
    return !strncmp(name, function, len) && (name[len] == 0 || name[len] == '.');
}

static void report(const void *address, void *const *frames, size_t count, void *user) {
    UNUSED(address);
    UNUSED(user);
    /* Functions of libc that copy and fill have no name. */
    const char *writer = "?";
    for (size_t j = 0; j < count && !strcmp(writer, "?"); j++) writer = symbol_name(frames[j]);
    for (int j = 0; harmless[j]; j++)
        if (is(writer, harmless[j])) return;
    char text[1024];
    int len = snprintf(text, sizeof text, "mangrove: write fence: %s\nmangrove: called by", writer);
    for (size_t j = 0; j < count && len < (int)sizeof text - 80; j++)
        len += snprintf(text + len, sizeof text - len, " %s(%p)", symbol_name(frames[j]), frames[j]);
    text[len++] = '\n';
    if (write(STDERR_FILENO, text, len) < 0) return;
}

bool fence_set(mangrove_app_options *options) {
    symbols_read();
    return mangrove_app_options_set_write_fence(options, report, NULL) == MANGROVE_APP_OK;
}

/* The server's own handler of SIGSEGV would take the place of the fence's. */
void __real_setupDebugSigHandlers(void);
void __wrap_setupDebugSigHandlers(void) {
    if (!app || !settings.fence) __real_setupDebugSigHandlers();
}
