// said.h: what the programs of this directory share: statuses reduced to the part that must be the same in every
// implementation, and checks.
#ifndef SAID_H
#define SAID_H

#include <leveldb/status.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

// Prints the kind of a status, which ends at the first colon.
inline void say(const char *what, const leveldb::Status &status) {
    const std::string text = status.ToString();
    printf("%s: %s\n", what, text.substr(0, text.find(':')).c_str());
    if (getenv("SAID_ALOUD") != nullptr) fprintf(stderr, "%s: %s\n", what, text.c_str());
}

inline void say(const char *what, bool yes) { printf("%s: %s\n", what, yes ? "yes" : "no"); }

inline void say(const char *what, const std::string &text) { printf("%s: '%s'\n", what, text.c_str()); }

inline void say(const char *what, uint64_t number) {
    printf("%s: %llu\n", what, static_cast<unsigned long long>(number));
}

// Ends the program unless the status is success.
inline void must(const char *what, const leveldb::Status &status) {
    if (status.ok()) return;
    fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
    exit(1);
}

#endif
