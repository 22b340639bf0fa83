/* The processor time of a record in batches of a given length: of all threads, to the end of closing.
 * Usage: batches DIRECTORY LENGTH RECORDS; RECORDS records of 116 bytes in batches of LENGTH, keys in no order. */

#include "said.h"

#include <time.h>

static double used(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    long length = strtol(argv[2], NULL, 10), records = strtol(argv[3], NULL, 10);
    char key[32], value[100], *error = NULL;
    memset(value, 'x', sizeof value);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    leveldb_t *db = leveldb_open(options, argv[1], &error);
    expect_none("open", error);
    double before = used();
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    for (long number = 0; number < records; number++) {
        snprintf(key, sizeof key, "%016lx", (unsigned long)number * 0x9e3779b97f4a7c15ul);
        leveldb_writebatch_put(batch, key, 16, value, sizeof value);
        if ((number + 1) % length != 0) continue;
        leveldb_writeoptions_set_sync(writes, number + 1 == records);
        leveldb_write(db, writes, batch, &error);
        expect_none("write", error);
        leveldb_writebatch_clear(batch);
    }
    leveldb_writebatch_destroy(batch);
    leveldb_close(db);
    printf("%.0f ns a record\n", (used() - before) * 1e9 / (double)records);
    leveldb_options_destroy(options);
    leveldb_writeoptions_destroy(writes);
    return 0;
}
