/* Many threads on one database: gets in the right order and iterators see batches whole or not at all;
 * every thread reads its own writes.
 * Usage: threads DIRECTORY ROUNDS. */

#include "said.h"

#include <pthread.h>

#define WRITERS 4
#define READERS 3
#define PARTS 8

static leveldb_t *db;
static long rounds;
static volatile int done;

static void key_of(char *key, int writer, int part) { snprintf(key, 16, "w%d-part%d", writer, part); }

static void *write_on(void *arg) {
    int writer = (int)(intptr_t)arg;
    char key[16], value[32], *error = NULL;
    leveldb_writeoptions_t *how = leveldb_writeoptions_create();
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_set_sync(how, (uint8_t)(writer & 1));
    for (long round = 0; round < rounds; round++) {
        leveldb_writebatch_t *batch = leveldb_writebatch_create();
        int len = snprintf(value, sizeof value, "%010ld", round);
        for (int part = 0; part < PARTS; part++) {
            key_of(key, writer, part);
            /* Every third round without the odd parts. */
            if (round % 3 == 2 && (part & 1)) leveldb_writebatch_delete(batch, key, strlen(key));
            else leveldb_writebatch_put(batch, key, strlen(key), value, (size_t)len);
        }
        leveldb_write(db, how, batch, &error);
        expect_none("write", error);
        leveldb_writebatch_destroy(batch);
        size_t got_len;
        key_of(key, writer, 0);
        char *got = leveldb_get(db, reads, key, strlen(key), &got_len, &error);
        expect_none("get", error);
        CHECK(got != NULL && got_len == (size_t)len && memcmp(got, value, got_len) == 0);
        leveldb_free(got);
    }
    leveldb_writeoptions_destroy(how);
    leveldb_readoptions_destroy(reads);
    return NULL;
}

static void *read_on(void *arg) {
    long seen[WRITERS] = { 0 };
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    int backwards = (int)(intptr_t)arg & 1;
    while (!done) {
        long round[WRITERS];
        int parts[WRITERS] = { 0 };
        char *error = NULL;
        leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
        if (backwards) leveldb_iter_seek_to_last(iterator);
        else leveldb_iter_seek_to_first(iterator);
        for (; leveldb_iter_valid(iterator);
             backwards ? leveldb_iter_prev(iterator) : leveldb_iter_next(iterator)) {
            size_t len;
            const char *key = leveldb_iter_key(iterator, &len);
            int writer = key[1] - '0';
            CHECK(len == 8 && writer >= 0 && writer < WRITERS);
            const char *value = leveldb_iter_value(iterator, &len);
            CHECK(len == 10);
            char copy[11] = { 0 };
            memcpy(copy, value, 10);
            long here = strtol(copy, NULL, 10);
            CHECK(parts[writer] == 0 || round[writer] == here);
            round[writer] = here;
            parts[writer]++;
        }
        leveldb_iter_get_error(iterator, &error);
        expect_none("iterator", error);
        leveldb_iter_destroy(iterator);
        for (int w = 0; w < WRITERS; w++) {
            if (parts[w] == 0) continue;
            CHECK(parts[w] == (round[w] % 3 == 2 ? PARTS / 2 : PARTS));
            CHECK(round[w] >= seen[w]);
            seen[w] = round[w];
        }
    }
    leveldb_readoptions_destroy(reads);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    char path[4096], *error = NULL;
    snprintf(path, sizeof path, "%s/db", argv[1]);
    rounds = strtol(argv[2], NULL, 10);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, path, &error);
    expect_none("open", error);
    pthread_t writers[WRITERS], readers[READERS];
    for (intptr_t i = 0; i < WRITERS; i++) CHECK(pthread_create(&writers[i], NULL, write_on, (void *)i) == 0);
    for (intptr_t i = 0; i < READERS; i++) CHECK(pthread_create(&readers[i], NULL, read_on, (void *)i) == 0);
    for (int i = 0; i < WRITERS; i++) CHECK(pthread_join(writers[i], NULL) == 0);
    done = 1;
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(readers[i], NULL) == 0);
    leveldb_close(db);
    leveldb_options_destroy(options);
    printf("whole\n");
    return 0;
}
