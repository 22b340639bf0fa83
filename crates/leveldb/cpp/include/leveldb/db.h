// db.h: a database, an ordered map from keys to values that is durable. docs/leveldb.md says what is promised.
#ifndef MANGROVE_LEVELDB_DB_H
#define MANGROVE_LEVELDB_DB_H

#include <cstdint>
#include <cstdio>
#include <string>

#include "leveldb/export.h"
#include "leveldb/iterator.h"
#include "leveldb/options.h"

namespace leveldb {

// The version of LevelDB whose interface this is.
static const int kMajorVersion = 1;
static const int kMinorVersion = 23;

class WriteBatch;

// An instant of a database. Any number of threads may read from it.
class LEVELDB_EXPORT Snapshot {
protected:
    virtual ~Snapshot();
};

// The keys from `start` up to `limit`, which is not among them.
struct LEVELDB_EXPORT Range {
    Range() = default;
    Range(const Slice &s, const Slice &l) : start(s), limit(l) {}

    Slice start;
    Slice limit;
};

// An open database. Any number of threads may use it at a time. Deleting it closes it.
class LEVELDB_EXPORT DB {
public:
    // Opens the database in the directory `name`. On success `*dbptr` is the database, which the caller deletes; null
    // otherwise.
    static Status Open(const Options &options, const std::string &name, DB **dbptr);

    DB() = default;

    DB(const DB &) = delete;
    DB &operator=(const DB &) = delete;

    virtual ~DB();

    // Sets `key` to `value`. A class of a program may fall back on this function's body, which writes a batch of one.
    virtual Status Put(const WriteOptions &options, const Slice &key, const Slice &value) = 0;

    // Removes `key`, which need not be there. It has a body as well.
    virtual Status Delete(const WriteOptions &options, const Slice &key) = 0;

    // Applies a batch: all of it or nothing.
    virtual Status Write(const WriteOptions &options, WriteBatch *updates) = 0;

    // Stores the value of `key` in `*value`. Where there is none the status is NotFound, and `*value` stays as it is.
    virtual Status Get(const ReadOptions &options, const Slice &key, std::string *value) = 0;

    // An iterator over the records of the options' snapshot, or of this instant; it stands on no record yet. The
    // caller deletes it.
    virtual Iterator *NewIterator(const ReadOptions &options) = 0;

    // This instant, to read from while writers continue; the caller gives it back to ReleaseSnapshot().
    virtual const Snapshot *GetSnapshot() = 0;
    virtual void ReleaseSnapshot(const Snapshot *snapshot) = 0;

    // Stores the text of a property in `*value`; false when there is no such property. There are
    // leveldb.num-files-at-levelN (always 0), leveldb.stats, leveldb.sstables and leveldb.approximate-memory-usage.
    virtual bool GetProperty(const Slice &property, std::string *value) = 0;

    // Stores in `sizes[i]` the bytes of the keys and values in `range[i]`, for `n` ranges. Walks the ranges.
    virtual void GetApproximateSizes(const Range *range, int n, uint64_t *sizes) = 0;

    // Frees old versions and brings the files up to date, whatever the range. Null is an open end.
    virtual void CompactRange(const Slice *begin, const Slice *end) = 0;
};

// Removes the database in the directory `name`; no error when there is none.
LEVELDB_EXPORT Status DestroyDB(const std::string &name, const Options &options);

// Verifies the database in the directory `dbname`, and writes the file anew that says what it is.
LEVELDB_EXPORT Status RepairDB(const std::string &dbname, const Options &options);

} // namespace leveldb

#endif
