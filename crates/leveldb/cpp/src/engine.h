// engine.h: the engine's entry points beyond the C API, which only the classes call (crates/leveldb/src/api/cpp.rs),
// and error strings as statuses.
#ifndef MANGROVE_LEVELDB_ENGINE_H
#define MANGROVE_LEVELDB_ENGINE_H

#include "leveldb/c.h"
#include "leveldb/status.h"

extern "C" {
// Where key and value of the record lie that an iterator stands on; `key` is null when it stands on none.
struct mangrove_leveldb_record {
    const char *key;
    size_t key_len;
    const char *value;
    size_t value_len;
};

void mangrove_leveldb_write(leveldb_t *db, uint8_t sync, const char *batch, size_t batch_len, char **errptr);
uint8_t mangrove_leveldb_get(leveldb_t *db, const leveldb_snapshot_t *snapshot, const char *key, size_t key_len,
                             void (*found)(void *state, const char *value, size_t value_len), void *state,
                             char **errptr);
leveldb_t *mangrove_leveldb_open_memory(const leveldb_options_t *options, char **errptr);
// The iterator's own record, which each of its moves changes.
const mangrove_leveldb_record *mangrove_leveldb_iter_record(const leveldb_iterator_t *iterator);
void mangrove_leveldb_comparator_threw(void);
}

namespace leveldb {

// The status that an error string stands for; frees the string. Null is success.
Status status_of(char *error);

} // namespace leveldb

#endif
