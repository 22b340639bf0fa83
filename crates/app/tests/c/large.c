/*
 * One write command that writes very much, and a kill right after its acknowledgement.
 *
 *   large STATE file|emulated HOW MIB    has one command write MIB MiB, and dies by SIGKILL when it is acknowledged
 *   large STATE verify                   finds all of it
 *
 * HOW: words (a loop of stores), copy (memset and memcpy), blocks (small blocks from malloc), twice (two commands,
 * the second one over what the first one wrote).
 */
#include "check.h"
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BLOCK_BYTES 1000

typedef struct block {
    struct block *next;
    uint64_t number;
    unsigned char bytes[BLOCK_BYTES];
} block;

static uint64_t *words;
static size_t words_count;
static unsigned char *copied;
static size_t copied_bytes;
static block *blocks;
static uint64_t blocks_count;
static uint64_t factor;

static size_t asked;

static void write_words(void *ctx) {
    (void)ctx;
    factor = 0x9e3779b97f4a7c15u;
    words_count = asked / 8;
    words = malloc(asked);
    CHECK(words != NULL);
    for (size_t i = 0; i < words_count; i++) words[i] = i * factor;
}

static void write_again(void *ctx) {
    (void)ctx;
    factor += 2;
    for (size_t i = 0; i < words_count; i++) words[i] = i * factor;
}

static void write_copies(void *ctx) {
    (void)ctx;
    copied_bytes = asked;
    copied = malloc(asked);
    CHECK(copied != NULL);
    memset(copied, 7, asked / 2);
    memset(copied + asked / 4, 9, asked / 8);
    memcpy(copied + asked / 2, copied, asked / 2);
}

static void write_blocks(void *ctx) {
    (void)ctx;
    for (size_t left = asked; left >= sizeof(block); left -= sizeof(block)) {
        block *b = malloc(sizeof *b);
        CHECK(b != NULL);
        b->next = blocks;
        b->number = blocks_count++;
        memset(b->bytes, (int)(b->number % 251), BLOCK_BYTES);
        blocks = b;
    }
}

static void verify(void *ctx) {
    (void)ctx;
    CHECK(words_count + copied_bytes + blocks_count > 0);
    for (size_t i = 0; i < words_count; i++) CHECK(words[i] == i * factor);
    for (size_t i = 0; i < copied_bytes; i++) {
        size_t at = i % (copied_bytes / 2);
        CHECK(copied[i] == (at >= copied_bytes / 4 && at < copied_bytes / 4 + copied_bytes / 8 ? 9 : 7));
    }
    uint64_t number = blocks_count;
    for (const block *b = blocks; b != NULL; b = b->next) {
        CHECK(b->number == --number);
        for (size_t i = 0; i < BLOCK_BYTES; i++) CHECK(b->bytes[i] == number % 251);
    }
    CHECK(number == 0);
}

/* A command on the state in its present condition. */
static void touch(void *ctx) {
    (void)ctx;
    if (words_count > 0) words[words_count / 2] = words_count / 2 * factor;
    free(malloc(100));
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = touch};
    mangrove_app_options *options = mangrove_app_options_new();
    mangrove_app *app;
    mangrove_app_client *client;
    CHECK(argc >= 3);
    const char *medium = argv[2];
    bool verifies = strncmp(medium, "verify", 6) == 0;
    if (strcmp(medium, "verify-mapped") == 0) {
        OK(mangrove_app_options_set_start(options, MANGROVE_APP_START_COPY_ON_WRITE));
    }
    if (strcmp(medium, "file") == 0) OK(mangrove_app_options_set_medium(options, MANGROVE_APP_MEDIUM_FILE));
    if (strcmp(medium, "emulated") == 0) OK(mangrove_app_options_set_medium(options, MANGROVE_APP_MEDIUM_EMULATED));
    OK(mangrove_app_open(argv[1], options, &callbacks, &app));
    mangrove_app_options_free(options);
    OK(mangrove_app_client_new(app, &client));
    if (verifies) {
        OK(mangrove_app_read(client, verify, NULL));
        OK(mangrove_app_write(client, touch, NULL));
        mangrove_app_client_free(client);
        OK(mangrove_app_close(app));
        return 0;
    }
    CHECK(argc == 5);
    const char *how = argv[3];
    asked = strtoul(argv[4], NULL, 10) * MIB;
    if (strcmp(how, "words") == 0) OK(mangrove_app_write(client, write_words, NULL));
    if (strcmp(how, "copy") == 0) OK(mangrove_app_write(client, write_copies, NULL));
    if (strcmp(how, "blocks") == 0) OK(mangrove_app_write(client, write_blocks, NULL));
    if (strcmp(how, "twice") == 0) {
        OK(mangrove_app_write(client, write_words, NULL));
        OK(mangrove_app_write(client, write_again, NULL));
    }
    kill(getpid(), SIGKILL);
    return 1;
}
