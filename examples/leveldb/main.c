/* A diary kept with LevelDB's C API: each line of standard input becomes a record, durable before it is
 * acknowledged; then the last lines are printed, newest first. It knows nothing of Mangrove.
 *
 *     cc main.c -lleveldb -o diary
 *     LD_LIBRARY_PATH=lib ./diary pages < book.txt
 */

#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop_on(char *error) {
    if (error == NULL) return;
    fprintf(stderr, "diary: %s\n", error);
    leveldb_free(error);
    exit(1);
}

/* The number of the next line: one more than the last key, if there is one. */
static unsigned long next_number(leveldb_t *db, leveldb_readoptions_t *reads) {
    unsigned long next = 1;
    leveldb_iterator_t *last = leveldb_create_iterator(db, reads);
    leveldb_iter_seek_to_last(last);
    if (leveldb_iter_valid(last)) {
        char digits[16] = { 0 };
        size_t len;
        const char *key = leveldb_iter_key(last, &len);
        memcpy(digits, key, len < 15 ? len : 15);
        next = strtoul(digits, NULL, 10) + 1;
    }
    leveldb_iter_destroy(last);
    return next;
}

int main(int argc, char **argv) {
    char *error = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: diary DIRECTORY < TEXT\n");
        return 2;
    }
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_t *db = leveldb_open(options, argv[1], &error);
    leveldb_options_destroy(options);
    stop_on(error);
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(synced, 1);

    char line[1024];
    for (unsigned long number = next_number(db, reads); fgets(line, sizeof line, stdin) != NULL; number++) {
        char key[16];
        int key_len = snprintf(key, sizeof key, "%012lu", number);
        leveldb_put(db, synced, key, (size_t)key_len, line, strcspn(line, "\n"), &error);
        stop_on(error);
        printf("kept %lu\n", number);
        fflush(stdout);
    }

    leveldb_iterator_t *page = leveldb_create_iterator(db, reads);
    leveldb_iter_seek_to_last(page);
    for (int left = 10; left > 0 && leveldb_iter_valid(page); left--, leveldb_iter_prev(page)) {
        size_t key_len, len;
        const char *key = leveldb_iter_key(page, &key_len);
        const char *text = leveldb_iter_value(page, &len);
        printf("%.*s  %.*s\n", (int)key_len, key, (int)len, text);
    }
    leveldb_iter_get_error(page, &error);
    leveldb_iter_destroy(page);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(synced);
    leveldb_close(db);
    stop_on(error);
    return 0;
}
