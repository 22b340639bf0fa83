/* A count of each hook, so that INFO tells which are in use. */
#include "glue.h"

long long hook_calls[HOOKS];

static const char *const names[HOOKS] = {
    "dict_seed", "table_seed", "policy", "commands", "set_key", "add", "replace", "expired", "expire_cycle", "resize",
    "rehash", "evict", "free", "empty", "pending", "write", "io_write", "piece", "touch", "ahead",
    "io_read"};

const char *hook_name(enum hook h) { return names[h]; }

sds hooks_info(sds info) {
    for (int h = 0; h < HOOKS; h++) info = sdscatprintf(info, "mangrove_hook_%s:%lld\r\n", names[h], hook_calls[h]);
    return info;
}
