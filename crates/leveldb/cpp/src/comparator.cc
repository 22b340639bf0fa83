// comparator.cc: the order byte by byte.

#include "leveldb/comparator.h"

#include <algorithm>

#include "leveldb/slice.h"

namespace leveldb {

Comparator::~Comparator() = default;

namespace {

class Bytewise final : public Comparator {
public:
    int Compare(const Slice &a, const Slice &b) const override { return a.compare(b); }

    const char *Name() const override { return "leveldb.BytewiseComparator"; }

    // Cuts `*start` behind the first byte that differs from the limit's and can be made greater.
    void FindShortestSeparator(std::string *start, const Slice &limit) const override {
        const size_t both = std::min(start->size(), limit.size());
        size_t at = 0;
        while (at < both && (*start)[at] == limit[at]) at++;
        if (at == both) return;
        const unsigned char byte = static_cast<unsigned char>((*start)[at]);
        if (byte + 1 >= static_cast<unsigned char>(limit[at])) return;
        (*start)[at] = static_cast<char>(byte + 1);
        start->resize(at + 1);
    }

    // Cuts `*key` behind the first byte that can be made greater.
    void FindShortSuccessor(std::string *key) const override {
        const size_t at = key->find_first_not_of('\xff');
        if (at == std::string::npos) return;
        (*key)[at] = static_cast<char>((*key)[at] + 1);
        key->resize(at + 1);
    }
};

} // namespace

const Comparator *BytewiseComparator() {
    // Never destroyed: databases may be used while the process ends.
    static const Comparator *const bytewise = new Bytewise;
    return bytewise;
}

} // namespace leveldb
