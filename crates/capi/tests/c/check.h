/* What the C tests share: a check that prints its place, and shorthand for text keys. */
#ifndef CHECK_H
#define CHECK_H

#include <mangrove.h>
#include <string.h>
#include <testkit.h>

/* The call returns exactly this status. */
#define ANSWERS(expected, call) ANSWERS_OF(mangrove_status, mangrove_last_error, expected, call)

#define OK(call) ANSWERS(MANGROVE_OK, call)

/* A string literal as pointer and length. */
#define S(literal) "" literal, sizeof(literal) - 1

/* A path below the scratch directory that the test was given. Eight may be in use at once. */
static inline const char *below(const char *folder, const char *name) {
    static char paths[8][512];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    CHECK(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0]);
    return path;
}

/* The value of a text key is this text. */
static inline void value_is(const mangrove_map *map, const char *key, const char *expected) {
    void *value;
    size_t len;
    OK(mangrove_map_get(map, key, strlen(key), &value, &len));
    CHECK(len == strlen(expected));
    CHECK(strcmp((const char *)value, expected) == 0); /* the NUL after it too */
    mangrove_free(value);
}

/* How many records are in a map. */
static inline uint64_t records_of(const mangrove_map *map) {
    uint64_t len;
    OK(mangrove_map_len(map, &len));
    return len;
}

static inline const char *scratch_of(int argc, char **argv) {
    CHECK(argc == 2);
    return argv[1];
}

#endif
