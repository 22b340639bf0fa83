// db_iterator.cc: iterators over a database, by those of the engine.

#include "db_iterator.h"

namespace leveldb {

DbIterator::~DbIterator() { leveldb_iter_destroy(engine_); }

void DbIterator::SeekToFirst() { leveldb_iter_seek_to_first(engine_); }

void DbIterator::SeekToLast() { leveldb_iter_seek_to_last(engine_); }

void DbIterator::Seek(const Slice &target) { leveldb_iter_seek(engine_, target.data(), target.size()); }

void DbIterator::Next() { leveldb_iter_next(engine_); }

void DbIterator::Prev() { leveldb_iter_prev(engine_); }

Status DbIterator::status() const {
    char *error = nullptr;
    leveldb_iter_get_error(engine_, &error);
    return status_of(error);
}

} // namespace leveldb
