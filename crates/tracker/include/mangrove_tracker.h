/* Store callbacks for programs built by clang with -fsanitize-coverage=func,trace-stores.
 *
 * Include this header in exactly ONE source file of the program, built WITHOUT that option, and link with
 * -flto and with
 *   -Wl,--wrap=memcpy -Wl,--wrap=memmove -Wl,--wrap=memset
 * so that copies are seen too (-fno-builtin-memcpy -fno-builtin-memmove -fno-builtin-memset keeps clang from
 * expanding them in line, where only their single stores would be seen). Stores of libraries that were not
 * built like this are not seen. Nor are those that clang has no callback for: copies of structs that it expands
 * in line (*p = *q), atomic read-modify-write and compare-and-swap, and stores of other sizes than 1, 2, 4, 8
 * and 16 bytes (long double, wide vectors, masked stores). Call mangrove_tracker_note before such a store. */
#ifndef MANGROVE_TRACKER_H
#define MANGROVE_TRACKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Identity of the thread in a tracked call; 0 if there is none. */
extern uintptr_t mangrove_tracker_thread;
void mangrove_tracker_store(const void *addr, size_t len);

#define MANGROVE_TRACKER_PLAIN __attribute__((no_sanitize("coverage"), used))

static inline __attribute__((always_inline, no_sanitize("coverage"))) void
mangrove_tracker_note(const void *addr, size_t len) {
    uintptr_t thread = mangrove_tracker_thread;
    if (__builtin_expect(thread != 0, 0)) {
#if defined(__x86_64__)
        uintptr_t self;
        __asm__("mov %%fs:0, %0" : "=r"(self));
        if (self != thread)
            return;
#endif
        mangrove_tracker_store(addr, len);
    }
}

MANGROVE_TRACKER_PLAIN void __sanitizer_cov_store1(uint8_t *addr) { mangrove_tracker_note(addr, 1); }
MANGROVE_TRACKER_PLAIN void __sanitizer_cov_store2(uint16_t *addr) { mangrove_tracker_note(addr, 2); }
MANGROVE_TRACKER_PLAIN void __sanitizer_cov_store4(uint32_t *addr) { mangrove_tracker_note(addr, 4); }
MANGROVE_TRACKER_PLAIN void __sanitizer_cov_store8(uint64_t *addr) { mangrove_tracker_note(addr, 8); }
MANGROVE_TRACKER_PLAIN void __sanitizer_cov_store16(void *addr) { mangrove_tracker_note(addr, 16); }

void *__real_memcpy(void *to, const void *from, size_t len);
void *__real_memmove(void *to, const void *from, size_t len);
void *__real_memset(void *to, int byte, size_t len);
MANGROVE_TRACKER_PLAIN void *__wrap_memcpy(void *to, const void *from, size_t len) {
    mangrove_tracker_note(to, len);
    return __real_memcpy(to, from, len);
}
MANGROVE_TRACKER_PLAIN void *__wrap_memmove(void *to, const void *from, size_t len) {
    mangrove_tracker_note(to, len);
    return __real_memmove(to, from, len);
}
MANGROVE_TRACKER_PLAIN void *__wrap_memset(void *to, int byte, size_t len) {
    mangrove_tracker_note(to, len);
    return __real_memset(to, byte, len);
}

#ifdef __cplusplus
}
#endif
#endif
