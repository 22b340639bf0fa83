// slice.h: bytes that belong to somebody else. A slice is a pointer and a length; it copies nothing and frees nothing,
// so the bytes must live as long as it is used.
#ifndef MANGROVE_LEVELDB_SLICE_H
#define MANGROVE_LEVELDB_SLICE_H

#include <cassert>
#include <cstddef>
#include <cstring>
#include <string>

#include "leveldb/export.h"

namespace leveldb {

class LEVELDB_EXPORT Slice {
public:
    // No bytes.
    Slice() : data_(""), size_(0) {}

    // The `n` bytes at `d`.
    Slice(const char *d, size_t n) : data_(d), size_(n) {}

    // The bytes of a string, which must not change meanwhile.
    Slice(const std::string &s) : data_(s.data()), size_(s.size()) {}

    // The bytes of a C string up to its end, the terminator not among them.
    Slice(const char *s) : data_(s), size_(strlen(s)) {}

    Slice(const Slice &) = default;
    Slice &operator=(const Slice &) = default;

    const char *data() const { return data_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    // A byte; `n` is less than size().
    char operator[](size_t n) const {
        assert(n < size_);
        return data_[n];
    }

    // Becomes a slice of no bytes.
    void clear() { *this = Slice(); }

    // Leaves out the first `n` bytes; there are that many.
    void remove_prefix(size_t n) {
        assert(n <= size_);
        data_ += n;
        size_ -= n;
    }

    // A copy of the bytes.
    std::string ToString() const { return std::string(data_, size_); }

    // Less than, equal to, or greater than 0 as these bytes come before `b`'s, are the same, or come after them: byte
    // by byte, without signs, a beginning before what continues it.
    int compare(const Slice &b) const {
        int order = memcmp(data_, b.data_, size_ < b.size_ ? size_ : b.size_);
        if (order != 0) return order;
        return size_ < b.size_ ? -1 : size_ > b.size_ ? 1 : 0;
    }

    // True when these bytes begin with `x`.
    bool starts_with(const Slice &x) const { return size_ >= x.size_ && memcmp(data_, x.data_, x.size_) == 0; }

private:
    friend struct Layout;

    const char *data_;
    size_t size_;
};

inline bool operator==(const Slice &x, const Slice &y) {
    return x.size() == y.size() && memcmp(x.data(), y.data(), x.size()) == 0;
}

inline bool operator!=(const Slice &x, const Slice &y) { return !(x == y); }

} // namespace leveldb

#endif
