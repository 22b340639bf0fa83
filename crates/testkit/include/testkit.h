/* What C tests share: a check that prints its file and line. */
#ifndef MANGROVE_TESTKIT_H
#define MANGROVE_TESTKIT_H

#include <stdio.h>
#include <stdlib.h>

/* _Exit, not exit: a failed check must not run what the process does at its end. */
#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _Exit(99);                                                              \
        }                                                                           \
    } while (0)

/* The call returns exactly this status, of an API that has TYPE, TYPE_name and a message of its last error. */
#define ANSWERS_OF(type, last_error, expected, call)                                        \
    do {                                                                                    \
        type answer_ = (call);                                                              \
        if (answer_ != (expected)) {                                                        \
            fprintf(stderr, "%s:%d: %s\n  answered %s, expected %s\n  last error: %s\n",     \
                    __FILE__, __LINE__, #call, type##_name(answer_), type##_name(expected), \
                    last_error());                                                          \
            _Exit(99);                                                                      \
        }                                                                                   \
    } while (0)

#endif
