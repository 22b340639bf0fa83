/* An in-memory key-value store that knows nothing of durability: the paper's running example. */
#ifndef KV_H
#define KV_H

#include <stdbool.h>

enum { SLOT_COUNT = 4096, VALUE_BYTES = 100, REPLY_BYTES = 128 };

typedef enum kv_kind { KV_GET = 'G', KV_PUT = 'P' } kv_kind;

/* One request, as it comes over the wire too: fixed size, no padding. */
typedef struct kv_request {
    char kind;
    char index[7]; /* decimal, filled up with NULs */
    char value[VALUE_BYTES];
} kv_request;

/* Who asks. */
typedef struct kv_client {
    unsigned long id;
    const kv_request *request;
    char reply[REPLY_BYTES]; /* ends with a newline; NULs behind */
} kv_client;

/* Makes the store. 0 when it worked. */
int kv_init(void);

/* Does what the client's request says, and leaves the reply with the client. */
void kv_handle(kv_client *client);

/* Fills in a request. */
void kv_get(kv_request *request, unsigned index);
void kv_put(kv_request *request, unsigned index, const char *value);

#endif
