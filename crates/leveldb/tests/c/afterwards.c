/* A database is closed before what was made of it: an iterator that still walks, and snapshots, are freed later.
 * Usage: afterwards DIRECTORY. LevelDB does not allow it; docs/leveldb.md does. */

#include "said.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    char path[4096], *error = NULL;
    snprintf(path, sizeof path, "%s/db", argv[1]);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    leveldb_t *db = leveldb_open(options, path, &error);
    expect_none("open", error);
    leveldb_put(db, writes, "tide", 4, "high", 4, &error);
    expect_none("put", error);
    const leveldb_snapshot_t *first = leveldb_create_snapshot(db), *second = leveldb_create_snapshot(db);
    leveldb_put(db, writes, "tide", 4, "low", 3, &error);
    expect_none("put", error);
    leveldb_readoptions_set_snapshot(reads, first);
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
    leveldb_close(db);
    leveldb_release_snapshot(db, first);
    size_t len;
    leveldb_iter_seek_to_first(iterator);
    CHECK(leveldb_iter_valid(iterator));
    const char *value = leveldb_iter_value(iterator, &len);
    CHECK(len == 4 && memcmp(value, "high", 4) == 0);
    leveldb_iter_destroy(iterator);
    /* The second snapshot still keeps it open. */
    db = leveldb_open(options, path, &error);
    CHECK(db == NULL && error != NULL);
    leveldb_free(error);
    error = NULL;
    leveldb_release_snapshot(NULL, second);
    db = leveldb_open(options, path, &error);
    expect_none("open again", error);
    leveldb_readoptions_set_snapshot(reads, NULL);
    char *now = leveldb_get(db, reads, "tide", 4, &len, &error);
    CHECK(now != NULL && len == 3 && memcmp(now, "low", 3) == 0);
    leveldb_free(now);
    leveldb_close(db);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(writes);
    leveldb_options_destroy(options);
    return 0;
}
