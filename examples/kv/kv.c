#include "kv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The whole state: one pointer in .bss, and what it leads to. */
static char *store;
static unsigned long puts_done;

int kv_init(void) {
    store = calloc(SLOT_COUNT, VALUE_BYTES);
    return store == NULL;
}

static void get(kv_client *client, char *slot) {
    snprintf(client->reply, REPLY_BYTES, "%.*s\n", VALUE_BYTES - 1, slot);
}

static void put(kv_client *client, char *slot) {
    memcpy(slot, client->request->value, VALUE_BYTES);
    puts_done++;
    snprintf(client->reply, REPLY_BYTES, "OK %lu\n", puts_done);
}

void kv_handle(kv_client *client) {
    char index[sizeof client->request->index + 1] = {0};
    memcpy(index, client->request->index, sizeof client->request->index);
    char *slot = store + strtoul(index, NULL, 10) % SLOT_COUNT * VALUE_BYTES;
    if (client->request->kind == KV_PUT)
        put(client, slot);
    else
        get(client, slot);
}

static void fill(kv_request *request, kv_kind kind, unsigned index) {
    char text[16];
    memset(request, 0, sizeof *request);
    request->kind = (char)kind;
    snprintf(text, sizeof text, "%u", index % SLOT_COUNT);
    memcpy(request->index, text, strlen(text));
}

void kv_get(kv_request *request, unsigned index) {
    fill(request, KV_GET, index);
}

void kv_put(kv_request *request, unsigned index, const char *value) {
    size_t len = strlen(value);
    fill(request, KV_PUT, index);
    memcpy(request->value, value, len < VALUE_BYTES ? len : VALUE_BYTES - 1);
}
