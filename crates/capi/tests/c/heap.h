/* What the heap's tests share: small heaps, and an access that ends the body where it must. */
#ifndef HEAP_H
#define HEAP_H

#include "check.h"

/* Passes on what an access answered, unless it is MANGROVE_OK. */
#define TRY(call)                                 \
    do {                                          \
        int tried_ = (call);                      \
        if (tried_ != MANGROVE_OK) return tried_; \
    } while (0)

/* A way to run transactions: an executor, a protocol, and the persistence domain of the emulated medium; without a
 * domain the file medium. */
typedef struct {
    const char *name;
    int32_t executor, protocol, domain;
} heap_way;

static const heap_way heap_ways[] = {
    {"records", MANGROVE_EXECUTOR_RECORDS, MANGROVE_PROTOCOL_AUTO, MANGROVE_DOMAIN_AUTO},
    {"lock-spht", MANGROVE_EXECUTOR_ONE_LOCK, MANGROVE_PROTOCOL_SPHT, MANGROVE_DOMAIN_ADR},
    {"lock-spht-eadr", MANGROVE_EXECUTOR_ONE_LOCK, MANGROVE_PROTOCOL_SPHT_EADR, MANGROVE_DOMAIN_EADR},
    {"model-spht", MANGROVE_EXECUTOR_HARDWARE_MODEL, MANGROVE_PROTOCOL_SPHT, MANGROVE_DOMAIN_ADR},
    {"model-spht-eadr", MANGROVE_EXECUTOR_HARDWARE_MODEL, MANGROVE_PROTOCOL_SPHT_EADR, MANGROVE_DOMAIN_EADR},
};

enum { HEAP_WAYS = sizeof heap_ways / sizeof *heap_ways };

/* NULL where this machine has no time stamps for the protocol, or is too busy to compare them. */
static inline mangrove_heap *open_heap_by(const heap_way *way, const char *path) {
    mangrove_heap_options *options = mangrove_heap_options_new();
    mangrove_heap *heap = NULL;
    mangrove_status status;
    OK(mangrove_heap_options_set_capacity(options, 256 << 20));
    OK(mangrove_heap_options_set_log_bytes(options, 1 << 20));
    OK(mangrove_heap_options_set_executor(options, way->executor));
    OK(mangrove_heap_options_set_protocol(options, way->protocol));
    if (way->domain != MANGROVE_DOMAIN_AUTO) {
        OK(mangrove_heap_options_set_emulated_latency(options, 0, 0));
        OK(mangrove_heap_options_set_domain(options, way->domain));
    }
    status = mangrove_heap_open(path, options, &heap);
    if (status != MANGROVE_OK && strstr(mangrove_last_error(), "time stamp counter") == NULL) OK(status);
    mangrove_heap_options_free(options);
    return heap;
}

/* By the default executor, on the file medium. */
static inline mangrove_heap *open_heap(const char *path) { return open_heap_by(&heap_ways[0], path); }

#endif
