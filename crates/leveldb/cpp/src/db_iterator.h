// db_iterator.h: iterators over a database.
#ifndef MANGROVE_LEVELDB_DB_ITERATOR_H
#define MANGROVE_LEVELDB_DB_ITERATOR_H

#include <memory>
#include <utility>

#include "engine.h"
#include "leveldb/c.h"
#include "leveldb/iterator.h"

namespace leveldb {

// An iterator of the engine. It reads key and value where the engine keeps them: programs ask for them several times
// between two moves.
class DbIterator final : public Iterator {
public:
    // `owner` has what the engine refers to, its comparator for instance, and lives as long as the iterator.
    DbIterator(leveldb_iterator_t *engine, std::shared_ptr<const void> owner)
        : owner_(std::move(owner)), engine_(engine), record_(*mangrove_leveldb_iter_record(engine)) {}
    ~DbIterator() override;

    bool Valid() const override { return record_.key != nullptr; }
    void SeekToFirst() override;
    void SeekToLast() override;
    void Seek(const Slice &target) override;
    void Next() override;
    void Prev() override;
    Slice key() const override { return Slice(record_.key, record_.key_len); }
    Slice value() const override { return Slice(record_.value, record_.value_len); }
    Status status() const override;

private:
    const std::shared_ptr<const void> owner_;
    leveldb_iterator_t *const engine_;
    const mangrove_leveldb_record &record_;
};

} // namespace leveldb

#endif
