/* Commands that change the keyspace run tracked: their `proc` in the command table is ours. */
#include "glue.h"
#include "quicklist.h"
#include <limits.h>
#include <strings.h>

int commands_hooked;
static serverCommandProc *real_proc[COMMANDS_MAX];

static void run_command(void *ctx) {
    client *c = ctx;
    c->cmd->proc(c);
}

/* Reading such a list unpacks its nodes. It keeps the depth with which it was made, whatever list-compress-depth is
 * now. All commands that read lists name the key first. */
static bool is_compressed_list(client *c) {
    void *found;
    sds key = c->argc > 1 ? c->argv[1]->ptr : NULL;
    int slot = key && server.cluster_enabled ? keyHashSlot(key, (int)sdslen(key)) : 0;
    if (!key || !kvstoreHashtableFind(c->db->keys, slot, key, &found)) return false;
    const robj *value = found;
    return value->encoding == OBJ_ENCODING_QUICKLIST && ((const quicklist *)value->ptr)->compress;
}

/* A scan deletes keys that have expired, and then moves entries of their buckets together. In a cluster it frees the
 * table of a slot whose last keys these were. */
static bool scan_only_reads(client *c) {
    return !server.cluster_enabled && kvstoreSize(c->db->expires) == 0;
}

static void tracked_command(client *c) {
    struct serverCommand *cmd = c->cmd;
    serverCommandProc *ours = cmd->proc;
    HOOKED(COMMANDS);
    if (importing && !inside && !server.in_exec) import_slice();
    /* The server compares `c->cmd->proc` with functions of its own inside the call. */
    cmd->proc = real_proc[cmd->id];
    bool only_reads = !(cmd->flags & CMD_WRITE) && cmd->group != COMMAND_GROUP_HYPERLOGLOG;
    if (cmd->proc == scanCommand) only_reads = scan_only_reads(c);
    if (only_reads && !is_compressed_list(c)) {
        cmd->proc(c);
    } else {
        /* Before the call, which may change the arguments. */
        if (!only_reads) changes_by_command(c);
        track(run_command, c);
    }
    cmd->proc = ours;
}

/* The server compares these with `cmd->proc` outside of the call, too (enable-debug-command, enable-module-command;
 * slots that migrate; clients that wait): their names are wrapped, so table and comparisons mean the same function. */
void __real_debugCommand(client *c);
static void run_debug(void *c) { __real_debugCommand(c); }
void __wrap_debugCommand(client *c) {
    static const char *const native[] = {"restart", "crash-and-recover", "crash-and-abort", "segfault", "panic",
                                         "sleep", "oom", "assert", "help", "log", NULL};
    const char *what = c->argc > 1 ? c->argv[1]->ptr : "";
    for (int j = 0; native[j]; j++)
        if (!strcasecmp(what, native[j])) {
            /* The first two start the process again; the state is to have what was executed so far. */
            if (j < 2) settle();
            __real_debugCommand(c);
            return;
        }
    changes_all();
    track(run_debug, c);
}

void __real_migrateCommand(client *c);
static void run_migrate(void *c) { __real_migrateCommand(c); }
void __wrap_migrateCommand(client *c) {
    /* What it sends passes the gate. In a transaction or a script it sends what is not durable. */
    settle();
    changes_all();
    track(run_migrate, c);
}

/* ---- commands with an answer of ours ---- */

void __real_moduleCommand(client *c);
void __wrap_moduleCommand(client *c) {
    const char *what = c->argc > 1 ? c->argv[1]->ptr : "";
    if (app && (!strcasecmp(what, "load") || !strcasecmp(what, "loadex")))
        addReplyError(c, "modules are refused by a durable server: they change values from timers and threads of their "
                         "own, and their values point into the module");
    else
        __real_moduleCommand(c);
}

static serverCommandProc *real_config_set;

static void config_set_checked(client *c) {
    for (int j = 2; j + 1 < c->argc; j += 2) {
        const char *name = c->argv[j]->ptr, *value = c->argv[j + 1]->ptr;
        if (strcasecmp(value, "yes")) continue;
        if (!strcasecmp(name, "crash-memcheck-enabled")) {
            addReplyError(c, "CONFIG SET failed - crash-memcheck-enabled is refused by a durable server: the test "
                             "writes to all of the address space that the state reserves");
            return;
        }
        if (!strcasecmp(name, "activedefrag")) {
            addReplyError(c, "CONFIG SET failed (possibly related to argument 'activedefrag') - activedefrag is "
                             "refused by a durable server: it moves values outside of commands");
            return;
        }
    }
    real_config_set(c);
}

static serverCommandProc *real_config_rewrite;

/* The file is to name the directory that has the state, wherever CONFIG SET dir has dumps written: the next start would
 * find no state there, and begin an empty one. A daemon's is to ask for a daemon. */
