/* A library that a program loads when it runs, with a function that a state points to. */
#ifndef START
#define START 0
#endif
#ifndef STEP
#define STEP 1
#endif
int plugged(const char *text);

#ifdef HOLDS
/* It holds a block that a command allocated, and frees it at its end. Without a text: whether the block is whole. */
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4000 };
static unsigned char *block;

static void release(void) {
    free(block);
    block = NULL;
}

__attribute__((constructor)) static void begin(void) {
    if (atexit(release) != 0) abort();
}

int plugged(const char *text) {
    int is_whole = block != NULL;
    if (text != NULL && block == NULL) {
        block = malloc(BYTES);
        if (block != NULL) memset(block, 7, BYTES);
        return START;
    }
    for (int i = 0; i < BYTES && is_whole; i++) is_whole = block[i] == 7;
    return is_whole ? STEP : START;
}
#else
static int count = START;

int plugged(const char *text) {
    return text == 0 ? count : text[0] + (count += STEP);
}
#endif
