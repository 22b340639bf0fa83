/* What the programs of this directory share: checks, and error strings reduced to the part that must be
 * the same in every implementation of the API: the kind of the error. */
#ifndef SAID_H
#define SAID_H

#include <leveldb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <testkit.h>

/* Prints the kind of an error, which ends at the first colon, or "ok"; frees the string. */
static inline void say_error(const char *what, char **error) {
    if (*error == NULL) {
        printf("%s: ok\n", what);
        return;
    }
    const char *end = strchr(*error, ':');
    printf("%s: %.*s\n", what, end ? (int)(end - *error) : 999, *error);
    if (getenv("SAID_ALOUD") != NULL) fprintf(stderr, "%s: %s\n", what, *error);
    leveldb_free(*error);
    *error = NULL;
}

static inline void expect_none(const char *what, char *error) {
    if (error == NULL) return;
    fprintf(stderr, "%s: %s\n", what, error);
    exit(1);
}

/* Prints bytes so that any of them can be seen; long ones by length and a sum. */
static inline void say_bytes(const char *bytes, size_t len) {
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < len; i++) sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
    if (len > 24) {
        printf("[%zu bytes %016llx]", len, (unsigned long long)sum);
        return;
    }
    putchar('"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= ' ' && c < 127) putchar(c);
        else printf("\\%02x", c);
    }
    putchar('"');
}

/* A fixed sequence of numbers that look random. */
static inline uint64_t draw(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

#endif
