// status.cc: statuses, and the engine's error strings as statuses.

#include "leveldb/status.h"

#include "engine.h"
#include "status_text.h"

namespace leveldb {

Status::Status(Code code, const Slice &msg, const Slice &msg2) {
    const size_t second = msg2.empty() ? 0 : 2 + msg2.size();
    const uint32_t length = static_cast<uint32_t>(msg.size() + second);
    char *state = new char[kStatusHeaderBytes + length];
    memcpy(state, &length, sizeof length);
    state[4] = static_cast<char>(code);
    memcpy(state + kStatusHeaderBytes, msg.data(), msg.size());
    if (second != 0) {
        char *rest = state + kStatusHeaderBytes + msg.size();
        memcpy(rest, ": ", 2);
        memcpy(rest + 2, msg2.data(), msg2.size());
    }
    state_ = state;
}

const char *Status::CopyState(const char *s) {
    const size_t bytes = kStatusHeaderBytes + status_length(s);
    char *copy = new char[bytes];
    memcpy(copy, s, bytes);
    return copy;
}

std::string Status::ToString() const { return status_text<std::string>(state_); }

Status status_of(char *error) {
    if (error == nullptr) return Status();
    Slice text(error);
    const auto begins = [&text](const char *kind) {
        if (!text.starts_with(kind)) return false;
        text.remove_prefix(strlen(kind));
        return true;
    };
    Status status;
    if (begins(kStatusKinds[1])) status = Status::NotFound(text);
    else if (begins(kStatusKinds[2])) status = Status::Corruption(text);
    else if (begins(kStatusKinds[3])) status = Status::NotSupported(text);
    else if (begins(kStatusKinds[4])) status = Status::InvalidArgument(text);
    else {
        begins(kStatusKinds[5]);
        status = Status::IOError(text);
    }
    leveldb_free(error);
    return status;
}

} // namespace leveldb
