/* The replication id and offset are committed in the batch of the writes that they count. After a restart the server
 * finds them as it would in a dump.rdb: a replica continues where the durable stream ended. */
#include "glue.h"

static bool moved(void) {
    if (!server.repl_backlog && !server.primary_host) return root->replicating;
    return !root->replicating || root->offset != server.primary_repl_offset ||
           memcmp(root->replid, server.replid, CONFIG_RUN_ID_SIZE);
}

static void put_replication(void *ctx) {
    rdbSaveInfo *info = ctx;
    root->replicating = info != NULL;
    if (!info) return;
    memcpy(root->replid, server.replid, sizeof root->replid);
    root->offset = server.primary_repl_offset;
    root->stream_db = info->repl_stream_db;
}

/* The stream grows without writes, too: by a first replica, and by pings. A replica that has more of it than a restart
 * finds would need a full synchronisation. */
void replication_keep(void) {
    rdbSaveInfo info;
    if (!moved() || (!dirty && starting)) return;
    rdbSaveInfo *found = rdbPopulateSaveInfo(&info);
    bool has_grown = root->replicating ? root->offset != server.primary_repl_offset : found != NULL;
    if (dirty || has_grown) track(put_replication, found);
}

bool replication_found(rdbSaveInfo *info) {
    if (!root->replicating || !info) return false;
    info->repl_id_is_set = 1;
    memcpy(info->repl_id, root->replid, sizeof info->repl_id);
    info->repl_offset = root->offset;
    info->repl_stream_db = root->stream_db;
    return true;
}

/* A child sends or saves what memory holds when it is forked, past the gate: that is to be durable first. */
int __real_rdbSaveToReplicasSockets(int req, rdbSaveInfo *rsi);
int __wrap_rdbSaveToReplicasSockets(int req, rdbSaveInfo *rsi) {
    settle();
    return __real_rdbSaveToReplicasSockets(req, rsi);
}
int __real_rdbSaveBackground(int req, char *file, rdbSaveInfo *rsi, int flags);
int __wrap_rdbSaveBackground(int req, char *file, rdbSaveInfo *rsi, int flags) {
    if (flags & RDBFLAGS_REPLICATION) settle();
    return __real_rdbSaveBackground(req, file, rsi, flags);
}
