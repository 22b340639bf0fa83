// db_iterator.h: iterators over a database.
#ifndef MANGROVE_LEVELDB_DB_ITERATOR_H
#define MANGROVE_LEVELDB_DB_ITERATOR_H

#include "leveldb/c.h"
#include "leveldb/iterator.h"

namespace leveldb {

// An iterator of the engine. It keeps key and value of its record at hand, because programs ask for them several times
// between two moves.
class DbIterator final : public Iterator {
public:
    explicit DbIterator(leveldb_iterator_t *engine) : engine_(engine) {}
    ~DbIterator() override;

    bool Valid() const override { return is_valid_; }
    void SeekToFirst() override;
    void SeekToLast() override;
    void Seek(const Slice &target) override;
    void Next() override;
    void Prev() override;
    Slice key() const override { return key_; }
    Slice value() const override { return value_; }
    Status status() const override;

private:
    void moved();

    leveldb_iterator_t *const engine_;
    Slice key_, value_;
    bool is_valid_ = false;
};

} // namespace leveldb

#endif
