// iterator.cc: what all iterators share, and iterators over nothing.

#include "leveldb/iterator.h"

namespace leveldb {

Iterator::Iterator() : cleanup_head_{nullptr, nullptr, nullptr, nullptr} {}

Iterator::~Iterator() {
    CleanupNode *node = &cleanup_head_;
    if (node->function == nullptr) return;
    node->function(node->arg1, node->arg2);
    for (node = node->next; node != nullptr;) {
        CleanupNode *next = node->next;
        node->function(node->arg1, node->arg2);
        delete node;
        node = next;
    }
}

void Iterator::RegisterCleanup(CleanupFunction function, void *arg1, void *arg2) {
    assert(function != nullptr);
    if (cleanup_head_.function == nullptr) {
        cleanup_head_ = {function, arg1, arg2, nullptr};
    } else {
        cleanup_head_.next = new CleanupNode{function, arg1, arg2, cleanup_head_.next};
    }
}

namespace {

class NoRecords final : public Iterator {
public:
    explicit NoRecords(const Status &status) : status_(status) {}

    bool Valid() const override { return false; }
    void SeekToFirst() override {}
    void SeekToLast() override {}
    void Seek(const Slice &) override {}
    void Next() override {}
    void Prev() override {}
    Slice key() const override { return Slice(); }
    Slice value() const override { return Slice(); }
    Status status() const override { return status_; }

private:
    Status status_;
};

} // namespace

Iterator *NewEmptyIterator() { return new NoRecords(Status()); }

Iterator *NewErrorIterator(const Status &status) { return new NoRecords(status); }

} // namespace leveldb
