/* What the C tests share: a check that names the place, and shorthand for text keys. */
#ifndef CHECK_H
#define CHECK_H

#include <mangrove.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* The call answers exactly this status. */
#define ANSWERS(expected, call)                                                         \
    do {                                                                                \
        mangrove_status answer_ = (call);                                               \
        if (answer_ != (expected)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n  answered %s, expected %s\n  last error: %s\n", \
                    __FILE__, __LINE__, #call, mangrove_status_name(answer_),            \
                    mangrove_status_name(expected), mangrove_last_error());             \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

#define OK(call) ANSWERS(MANGROVE_OK, call)

/* A string literal as pointer and length. */
#define S(literal) "" literal, sizeof(literal) - 1

/* A path below the scratch folder that the test was given. Eight may be in use at once. */
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
    CHECK(strcmp(value, expected) == 0); /* the NUL behind it too */
    mangrove_free(value);
}

static inline const char *scratch_of(int argc, char **argv) {
    CHECK(argc == 2);
    return argv[1];
}

#endif
