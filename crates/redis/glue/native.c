/* Functions whose work is transient although commands call them: replies, notifications, propagation. They run
 * natively inside commands, on the process's own heap; otherwise their work would be logged, and a crash would leak
 * it. None of them writes to the keyspace, except reference counts that are given back before the round ends. */
#include "glue.h"
#include "bio.h"

/* In no header, or only known by their linker's name. */
long long __real_aeCreateTimeEvent(aeEventLoop *, long long, aeTimeProc *, void *, aeEventFinalizerProc *);
void *migrateGetSocket(client *c, robj *host, robj *port, long timeout);
void migrateCloseSocket(robj *host, robj *port);
void functionLoadCommand(client *c);
sds candidate_key(const sds key);

#define NATIVES(X) \
    X(addReply) X(addReplyArrayLen) X(addReplyAttributeLen) X(addReplyBigNum) X(addReplyBool) X(addReplyBulk) \
    X(addReplyBulkCBuffer) X(addReplyBulkCString) X(addReplyBulkLongLong) X(addReplyBulkSds) \
    X(addReplyDeferredLen) X(addReplyDouble) X(addReplyError) X(addReplyErrorArity) X(addReplyErrorExpireTime) \
    X(addReplyErrorFormat) X(addReplyErrorObject) X(addReplyErrorSds) \
    X(addReplyHumanLongDouble) X(addReplyLongLong) X(addReplyMapLen) X(addReplyNull) X(addReplyNullArray) \
    X(addReplyOrErrorObject) X(addReplyProto) X(addReplyPushLen) X(addReplySds) X(addReplySetLen) X(addReplyStatus) \
    X(addReplySubcommandSyntaxError) X(addReplyVerbatim) X(addWritePreparedReplyArrayLen) \
    X(addWritePreparedReplyBulkCBuffer) X(addWritePreparedReplyBulkLongLong) X(addWritePreparedReplyBulkSds) \
    X(addReplyHelp) X(addReplyStatusFormat) X(setDeferredPushLen) \
    X(addWritePreparedReplyMapLen) X(commitDeferredReplyBuffer) X(initDeferredReplyBuffer) \
    X(prepareClientForFutureWrites) X(setDeferredArrayLen) X(setDeferredMapLen) X(setDeferredReplyBulkSds) \
    X(setDeferredSetLen) \
    X(replaceClientCommandVector) X(rewriteClientCommandArgument) X(rewriteClientCommandVector) \
    X(notifyKeyspaceEvent) X(blockForKeys) X(signalDeletedKeyAsReady) X(signalKeyAsReady) X(trackingInvalidateKey) \
    X(trackingInvalidateKeysOnFlush) X(touchWatchedKey) X(touchAllWatchedKeysInDb) X(alsoPropagate) \
    X(postExecutionUnitOperations) X(latencyAddSample) X(serverLogRaw) X(_serverLog) X(functionsLibCtxClearCurrent) \
    X(functionsLibCtxCreate) X(__real_aeCreateTimeEvent) X(rememberReplicaKeyWithExpire) \
    X(flushReplicaKeysWithExpireList) X(migrateGetSocket) X(migrateCloseSocket) X(rdbFunctionLoad) X(rdbSave) \
    X(killRDBChild) X(functionLoadCommand) X(aofLoadManifestFromDisk) X(bioCreateCloseJob) X(bioCreateLazyFreeJob) \
    X(candidate_key)

void natives_add(mangrove_app_options *options) {
    if (left_out("natives")) return;
#define ADD(f)                                                                                    \
    if (mangrove_app_native(options, (const void *)f) != MANGROVE_APP_OK) {                         \
        fprintf(stderr, "mangrove: %s cannot run natively: %s\n", #f, mangrove_app_last_error());    \
        exit(1);                                                                                   \
    }
    NATIVES(ADD)
}
