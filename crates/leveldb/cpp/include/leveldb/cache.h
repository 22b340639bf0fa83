// cache.h: a map from keys to values that forgets. Databases do not use it, since their records are in memory; it is
// there for programs that use one by itself.
#ifndef MANGROVE_LEVELDB_CACHE_H
#define MANGROVE_LEVELDB_CACHE_H

#include <cstddef>
#include <cstdint>

#include "leveldb/export.h"
#include "leveldb/slice.h"

namespace leveldb {

class Cache;

// A cache that holds charges of up to `capacity` together, and forgets first what was not used for longest.
LEVELDB_EXPORT Cache *NewLRUCache(size_t capacity);

// Any number of threads may use a cache at a time.
class LEVELDB_EXPORT Cache {
public:
    Cache() = default;

    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;

    // Forgets everything. No handle is held any more.
    virtual ~Cache();

    // An entry in use: returned to a caller, who has not given it back.
    struct Handle {};

    // Sets `key` to `value`, which counts `charge`. `deleter` gets both when the cache has forgotten the entry and
    // it is not in use. The caller uses the entry that is returned, and gives it back to Release().
    virtual Handle *Insert(const Slice &key, void *value, size_t charge,
                           void (*deleter)(const Slice &key, void *value)) = 0;

    // The entry of `key`, which the caller gives back to Release(); null when there is none.
    virtual Handle *Lookup(const Slice &key) = 0;

    // Gives an entry back.
    virtual void Release(Handle *handle) = 0;

    // The value of an entry in use.
    virtual void *Value(Handle *handle) = 0;

    // Forgets `key`. An entry in use lives until it is given back.
    virtual void Erase(const Slice &key) = 0;

    // A number that was not returned before, for programs that share a cache to put before their keys.
    virtual uint64_t NewId() = 0;

    // Forgets every entry that is not in use.
    virtual void Prune() {}

    // The charges of all entries together.
    virtual size_t TotalCharge() const = 0;

private:
    friend struct Layout;

    // A word that LevelDB has here; classes of programs begin after it.
    void *unused_;
};

} // namespace leveldb

#endif
