/* The write fence, for tests: outside of tracked calls the state is read-only, and each writer is reported as a line
 * `mangrove: write fence: FUNCTION`, its callers on the next. Some writes are known to do no harm, and pass. */
#include "glue.h"
#include <dlfcn.h>

/* A function that writes outside of tracked calls, and why that is harmless: what it writes is given back before the
 * round's commit, or is advice that may be lost. */
static const char *const harmless[] = {
    /* A lookup's note of when a value was used. */
    "lookupKey", "lookupKeyReadWithFlags", "updateLFU", "objectSetLRUOrLFU", "initObjectLRUOrLFU",
    /* References that a reply or a request holds for a while. */
    "incrRefCount", "decrRefCount", "getDecodedObject",
    /* A scan or an iterator holds the moving of entries while it looks. */
    "hashtableScan", "hashtableScanDefrag", "hashtableInitIterator", "hashtableReinitIterator",
    "hashtableResetIterator", "hashtableNext", "hashtableReleaseIterator", "hashtableCleanupIterator",
    "hashtableRandomEntry", "hashtableFairRandomEntry", "hashtableSampleEntries", "kvstoreScan", "kvstoreIteratorNext",
    "kvstoreHashtableIteratorNext", "scanGenericCommand",
    NULL};

static const char *name_of(void *frame) {
    Dl_info info;
    return dladdr(frame, &info) && info.dli_sname ? info.dli_sname : "?";
}

static void report(const void *address, void *const *frames, size_t count, void *user) {
    UNUSED(address);
    UNUSED(user);
    /* Functions that only their own file knows have no name here. */
    const char *writer = "?";
    for (size_t j = 0; j < count && !strcmp(writer, "?"); j++) writer = name_of(frames[j]);
    for (int j = 0; harmless[j]; j++)
        if (!strcmp(writer, harmless[j])) return;
    char text[1024];
    int len = snprintf(text, sizeof text, "mangrove: write fence: %s\nmangrove: called by", writer);
    for (size_t j = 0; j < count && len < (int)sizeof text - 80; j++)
        len += snprintf(text + len, sizeof text - len, " %s(%p)", name_of(frames[j]), frames[j]);
    text[len++] = '\n';
    if (write(STDERR_FILENO, text, len) < 0) return;
}

bool fence_set(mangrove_app_options *options) {
    return mangrove_app_options_set_write_fence(options, report, NULL) == MANGROVE_APP_OK;
}

/* The server's own handler of SIGSEGV would take the place of the fence's. */
void __real_setupDebugSigHandlers(void);
void __wrap_setupDebugSigHandlers(void) {
    if (!app || !settings.fence) __real_setupDebugSigHandlers();
}
