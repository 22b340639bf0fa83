/* What the C tests share: checks that print their place. */
#ifndef CHECK_H
#define CHECK_H

#include <mangrove_app.h>
#include <string.h>
#include <testkit.h>

/* The call returns exactly this status. */
#define ANSWERS(expected, call) ANSWERS_OF(mangrove_app_status, mangrove_app_last_error, expected, call)

#define OK(call) ANSWERS(MANGROVE_APP_OK, call)

/* The last error's message holds this text. */
#define SAYS(text)                                                                                 \
    do {                                                                                           \
        if (strstr(mangrove_app_last_error(), (text)) == NULL) {                                   \
            fprintf(stderr, "%s:%d: '%s' does not say '%s'\n", __FILE__, __LINE__,                  \
                    mangrove_app_last_error(), (text));                                            \
            _Exit(99);                                                                             \
        }                                                                                          \
    } while (0)

#endif
