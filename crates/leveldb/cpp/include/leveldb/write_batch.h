// write_batch.h: changes that take effect together, in the order in which they were added.
//
// Several threads may call the const functions of one batch at a time; a thread that changes it must be alone with it.
#ifndef MANGROVE_LEVELDB_WRITE_BATCH_H
#define MANGROVE_LEVELDB_WRITE_BATCH_H

#include <cstddef>
#include <string>

#include "leveldb/export.h"
#include "leveldb/status.h"

namespace leveldb {

class LEVELDB_EXPORT WriteBatch {
public:
    // Gets the changes of a batch one by one.
    class LEVELDB_EXPORT Handler {
    public:
        virtual ~Handler();
        virtual void Put(const Slice &key, const Slice &value) = 0;
        virtual void Delete(const Slice &key) = 0;
    };

    WriteBatch();

    WriteBatch(const WriteBatch &) = default;
    WriteBatch &operator=(const WriteBatch &) = default;

    ~WriteBatch();

    // Adds "set `key` to `value`".
    void Put(const Slice &key, const Slice &value);

    // Adds "remove `key`", which need not be there.
    void Delete(const Slice &key);

    // Removes all changes from the batch.
    void Clear();

    // Bytes of the batch.
    size_t ApproximateSize() const;

    // Adds the changes of `source`, which may be this batch.
    void Append(const WriteBatch &source);

    // Calls the handler for each change, in order.
    Status Iterate(Handler *handler) const;

private:
    friend class WriteBatchInternal;
    friend struct Layout;

    // The changes, in LevelDB's form (write_batch.cc).
    std::string rep_;
};

} // namespace leveldb

#endif
