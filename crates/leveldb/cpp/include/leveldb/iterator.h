// iterator.h: a place among records in the order of their keys.
//
// Several threads may call the const functions of one iterator at a time; a thread that moves it must be alone with
// it.
#ifndef MANGROVE_LEVELDB_ITERATOR_H
#define MANGROVE_LEVELDB_ITERATOR_H

#include "leveldb/export.h"
#include "leveldb/slice.h"
#include "leveldb/status.h"

namespace leveldb {

class LEVELDB_EXPORT Iterator {
public:
    Iterator();

    Iterator(const Iterator &) = delete;
    Iterator &operator=(const Iterator &) = delete;

    // Calls what RegisterCleanup() was given.
    virtual ~Iterator();

    // True when the iterator stands on a record.
    virtual bool Valid() const = 0;

    // Go to the first record, to the last, or to the first whose key is `target` or comes after it; where there is
    // none, the iterator stands on no record.
    virtual void SeekToFirst() = 0;
    virtual void SeekToLast() = 0;
    virtual void Seek(const Slice &target) = 0;

    // Go to the record after or before this one. Only for an iterator that stands on a record.
    virtual void Next() = 0;
    virtual void Prev() = 0;

    // Key and value of the record. The bytes are there until the iterator moves. Only for an iterator that stands on a
    // record.
    virtual Slice key() const = 0;
    virtual Slice value() const = 0;

    // Why the iterator stands on no record, if an error is the reason.
    virtual Status status() const = 0;

    // Has `function(arg1, arg2)` called when the iterator is deleted. Any number of them.
    using CleanupFunction = void (*)(void *arg1, void *arg2);
    void RegisterCleanup(CleanupFunction function, void *arg1, void *arg2);

private:
    friend struct Layout;

    // A call that waits for the end. The first lies in the iterator, without a function when there is none.
    struct CleanupNode {
        CleanupFunction function;
        void *arg1;
        void *arg2;
        CleanupNode *next;
    };

    CleanupNode cleanup_head_;
};

// An iterator over nothing.
LEVELDB_EXPORT Iterator *NewEmptyIterator();

// An iterator over nothing, with that status.
LEVELDB_EXPORT Iterator *NewErrorIterator(const Status &status);

} // namespace leveldb

#endif
