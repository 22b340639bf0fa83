#include <stdlib.h>
#include <string.h>
#include <zlib.h>
static unsigned char *in, *out, *back;
void zlib_round_trip(void *arg) {
    size_t n = (size_t)arg;
    if (!in) { in = malloc(1 << 20); out = malloc(2 << 20); back = malloc(1 << 20);
        for (size_t i = 0; i < 1 << 20; i++) in[i] = (i * i >> 5) ^ (i % 97); }
    uLongf packed = 2 << 20, size = 1 << 20;
    if (compress2(out, &packed, in, n, 6) != Z_OK || uncompress(back, &size, out, packed) != Z_OK || size != n ||
        memcmp(in, back, n)) abort();
}
void zlib_deflate(void *arg) {
    uLongf packed = 2 << 20; if (!in) zlib_round_trip((void *)1000);
    if (compress2(out, &packed, in, (size_t)arg, 6) != Z_OK) abort();
}
