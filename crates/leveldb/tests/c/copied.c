/* Overwrites a fixed set of keys in turn, for as long as it lives; or finds out whether what it wrote is there as of
 * one of its writes.
 * Usage: copied write|verify|spoil DIRECTORY; `spoil` takes a key back to its first write.
 * Write n puts the key n % KEYS. After the writes 0 to n each key has the last of those that went to it. */

#include "said.h"

#include <unistd.h>

#define KEYS 10000
#define VALUE_LEN 1000

static void value_of(char *value, long number) {
    uint64_t x = (uint64_t)number;
    memcpy(value, &number, sizeof number);
    for (size_t i = sizeof number; i < VALUE_LEN; i += 8) {
        uint64_t drawn = draw(&x);
        memcpy(value + i, &drawn, 8);
    }
}

static void write_on(leveldb_t *db) {
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create(), *soon = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(synced, 1);
    char key[64], value[VALUE_LEN], *error = NULL;
    for (long number = 0;; number++) {
        size_t key_len = (size_t)snprintf(key, sizeof key, "%08ld", number % KEYS);
        value_of(value, number);
        leveldb_put(db, number % 64 == 0 ? synced : soon, key, key_len, value, sizeof value, &error);
        expect_none("put", error);
        if (number % 1000 == 999 && write(1, ".\n", 2) != 2) exit(2);
    }
}

static void spoil(leveldb_t *db) {
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    char value[VALUE_LEN], *error = NULL;
    value_of(value, 3);
    leveldb_put(db, writes, "00000003", 8, value, sizeof value, &error);
    expect_none("put", error);
    leveldb_writeoptions_destroy(writes);
}

static void verify(leveldb_t *db) {
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(reads, 1);
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
    static long numbers[KEYS];
    long count = 0, last = -1;
    for (leveldb_iter_seek_to_first(iterator); leveldb_iter_valid(iterator); leveldb_iter_next(iterator)) {
        char copy[9] = { 0 }, value[VALUE_LEN];
        size_t len;
        const char *key = leveldb_iter_key(iterator, &len);
        CHECK(len == 8);
        memcpy(copy, key, len);
        /* Without gaps, from the first key on. */
        CHECK(strtol(copy, NULL, 10) == count);
        const char *found = leveldb_iter_value(iterator, &len);
        CHECK(len == VALUE_LEN);
        memcpy(&numbers[count], found, sizeof numbers[0]);
        value_of(value, numbers[count]);
        CHECK(memcmp(found, value, len) == 0 && numbers[count] % KEYS == count);
        if (numbers[count] > last) last = numbers[count];
        count++;
    }
    char *error = NULL;
    leveldb_iter_get_error(iterator, &error);
    expect_none("walk", error);
    CHECK(count == (last + 1 < KEYS ? last + 1 : KEYS));
    for (long key = 0; key < count; key++) CHECK(numbers[key] <= last && numbers[key] > last - KEYS);
    printf("the writes to %ld\n", last);
    leveldb_iter_destroy(iterator);
    leveldb_readoptions_destroy(reads);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int writes = strcmp(argv[1], "write") == 0;
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, writes);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_t *db = leveldb_open(options, argv[2], &error);
    leveldb_options_destroy(options);
    if (error != NULL) {
        printf("%s\n", error);
        leveldb_free(error);
        return 0;
    }
    if (writes) write_on(db);
    if (strcmp(argv[1], "spoil") == 0) spoil(db);
    else verify(db);
    leveldb_close(db);
    return 0;
}
