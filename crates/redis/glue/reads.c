/* A read waits for the batches that changed its keys, and for no others: its reply depends on nothing else. This
 * holds for commands whose reply depends only on the keys that they name. All others, scripts and transactions among
 * them, wait for every batch before them, and so does a client whose output has anything else in it. */
#include "glue.h"

static serverCommandProc *proc_behind[COMMANDS_MAX];

static void read_command(client *c) {
    struct serverCommand *cmd = c->cmd;
    serverCommandProc *ours = cmd->proc;
    bool plain = !inside && !starting && !importing && !server.in_exec && !scriptIsRunning() && c->conn &&
                 c->conn->fd >= 0 && getClientType(c) == CLIENT_TYPE_NORMAL;
    uint64_t before = plain ? gate_mark(c) : 0, need = 0;
    if (plain && io_reads_answer(c, &need)) {
        gate_read(c, before, need);
        return;
    }
    /* The server compares `c->cmd->proc` with functions of its own inside the call. */
    cmd->proc = proc_behind[cmd->id];
    cmd->proc(c);
    cmd->proc = ours;
    /* After the call: a lookup that finds a key expired deletes it. */
    if (plain && changes_of_command(c, &need)) gate_read(c, before, need);
}

/* Whether the answer is that of the keys which the command names, and comes at once. */
static bool reads_its_keys_only(const struct serverCommand *cmd) {
    switch (cmd->group) {
    case COMMAND_GROUP_GENERIC:
    case COMMAND_GROUP_STRING:
    case COMMAND_GROUP_LIST:
    case COMMAND_GROUP_SET:
    case COMMAND_GROUP_SORTED_SET:
    case COMMAND_GROUP_HASH:
    case COMMAND_GROUP_STREAM:
    case COMMAND_GROUP_BITMAP:
    case COMMAND_GROUP_GEO: break;
    default: return false;
    }
    if (!(cmd->flags & CMD_READONLY) || !cmd->key_specs_num) return false;
    uint64_t other = CMD_WRITE | CMD_BLOCKING | CMD_MAY_REPLICATE | CMD_TOUCHES_ARBITRARY_KEYS | CMD_MODULE;
    if (cmd->flags & other) return false;
    for (int j = 0; j < cmd->key_specs_num; j++) {
        const keySpec *spec = cmd->key_specs + j;
        if (spec->flags & (CMD_KEY_NOT_KEY | CMD_KEY_INCOMPLETE)) return false;
        /* The keys of BY and GET come from what SORT_RO sorts. */
        if (spec->begin_search_type == KSPEC_BS_UNKNOWN || spec->find_keys_type == KSPEC_FK_UNKNOWN) return false;
    }
    return true;
}

static void hook(struct serverCommand *cmd) {
    if (cmd->proc == read_command || cmd->id < 0 || cmd->id >= COMMANDS_MAX || !reads_its_keys_only(cmd)) return;
    proc_behind[cmd->id] = cmd->proc;
    cmd->proc = read_command;
}

void hook_reads(void) { each_command(hook); }
