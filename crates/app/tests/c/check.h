/* What the C tests share: a check that names the place. */
#ifndef CHECK_H
#define CHECK_H

#include <mangrove_app.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _Exit(99);                                                              \
        }                                                                           \
    } while (0)

/* The call answers exactly this status. */
#define ANSWERS(expected, call)                                                            \
    do {                                                                                   \
        mangrove_app_status answer_ = (call);                                              \
        if (answer_ != (expected)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n  answered %s, expected %s\n  last error: %s\n",    \
                    __FILE__, __LINE__, #call, mangrove_app_status_name(answer_),           \
                    mangrove_app_status_name(expected), mangrove_app_last_error());         \
            _Exit(99);                                                                     \
        }                                                                                  \
    } while (0)

#define OK(call) ANSWERS(MANGROVE_APP_OK, call)

/* The last error's sentence holds this text. */
#define SAYS(text)                                                                                 \
    do {                                                                                           \
        if (strstr(mangrove_app_last_error(), (text)) == NULL) {                                   \
            fprintf(stderr, "%s:%d: '%s' does not say '%s'\n", __FILE__, __LINE__,                  \
                    mangrove_app_last_error(), (text));                                            \
            _Exit(99);                                                                             \
        }                                                                                          \
    } while (0)

#endif
