/* What the heap's tests share: a small heap, and an access that ends the body where it must. */
#ifndef HEAP_H
#define HEAP_H

#include "check.h"

/* Passes on what an access answered, unless it is MANGROVE_OK. */
#define TRY(call)                                 \
    do {                                          \
        int tried_ = (call);                      \
        if (tried_ != MANGROVE_OK) return tried_; \
    } while (0)

static inline mangrove_heap *open_heap(const char *path) {
    mangrove_heap_options *options = mangrove_heap_options_new();
    mangrove_heap *heap;
    OK(mangrove_heap_options_set_capacity(options, 256 << 20));
    OK(mangrove_heap_options_set_log_bytes(options, 1 << 20));
    OK(mangrove_heap_open(path, options, &heap));
    mangrove_heap_options_free(options);
    return heap;
}

#endif
