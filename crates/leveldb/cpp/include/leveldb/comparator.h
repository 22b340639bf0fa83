// comparator.h: an order of keys.
#ifndef MANGROVE_LEVELDB_COMPARATOR_H
#define MANGROVE_LEVELDB_COMPARATOR_H

#include <string>

#include "leveldb/export.h"

namespace leveldb {

class Slice;

// Any number of threads may call a comparator at a time.
class LEVELDB_EXPORT Comparator {
public:
    virtual ~Comparator();

    // Less than, equal to, or greater than 0 as `a` comes before `b`, is the same key, or comes after it. An exception
    // makes the call on the database fail that needed the answer.
    virtual int Compare(const Slice &a, const Slice &b) const = 0;

    // The name of the order, which a database stores; an order that changes gets another name. Names that begin with
    // "leveldb." are LevelDB's.
    virtual const char *Name() const = 0;

    // May make `*start` shorter, to a string that is not before what it was, and before `limit`. Not called here.
    virtual void FindShortestSeparator(std::string *start, const Slice &limit) const = 0;

    // May make `*key` shorter, to a string that is not before what it was. Not called here.
    virtual void FindShortSuccessor(std::string *key) const = 0;
};

// The order byte by byte, without signs. It is never deleted.
LEVELDB_EXPORT const Comparator *BytewiseComparator();

} // namespace leveldb

#endif
