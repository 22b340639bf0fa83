/*
 * The same steps as `mangrove-stress space`, with LevelDB's C API.
 *
 *     leveldb DIRECTORY whole|rest|open RECORDS VALUE
 */
#include <inttypes.h>
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steps.h"

static void check(char *error) {
    if (error == NULL) return;
    fprintf(stderr, "%s\n", error);
    exit(3);
}

/* The finaliser of SplitMix64: no two numbers give the same key, and keys come in no order. */
static void key_of(uint64_t n, char *key) {
    uint64_t x = n + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    snprintf(key, 17, "%016" PRIx64, x);
}

static leveldb_t *db;
static uint64_t records;
static size_t value_len;

static void fill(uint64_t step) {
    leveldb_writeoptions_t *write = leveldb_writeoptions_create();
    char *value = calloc(1, value_len), *error = NULL, key[17];
    for (uint64_t n = 0; n < records; n += step) {
        key_of(n, key);
        memcpy(value, &n, sizeof n);
        leveldb_put(db, write, key, 16, value, value_len, &error);
        check(error);
    }
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    free(value);
    leveldb_writeoptions_destroy(write);
}

static void delete_most(void) {
    leveldb_writeoptions_t *write = leveldb_writeoptions_create();
    char *error = NULL, key[17];
    for (uint64_t n = 0; n < records; n++) {
        if (n % ONE_STAYS == 0) continue;
        key_of(n, key);
        leveldb_delete(db, write, key, 16, &error);
        check(error);
    }
    leveldb_writeoptions_destroy(write);
}

static void read_all(void) {
    leveldb_readoptions_t *read = leveldb_readoptions_create();
    leveldb_iterator_t *it = leveldb_create_iterator(db, read);
    uint64_t found = 0;
    for (leveldb_iter_seek_to_first(it); leveldb_iter_valid(it); leveldb_iter_next(it)) found++;
    leveldb_iter_destroy(it);
    leveldb_readoptions_destroy(read);
    if (found != (records + ONE_STAYS - 1) / ONE_STAYS) {
        fprintf(stderr, "%" PRIu64 " records are there\n", found);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    records = strtoull(argv[3], NULL, 10);
    value_len = strtoull(argv[4], NULL, 10);
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, argv[1], &error);
    check(error);
    if (strcmp(argv[2], "whole") == 0) {
        fill(1);
        pause_at("filled");
        delete_most();
        pause_at("nine tenths deleted");
        leveldb_compact_range(db, NULL, 0, NULL, 0);
        pause_at("compacted");
    } else if (strcmp(argv[2], "rest") == 0) {
        fill(ONE_STAYS);
        pause_at("a fresh load of the rest");
    } else {
        read_all();
        pause_at("opened again");
    }
    leveldb_close(db);
    leveldb_options_destroy(options);
    return 0;
}
