// status_text.h: what the state of a status says, as a string of either layout (old_strings.cc).
#ifndef MANGROVE_LEVELDB_STATUS_TEXT_H
#define MANGROVE_LEVELDB_STATUS_TEXT_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace leveldb {

// Bytes before the message: its length, and the code.
constexpr size_t kStatusHeaderBytes = 5;

// The words with which LevelDB begins a message, by code.
constexpr const char *kStatusKinds[] = {"OK",
                                        "NotFound: ",
                                        "Corruption: ",
                                        "Not implemented: ",
                                        "Invalid argument: ",
                                        "IO error: "};

inline uint32_t status_length(const char *state) {
    uint32_t length;
    memcpy(&length, state, sizeof length);
    return length;
}

template <typename String>
String status_text(const char *state) {
    if (state == nullptr) return kStatusKinds[0];
    const size_t kind = static_cast<unsigned char>(state[4]);
    String text;
    if (kind < sizeof kStatusKinds / sizeof *kStatusKinds) {
        text = kStatusKinds[kind];
    } else {
        char unknown[32];
        snprintf(unknown, sizeof unknown, "Unknown code(%zu): ", kind);
        text = unknown;
    }
    return text.append(state + kStatusHeaderBytes, status_length(state));
}

} // namespace leveldb

#endif
