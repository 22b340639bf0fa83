// adapter.cc: LevelDB's C++ classes under plain names, for `mangrove bench leveldb --api c++`. The bench makes the
// same calls with the prefix classes_ as it makes of the C API; each goes through the classes of the library that
// this file is linked to, as a C++ program's calls would.

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

#include <cstdlib>
#include <cstring>
#include <string>

using namespace leveldb;

namespace {

// A status as the C API has it: a string from malloc(), or nothing.
void tell(const Status &status, char **error) {
    if (!status.ok()) *error = strdup(status.ToString().c_str());
}

} // namespace

#define CLASSES extern "C" __attribute__((visibility("default")))

CLASSES Options *classes_options_create() { return new Options; }
CLASSES void classes_options_destroy(Options *options) { delete options; }
CLASSES void classes_options_set_create_if_missing(Options *options, unsigned char yes) {
    options->create_if_missing = yes != 0;
}
CLASSES Cache *classes_cache_create_lru(size_t capacity) { return NewLRUCache(capacity); }
CLASSES const FilterPolicy *classes_filterpolicy_create_bloom(int bits) { return NewBloomFilterPolicy(bits); }
CLASSES void classes_options_set_cache(Options *options, Cache *cache) { options->block_cache = cache; }
CLASSES void classes_options_set_filter_policy(Options *options, const FilterPolicy *policy) {
    options->filter_policy = policy;
}

CLASSES DB *classes_open(const Options *options, const char *name, char **error) {
    DB *db;
    tell(DB::Open(*options, name, &db), error);
    return db;
}
CLASSES void classes_close(DB *db) { delete db; }
CLASSES void classes_put(DB *db, const WriteOptions *options, const char *key, size_t key_len, const char *value,
                         size_t value_len, char **error) {
    tell(db->Put(*options, Slice(key, key_len), Slice(value, value_len)), error);
}

CLASSES void classes_delete(DB *db, const WriteOptions *options, const char *key, size_t key_len, char **error) {
    tell(db->Delete(*options, Slice(key, key_len)), error);
}

// The value stays in a string of the thread's, as in a program that reads into the same string again and again. What
// is returned may only be compared with NULL.
CLASSES const char *classes_get(DB *db, const ReadOptions *options, const char *key, size_t key_len, size_t *value_len,
                                char **error) {
    static thread_local std::string value;
    const Status status = db->Get(*options, Slice(key, key_len), &value);
    *value_len = value.size();
    if (!status.ok() && !status.IsNotFound()) tell(status, error);
    return status.ok() ? value.data() : nullptr;
}
// Nothing to free: neither values nor errors are counted.
CLASSES void classes_free(void *) {}

CLASSES void classes_write(DB *db, const WriteOptions *options, WriteBatch *batch, char **error) {
    tell(db->Write(*options, batch), error);
}
CLASSES WriteBatch *classes_writebatch_create() { return new WriteBatch; }
CLASSES void classes_writebatch_destroy(WriteBatch *batch) { delete batch; }
CLASSES void classes_writebatch_put(WriteBatch *batch, const char *key, size_t key_len, const char *value,
                                    size_t value_len) {
    batch->Put(Slice(key, key_len), Slice(value, value_len));
}

CLASSES WriteOptions *classes_writeoptions_create() { return new WriteOptions; }
CLASSES void classes_writeoptions_destroy(WriteOptions *options) { delete options; }
CLASSES void classes_writeoptions_set_sync(WriteOptions *options, unsigned char yes) { options->sync = yes != 0; }
CLASSES ReadOptions *classes_readoptions_create() { return new ReadOptions; }
CLASSES void classes_readoptions_destroy(ReadOptions *options) { delete options; }

CLASSES Iterator *classes_create_iterator(DB *db, const ReadOptions *options) { return db->NewIterator(*options); }
CLASSES void classes_iter_destroy(Iterator *iterator) { delete iterator; }
CLASSES unsigned char classes_iter_valid(const Iterator *iterator) { return iterator->Valid(); }
CLASSES void classes_iter_seek_to_first(Iterator *iterator) { iterator->SeekToFirst(); }
CLASSES void classes_iter_seek_to_last(Iterator *iterator) { iterator->SeekToLast(); }
CLASSES void classes_iter_next(Iterator *iterator) { iterator->Next(); }
CLASSES void classes_iter_prev(Iterator *iterator) { iterator->Prev(); }
CLASSES const char *classes_iter_key(const Iterator *iterator, size_t *len) {
    const Slice key = iterator->key();
    *len = key.size();
    return key.data();
}
CLASSES const char *classes_iter_value(const Iterator *iterator, size_t *len) {
    const Slice value = iterator->value();
    *len = value.size();
    return value.data();
}
CLASSES void classes_iter_get_error(const Iterator *iterator, char **error) { tell(iterator->status(), error); }
CLASSES void classes_compact_range(DB *db, const char *, size_t, const char *, size_t) {
    db->CompactRange(nullptr, nullptr);
}
