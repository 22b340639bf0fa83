/* INFO: the section "# Mangrove"; used_memory with what was recovered. */
#define _GNU_SOURCE
#include "glue.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

/* Bytes of the state that this process did not allocate itself. */
static size_t recovered;

size_t __real_zmalloc_used_memory(void);
size_t __wrap_zmalloc_used_memory(void) { return __real_zmalloc_used_memory() + recovered; }

static mangrove_app_counters counters(void) {
    mangrove_app_counters all = {0};
    mangrove_app_stat(app, &all, sizeof all);
    return all;
}

void memory_recovered(void) {
    recovered = counters().used_bytes;
    /* What is left of an import is dropped. */
    if (root->loaded) server.initial_memory_usage += recovered;
}

/* What the medium of the state came to be where it was chosen by itself. */
static const char *medium_name(void) {
    if (root->emulated) return "emulated";
    char file[PATH_MAX];
    struct statx about;
    snprintf(file, sizeof file, "%s/pool", settings.state);
    if (statx(AT_FDCWD, file, 0, 0, &about) < 0) return "unknown";
    return about.stx_attributes & STATX_ATTR_DAX ? "dax" : "file";
}

static sds info_mangrove(sds info) {
    mangrove_app_counters c = counters();
    if (sdslen(info)) info = sdscat(info, "\r\n");
    info = sdscatprintf(info,
        "# Mangrove\r\n"
        "mangrove_state:%s\r\nmangrove_medium:%s\r\nmangrove_durability:%s\r\nmangrove_interval_ms:%d\r\n"
        "mangrove_durable:%llu\r\nmangrove_committed:%llu\r\nmangrove_batches:%lld\r\nmangrove_commands:%lld\r\n"
        "mangrove_commands_per_batch:%.2f\r\n"
        "mangrove_parked_clients:%zu\r\nmangrove_waits_in_loop:%lld\r\nmangrove_held_writes:%lld\r\n"
        "mangrove_passed_reads:%lld\r\n"
        "mangrove_reads_on_io_threads:%lld\r\nmangrove_reads_on_io_threads_dropped:%lld\r\n"
        "mangrove_slow_batches:%lld\r\nmangrove_grave_objects:%zu\r\nmangrove_keyspace_imported:%d\r\n",
        settings.state, medium_name(), settings.interval_ms ? "interval" : "sync", settings.interval_ms,
        (unsigned long long)c.durable, (unsigned long long)c.committed, commits, tracked_calls,
        commits ? (double)tracked_calls / commits : 0.0, gate_parked(), gate_waits, gate_held, gate_passed,
        io_reads_given, io_reads_dropped, slow_units, root->grave ? root->grave_len : 0, root->loaded);
    info = sdscatprintf(info,
        "mangrove_logged_bytes:%llu\r\nmangrove_logged_bytes_per_command:%.1f\r\nmangrove_logged_ranges:%llu\r\n"
        "mangrove_log_used_bytes:%llu\r\nmangrove_log_bytes:%llu\r\nmangrove_checkpoint_age_ms:%llu\r\n"
        "mangrove_arena_bytes:%llu\r\nmangrove_waiting_frees:%llu\r\n",
        (unsigned long long)c.bytes, tracked_calls ? (double)c.bytes / tracked_calls : 0.0,
        (unsigned long long)c.ranges, (unsigned long long)c.log_used, (unsigned long long)c.log_bytes,
        (unsigned long long)c.checkpoint_age, (unsigned long long)c.used_bytes, (unsigned long long)c.waiting_frees);
    return hooks_info(info);
}

sds __real_genValkeyInfoString(dict *sections, int all, int everything);
sds genValkeyInfoString(dict *sections, int all, int everything) {
    sds info = __real_genValkeyInfoString(sections, all, everything);
    if (!app) return info;
    /* INFO without arguments asks for these sections among others. */
    bool asked = all || everything || dictFind(sections, "mangrove") ||
                 (dictFind(sections, "keyspace") && dictFind(sections, "server"));
    return asked ? info_mangrove(info) : info;
}