static void config_rewrite_beside_state(client *c) {
    char here[PATH_MAX] = "", place[PATH_MAX] = "";
    const char *end = settings.state ? strrchr(settings.state, '/') : NULL;
    bool has_moved = false;
    if (end && getcwd(here, sizeof here)) {
        int len = end == settings.state ? 1 : (int)(end - settings.state); /* in the root */
        snprintf(place, sizeof place, "%.*s", len, settings.state);
        has_moved = strcmp(here, place) != 0 && chdir(place) == 0;
        /* Whoever has moved the directory away may have led the server to it. */
        if (!has_moved && strcmp(here, place) != 0 && access(end + 1, F_OK) != 0) {
            addReplyErrorFormat(c, "CONFIG REWRITE failed - the file would name %s, where the next start finds no "
                                   "state, for the server cannot go to the state's directory %s; give it that name "
                                   "and its rights back, or CONFIG SET dir to where it is now", here, place);
            return;
        }
    }
    /* The launcher has asked the server itself for `daemonize no`. */
    int daemonize = server.daemonize;
    if (settings.is_daemon) server.daemonize = 1;
    real_config_rewrite(c);
    server.daemonize = daemonize;
    if (has_moved && chdir(here) != 0)
        SAY(LL_WARNING, "mangrove: cannot go back to the directory %s (%s): dumps are written to %s", here,
            strerror(errno), place);
}

/* The gate holds every reply until what was executed before is durable, which is what WAITAOF 1 asks for. With
 * interval durability it does so in the round of the command: what its client wrote is durable then, whenever the
 * reply comes. */
static void with_local_acknowledged(void (*f)(void *), void *ctx) {
    int enabled = server.aof_enabled;
    long long synced = server.fsynced_reploff;
    if (app && !enabled) {
        server.aof_enabled = 1;
        server.fsynced_reploff = LLONG_MAX;
    }
    f(ctx);
    if (app && !enabled) {
        server.aof_enabled = enabled;
        server.fsynced_reploff = synced;
    }
}
void __real_waitaofCommand(client *c);
static void run_waitaof(void *c) {
    if (app) gate_hold_until_durable();
    __real_waitaofCommand(c);
}
void __wrap_waitaofCommand(client *c) { with_local_acknowledged(run_waitaof, c); }

/* What WAITAOF 1 1 gets when the time for its replica is over. */
void __real_unblockClientOnTimeout(client *c);
static void time_out(void *c) { __real_unblockClientOnTimeout(c); }
void __wrap_unblockClientOnTimeout(client *c) { with_local_acknowledged(time_out, c); }

void __real_processClientsWaitingReplicas(void);
static void process_waiting(void *unused) {
    UNUSED(unused);
    __real_processClientsWaitingReplicas();
}
void __wrap_processClientsWaitingReplicas(void) {
    static struct serverCommand *waitaof;
    if (!waitaof) waitaof = lookupCommandByCString("waitaof");
    /* It compares the command's function with the one of its own file. */
    waitaof->proc = __real_waitaofCommand;
    with_local_acknowledged(process_waiting, NULL);
    waitaof->proc = __wrap_waitaofCommand;
}

/* ---- the table ---- */

static bool changes_keyspace(struct serverCommand *cmd) {
    if (cmd->proc == debugCommand || cmd->proc == migrateCommand) return false;
    if (cmd->proc == pfcountCommand) return true;
    if (cmd->proc == scanCommand) return true;
    /* Reading a compressed list unpacks and packs its nodes. */
    if (cmd->group == COMMAND_GROUP_LIST || cmd->proc == sortroCommand || cmd->proc == dumpCommand) return true;
    /* The interpreter is transient: functions.c keeps the sources. */
    return (cmd->flags & CMD_WRITE) && cmd->group != COMMAND_GROUP_SCRIPTING;
}

static void hook(struct serverCommand *cmd) {
    if (cmd->proc == config_set_checked || cmd->proc == config_rewrite_beside_state || cmd->proc == tracked_command)
        return;
    if (!strcasecmp(cmd->fullname, "config|set")) {
        real_config_set = cmd->proc;
        cmd->proc = config_set_checked;
    } else if (!strcasecmp(cmd->fullname, "config|rewrite")) {
        real_config_rewrite = cmd->proc;
        cmd->proc = config_rewrite_beside_state;
    } else if (changes_keyspace(cmd) && !left_out("commands")) {
        if (cmd->id < 0 || cmd->id >= COMMANDS_MAX) {
            SAY(LL_WARNING, "mangrove: command number %d is out of range", cmd->id);
            exit(1);
        }
        real_proc[cmd->id] = cmd->proc;
        cmd->proc = tracked_command;
        commands_hooked++;
    }
}

static void walk(hashtable *commands, void (*f)(struct serverCommand *)) {
    hashtableIterator it;
    void *next;
    hashtableInitIterator(&it, commands, 0);
    while (hashtableNext(&it, &next)) {
        struct serverCommand *cmd = next;
        if (cmd->subcommands_ht) walk(cmd->subcommands_ht, f);
        if (cmd->proc) f(cmd);
    }
    hashtableResetIterator(&it);
}

void each_command(void (*f)(struct serverCommand *cmd)) {
    walk(server.commands, f);
    walk(server.orig_commands, f);
}

void hook_commands(void) { each_command(hook); }
