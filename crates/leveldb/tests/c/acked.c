/* Writes with sync from several threads and prints each number once it is acknowledged; or verifies that
 * all numbers printed are there. Meant to be killed.
 * Usage: acked write DIRECTORY THREADS | acked verify DIRECTORY THREADS < its output
 * Each thread counts up from its last number in the database. It puts a record of its own for each number,
 * and every eighth number in one batch with its successor and a deletion. */

#include "said.h"

#include <pthread.h>
#include <unistd.h>

#define WINDOW 1000

static leveldb_t *db;
static leveldb_readoptions_t *reads;
static leveldb_writeoptions_t *synced;

static size_t key_of(char *key, long thread, long number) {
    return (size_t)snprintf(key, 64, "t%02ld-%012ld", thread, number);
}

static size_t value_of(char *value, long thread, long number) {
    uint64_t x = (uint64_t)thread << 40 ^ (uint64_t)number;
    size_t len = 20 + draw(&x) % 180;
    for (size_t i = 0; i < len; i++) value[i] = (char)('a' + (draw(&x) & 15));
    return len;
}

/* The last number of a thread in the database, or -1; checks the window before it. */
static long last_of(long thread) {
    char key[64], value[256];
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
    long last = -1;
    size_t len = key_of(key, thread, 999999999999);
    leveldb_iter_seek(iterator, key, len);
    if (leveldb_iter_valid(iterator)) leveldb_iter_prev(iterator);
    else leveldb_iter_seek_to_last(iterator);
    for (long i = 0; leveldb_iter_valid(iterator); i++) {
        char copy[64] = { 0 };
        const char *here = leveldb_iter_key(iterator, &len);
        CHECK(len == 16);
        memcpy(copy, here, len);
        if (strtol(copy + 1, NULL, 10) != thread) break;
        long number = strtol(copy + 4, NULL, 10);
        if (i == 0) last = number;
        CHECK(number == last - i);
        size_t got_len, value_len = value_of(value, thread, number);
        const char *got = leveldb_iter_value(iterator, &got_len);
        CHECK(got_len == value_len && memcmp(got, value, got_len) == 0);
        leveldb_iter_prev(iterator);
    }
    char *error = NULL;
    leveldb_iter_get_error(iterator, &error);
    expect_none("iterator", error);
    leveldb_iter_destroy(iterator);
    return last;
}

static void *count(void *arg) {
    long thread = (intptr_t)arg;
    char key[64], value[256], *error = NULL;
    for (long number = last_of(thread) + 1;; number++) {
        size_t key_len = key_of(key, thread, number), value_len = value_of(value, thread, number);
        if (number % 8 == 0) {
            leveldb_writebatch_t *batch = leveldb_writebatch_create();
            leveldb_writebatch_put(batch, key, key_len, value, value_len);
            number++;
            key_len = key_of(key, thread, number), value_len = value_of(value, thread, number);
            leveldb_writebatch_put(batch, key, key_len, value, value_len);
            /* Numbers come in eights, so whole windows are deleted: what remains has no gaps. */
            for (long old = number - WINDOW - 8; old < number - WINDOW; old++) {
                if (old < 0) continue;
                key_len = key_of(key, thread, old);
                leveldb_writebatch_delete(batch, key, key_len);
            }
            leveldb_write(db, synced, batch, &error);
            leveldb_writebatch_destroy(batch);
        } else leveldb_put(db, synced, key, key_len, value, value_len, &error);
        expect_none("write", error);
        char said[64];
        int len = snprintf(said, sizeof said, "%ld %ld\n", thread, number);
        if (write(1, said, (size_t)len) != len) exit(2);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    char path[4096], *error = NULL;
    long threads = strtol(argv[3], NULL, 10);
    snprintf(path, sizeof path, "%s/db", argv[2]);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_paranoid_checks(options, 1);
    reads = leveldb_readoptions_create();
    synced = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(synced, 1);
    db = leveldb_open(options, path, &error);
    expect_none("open", error);
    leveldb_options_destroy(options);
    if (strcmp(argv[1], "write") == 0) {
        pthread_t workers[64];
        CHECK(threads <= 64);
        for (intptr_t i = 0; i < threads; i++) CHECK(pthread_create(&workers[i], NULL, count, (void *)i) == 0);
        for (;;) pause();
    }
    long thread, number, told[64];
    for (long i = 0; i < 64; i++) told[i] = -1;
    while (scanf("%ld %ld", &thread, &number) == 2) {
        CHECK(thread >= 0 && thread < 64);
        if (number > told[thread]) told[thread] = number;
    }
    for (long i = 0; i < threads; i++) {
        long last = last_of(i);
        if (last < told[i]) {
            printf("thread %ld was told %ld and finds %ld\n", i, told[i], last);
            return 1;
        }
        /* A batch is there as a whole: its first record is never the last one. */
        CHECK(last % 8 != 0 || last == -1);
    }
    leveldb_close(db);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(synced);
    printf("all there\n");
    return 0;
}
