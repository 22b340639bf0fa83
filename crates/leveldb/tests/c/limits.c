/* Fills a database as far as it gets, and says why it ends.
 * Usage: limits DIRECTORY COUNT; COUNT records of a kilobyte are wanted. */

#include "said.h"

int main(int argc, char **argv) {
    CHECK(argc == 3);
    char path[4096], key[32], value[1000], *error = NULL;
    long count = strtol(argv[2], NULL, 10), number = 0;
    snprintf(path, sizeof path, "%s/db", argv[1]);
    memset(value, 'x', sizeof value);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_t *db = leveldb_open(options, path, &error);
    if (error != NULL) {
        printf("open: %s\n", error);
        return 0;
    }
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    for (; number < count && error == NULL; number++) {
        /* In no order. */
        snprintf(key, sizeof key, "%016lx", (unsigned long)number * 0x9e3779b97f4a7c15ul);
        leveldb_put(db, writes, key, 16, value, sizeof value, &error);
    }
    printf("wrote %ld\n", error == NULL ? number : number - 1);
    if (error != NULL) printf("put: %s\n", error);
    leveldb_free(error);
    error = NULL;
    /* It works on: reads, deletes, and what needs no more memory. */
    size_t len;
    snprintf(key, sizeof key, "%016lx", 0ul);
    char *got = leveldb_get(db, reads, key, 16, &len, &error);
    expect_none("get", error);
    CHECK(got != NULL && len == sizeof value);
    leveldb_free(got);
    leveldb_delete(db, writes, key, 16, &error);
    expect_none("delete", error);
    leveldb_put(db, writes, key, 16, value, sizeof value, &error);
    expect_none("put again", error);
    char *stats = leveldb_property_value(db, "leveldb.stats");
    char *memory = leveldb_property_value(db, "leveldb.approximate-memory-usage");
    CHECK(stats != NULL && memory != NULL);
    printf("%smemory %s\n", stats, memory);
    leveldb_free(stats);
    leveldb_free(memory);
    leveldb_close(db);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(writes);
    leveldb_options_destroy(options);
    return 0;
}
