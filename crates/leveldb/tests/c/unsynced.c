/* Writes without sync, then ends as it is told; the next run finds everything that returned.
 * Usage: unsynced DIRECTORY FIRST HOW; records 0 to FIRST are there, and as many again are written as each run writes.
 * HOW is kill, _exit, exec, exit, return, close. */

#include "said.h"

#include <signal.h>
#include <unistd.h>

enum { COUNT = 1000 };

static void text_of(char *key, char *value, long number) {
    snprintf(key, 32, "k%08ld", number);
    snprintf(value, 64, "the value of record %ld", number);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    char path[4096], key[32], value[64], *error = NULL;
    long first = strtol(argv[2], NULL, 10);
    const char *how = argv[3];
    snprintf(path, sizeof path, "%s/db", argv[1]);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_t *db = leveldb_open(options, path, &error);
    expect_none("open", error);
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    for (long number = 0; number < first; number++) {
        size_t len;
        text_of(key, value, number);
        char *got = leveldb_get(db, reads, key, strlen(key), &len, &error);
        expect_none("get", error);
        if (got == NULL) {
            printf("record %ld of %ld is lost\n", number, first);
            return 1;
        }
        CHECK(len == strlen(value) && memcmp(got, value, len) == 0);
        leveldb_free(got);
    }
    for (long number = first; number < first + COUNT;) {
        text_of(key, value, number++);
        if (number % 10 != 0) leveldb_put(db, writes, key, strlen(key), value, strlen(value), &error);
        else {
            leveldb_writebatch_t *batch = leveldb_writebatch_create();
            leveldb_writebatch_put(batch, key, strlen(key), value, strlen(value));
            leveldb_writebatch_delete(batch, "none", 4);
            leveldb_write(db, writes, batch, &error);
            leveldb_writebatch_destroy(batch);
        }
        expect_none("write", error);
    }
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "_exit") == 0) _exit(0);
    if (strcmp(how, "exec") == 0) execlp("true", "true", (char *)NULL);
    if (strcmp(how, "exit") == 0) exit(0);
    if (strcmp(how, "close") == 0) leveldb_close(db);
    return 0;
}
