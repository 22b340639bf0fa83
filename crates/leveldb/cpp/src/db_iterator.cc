// db_iterator.cc: iterators over a database, by those of the engine.

#include "db_iterator.h"

#include "engine.h"

namespace leveldb {

DbIterator::~DbIterator() { leveldb_iter_destroy(engine_); }

void DbIterator::moved() {
    size_t key_len, value_len;
    const char *key = leveldb_iter_key(engine_, &key_len);
    const char *value = leveldb_iter_value(engine_, &value_len);
    is_valid_ = leveldb_iter_valid(engine_) != 0;
    key_ = Slice(key, key_len);
    value_ = Slice(value, value_len);
}

void DbIterator::SeekToFirst() {
    leveldb_iter_seek_to_first(engine_);
    moved();
}

void DbIterator::SeekToLast() {
    leveldb_iter_seek_to_last(engine_);
    moved();
}

void DbIterator::Seek(const Slice &target) {
    leveldb_iter_seek(engine_, target.data(), target.size());
    moved();
}

void DbIterator::Next() {
    leveldb_iter_next(engine_);
    moved();
}

void DbIterator::Prev() {
    leveldb_iter_prev(engine_);
    moved();
}

Status DbIterator::status() const {
    char *error = nullptr;
    leveldb_iter_get_error(engine_, &error);
    return status_of(error);
}

} // namespace leveldb
