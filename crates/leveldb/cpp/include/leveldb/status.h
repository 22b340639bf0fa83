// status.h: how a call ended: well, or with an error of one of five kinds and a message.
//
// Several threads may read one status at a time; a thread that changes it must be alone with it.
#ifndef MANGROVE_LEVELDB_STATUS_H
#define MANGROVE_LEVELDB_STATUS_H

#include <string>
#include <utility>

#include "leveldb/export.h"
#include "leveldb/slice.h"

namespace leveldb {

class LEVELDB_EXPORT Status {
public:
    // Success, which allocates nothing.
    Status() noexcept : state_(nullptr) {}
    ~Status() { delete[] state_; }

    Status(const Status &other) : state_(copy_of(other.state_)) {}
    Status(Status &&other) noexcept : state_(std::exchange(other.state_, nullptr)) {}

    Status &operator=(const Status &other) {
        if (state_ != other.state_) {
            const char *state = copy_of(other.state_);
            delete[] state_;
            state_ = state;
        }
        return *this;
    }

    Status &operator=(Status &&other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }

    static Status OK() { return Status(); }

    // Errors. The message is `msg`, or "msg: msg2" where there is a second part.
    static Status NotFound(const Slice &msg, const Slice &msg2 = Slice()) { return Status(kNotFound, msg, msg2); }
    static Status Corruption(const Slice &msg, const Slice &msg2 = Slice()) { return Status(kCorruption, msg, msg2); }
    static Status NotSupported(const Slice &msg, const Slice &msg2 = Slice()) {
        return Status(kNotSupported, msg, msg2);
    }
    static Status InvalidArgument(const Slice &msg, const Slice &msg2 = Slice()) {
        return Status(kInvalidArgument, msg, msg2);
    }
    static Status IOError(const Slice &msg, const Slice &msg2 = Slice()) { return Status(kIOError, msg, msg2); }

    bool ok() const { return state_ == nullptr; }
    bool IsNotFound() const { return code() == kNotFound; }
    bool IsCorruption() const { return code() == kCorruption; }
    bool IsIOError() const { return code() == kIOError; }
    bool IsNotSupportedError() const { return code() == kNotSupported; }
    bool IsInvalidArgument() const { return code() == kInvalidArgument; }

    // "OK", or the kind of the error and its message.
    std::string ToString() const;

private:
    friend struct Layout;

    // The values stand in programs.
    enum Code { kOk = 0, kNotFound = 1, kCorruption = 2, kNotSupported = 3, kInvalidArgument = 4, kIOError = 5 };

    Code code() const { return ok() ? kOk : static_cast<Code>(state_[4]); }

    Status(Code code, const Slice &msg, const Slice &msg2);

    static const char *copy_of(const char *state) { return state == nullptr ? nullptr : CopyState(state); }
    static const char *CopyState(const char *s);

    // Null for success, else an array from new[]: 4 bytes with the length of the message, 1 byte with the code, and
    // the message. Programs read, copy and delete it themselves.
    const char *state_;
};

} // namespace leveldb

#endif
