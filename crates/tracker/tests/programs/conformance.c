// One program for every tracker: plain stores, structures, copies, globals. EXPLICIT marks by hand; COMPILER is built
// with clang's callbacks; otherwise no store is reported.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef EXPLICIT
void (*conformance_mark)(const void *, size_t);
#define WRITES(p, n) conformance_mark(p, n)
#else
#define WRITES(p, n) ((void)0)
#endif
#ifdef COMPILER
uintptr_t *conformance_thread;
void (*conformance_store)(const void *, size_t);
static void note(const void *p, size_t n) __attribute__((no_sanitize("coverage")));
static void note(const void *p, size_t n) {
    uintptr_t self; __asm__("mov %%fs:0, %0" : "=r"(self));
    if (conformance_thread && *conformance_thread == self) conformance_store(p, n);
}
#define CALLBACK __attribute__((no_sanitize("coverage")))
CALLBACK void __sanitizer_cov_store1(uint8_t *p) { note(p, 1); }
CALLBACK void __sanitizer_cov_store2(uint16_t *p) { note(p, 2); }
CALLBACK void __sanitizer_cov_store4(uint32_t *p) { note(p, 4); }
CALLBACK void __sanitizer_cov_store8(uint64_t *p) { note(p, 8); }
CALLBACK void __sanitizer_cov_store16(void *p) { note(p, 16); }
CALLBACK static void *copy(void *to, const void *from, size_t n) { note(to, n); return memcpy(to, from, n); }
CALLBACK static void *fill(void *to, int byte, size_t n) { note(to, n); return memset(to, byte, n); }
#else
#define copy(to, from, n) (WRITES(to, n), memcpy(to, from, n))
#define fill(to, byte, n) (WRITES(to, n), memset(to, byte, n))
#endif
struct node { struct node *next; uint64_t key; uint8_t kind; uint16_t size; uint32_t hash; char text[200]; };
static struct node nodes[64];
static int64_t counter;
static double real;
char conformance_area[8192] __attribute__((aligned(64)));
#define STORE(place, value) do { WRITES(&(place), sizeof(place)); (place) = (value); } while (0)
void conformance_small(void *arg) {
    STORE(counter, counter + 1); STORE(real, real * 2 + 1); STORE(conformance_area[5], (char)counter);
    STORE(*(uint16_t *)(conformance_area + 100), (uint16_t)counter);
    STORE(*(uint32_t *)(conformance_area + 200), (uint32_t)counter);
    STORE(*(uint64_t *)(conformance_area + 300), 7 * (uint64_t)counter);
    STORE(*(uint64_t *)(conformance_area + 318), 9 * (uint64_t)counter);
}
void conformance_list(void *arg) {
    for (int i = 0; i < 64; i++) {
        struct node *n = &nodes[i];
        STORE(n->next, &nodes[(i * 7 + (int)counter) % 64]); STORE(n->key, n->key + i + 1);
        STORE(n->kind, (uint8_t)(n->kind + 1));
        STORE(n->size, (uint16_t)(n->size + 3)); STORE(n->hash, n->hash * 31 + 5);
    }
}
void conformance_copies(void *arg) {
    static unsigned char value; value++;
    WRITES(&value, 1);
    fill(conformance_area + 1000, value, 300); copy(nodes[3].text, conformance_area + 900, 180);
    copy(conformance_area + 2000, conformance_area, 1000); fill(conformance_area + 4000, value + 1, 33);
}
