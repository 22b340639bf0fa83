// engine.h: the engine's entry points beyond the C API, which only the classes call (crates/leveldb/src/api/cpp.rs),
// and error strings as statuses.
#ifndef MANGROVE_LEVELDB_ENGINE_H
#define MANGROVE_LEVELDB_ENGINE_H

#include "leveldb/c.h"
#include "leveldb/status.h"

extern "C" {
void mangrove_leveldb_write(leveldb_t *db, uint8_t sync, const char *batch, size_t batch_len, char **errptr);
uint8_t mangrove_leveldb_get(leveldb_t *db, const leveldb_snapshot_t *snapshot, const char *key, size_t key_len,
                             void (*found)(void *state, const char *value, size_t value_len), void *state,
                             char **errptr);
leveldb_t *mangrove_leveldb_open_memory(const leveldb_options_t *options, char **errptr);
void mangrove_leveldb_comparator_threw(void);
}

namespace leveldb {

// The status that an error string stands for; frees the string. Null is success.
Status status_of(char *error);

} // namespace leveldb

#endif
