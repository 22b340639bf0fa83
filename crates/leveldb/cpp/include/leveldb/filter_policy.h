// filter_policy.h: summaries of sets of keys. Databases do not use them, since no read searches a disk; they are there
// for programs that use one by itself.
#ifndef MANGROVE_LEVELDB_FILTER_POLICY_H
#define MANGROVE_LEVELDB_FILTER_POLICY_H

#include <string>

#include "leveldb/export.h"

namespace leveldb {

class Slice;

// Any number of threads may call a policy at a time.
class LEVELDB_EXPORT FilterPolicy {
public:
    virtual ~FilterPolicy();

    // The name of the filters' form.
    virtual const char *Name() const = 0;

    // Appends to `*dst` a filter of the `n` keys.
    virtual void CreateFilter(const Slice *keys, int n, std::string *dst) const = 0;

    // True when `key` is one of those that the filter was made of; nearly always false when it is not.
    virtual bool KeyMayMatch(const Slice &key, const Slice &filter) const = 0;
};

// Bloom filters of about that many bits a key; 10 let one other key in a hundred pass. The caller deletes the policy.
LEVELDB_EXPORT const FilterPolicy *NewBloomFilterPolicy(int bits_per_key);

} // namespace leveldb

#endif
