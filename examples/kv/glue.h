/* What makes the store durable: the callbacks that both programs share. */
#ifndef GLUE_H
#define GLUE_H

#include "kv.h"
#include <mangrove_app.h>
#include <stdio.h>
#include <stdlib.h>

static inline int glue_init_state(void *user) {
    (void)user;
    return kv_init();
}

static inline bool glue_is_read_only(void *ctx) {
    return ((kv_client *)ctx)->request->kind != KV_PUT;
}

static inline void glue_process(void *ctx) {
    kv_handle(ctx);
}

/* Ends the program with the library's message when something failed. */
static inline void must(mangrove_app_status status) {
    if (status != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        exit(1);
    }
}

#endif
