/* A long random run of every operation on records; everything that can be seen is printed.
 * Usage: random DIRECTORY SEED STEPS [backwards]. The output must be the same for every implementation.
 * With "backwards" a comparator of the program orders the keys. */

#include "said.h"

#define SNAPSHOTS 4
#define ITERATORS 3

static leveldb_t *db;
static leveldb_options_t *options;
static leveldb_writeoptions_t *writes[2];
static leveldb_readoptions_t *present;
static const leveldb_snapshot_t *snapshots[SNAPSHOTS];
static leveldb_readoptions_t *pasts[SNAPSHOTS];
static leveldb_iterator_t *iterators[ITERATORS];
static char path[4096];
static char value_bytes[20000];
static uint64_t state;

static int backwards(void *unused, const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t least = a_len < b_len ? a_len : b_len;
    int order = least ? memcmp(b, a, least) : 0;
    (void)unused;
    return order ? order : (a_len < b_len) - (a_len > b_len);
}

static const char *name(void *unused) {
    (void)unused;
    return "backwards order, with \"signs\" %20\n and a \xff";
}

static void nothing(void *unused) { (void)unused; }

/* Few different keys: of 0 to 7 bytes out of four, zero bytes and 0xff among them. */
static size_t draw_key(char *key) {
    size_t len = draw(&state) % 8;
    uint64_t bits = draw(&state);
    for (size_t i = 0; i < len; i++, bits >>= 2) key[i] = "\0a\x7f\xff"[bits & 3];
    return len;
}

static size_t draw_value(void) {
    uint64_t kind = draw(&state) % 16;
    size_t len = kind == 0 ? 0 : kind == 1 ? draw(&state) % sizeof value_bytes : draw(&state) % 40;
    for (size_t i = 0; i < len; i++) value_bytes[i] = (char)(i * 7 + kind + len);
    return len;
}

static void say_get(const leveldb_readoptions_t *reads, const char *key, size_t key_len) {
    char *error = NULL;
    size_t len = 0;
    char *value = leveldb_get(db, reads, key, key_len, &len, &error);
    expect_none("get", error);
    printf("get ");
    say_bytes(key, key_len);
    if (value != NULL) {
        printf(" = ");
        say_bytes(value, len);
    }
    printf("\n");
    leveldb_free(value);
}

static void say_place(leveldb_iterator_t *iterator) {
    char *error = NULL;
    leveldb_iter_get_error(iterator, &error);
    expect_none("iterator", error);
    if (!leveldb_iter_valid(iterator)) {
        printf("nowhere\n");
        return;
    }
    size_t key_len, value_len;
    const char *key = leveldb_iter_key(iterator, &key_len);
    const char *value = leveldb_iter_value(iterator, &value_len);
    say_bytes(key, key_len);
    printf(" = ");
    say_bytes(value, value_len);
    printf("\n");
}

static void say_all(const leveldb_readoptions_t *reads, int from_the_end) {
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, reads);
    CHECK(!leveldb_iter_valid(iterator));
    printf(from_the_end ? "all, from the end\n" : "all\n");
    if (from_the_end) leveldb_iter_seek_to_last(iterator);
    else leveldb_iter_seek_to_first(iterator);
    while (leveldb_iter_valid(iterator)) {
        printf("  ");
        say_place(iterator);
        if (from_the_end) leveldb_iter_prev(iterator);
        else leveldb_iter_next(iterator);
    }
    leveldb_iter_destroy(iterator);
}

static void on_put(void *count, const char *key, size_t key_len, const char *value, size_t value_len) {
    ++*(int *)count;
    printf("  put ");
    say_bytes(key, key_len);
    printf(" ");
    say_bytes(value, value_len);
    printf("\n");
}

static void on_delete(void *count, const char *key, size_t key_len) {
    ++*(int *)count;
    printf("  delete ");
    say_bytes(key, key_len);
    printf("\n");
}

static leveldb_writebatch_t *draw_batch(void) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    char key[8];
    for (uint64_t left = draw(&state) % 12; left > 0; left--) {
        size_t key_len = draw_key(key);
        if (draw(&state) % 3 == 0) leveldb_writebatch_delete(batch, key, key_len);
        else {
            size_t value_len = draw_value();
            leveldb_writebatch_put(batch, key, key_len, value_bytes, value_len);
        }
    }
    return batch;
}

static void write_batch(leveldb_writeoptions_t *how) {
    char *error = NULL;
    int count = 0;
    leveldb_writebatch_t *batch = draw_batch();
    if (draw(&state) % 4 == 0) {
        leveldb_writebatch_t *more = draw_batch();
        leveldb_writebatch_append(batch, more);
        leveldb_writebatch_destroy(more);
    }
    if (draw(&state) % 16 == 0) leveldb_writebatch_clear(batch);
    printf("batch\n");
    leveldb_writebatch_iterate(batch, &count, on_put, on_delete);
    leveldb_write(db, how, batch, &error);
    expect_none("write", error);
    leveldb_writebatch_destroy(batch);
}

static void drop_snapshot(int at) {
    if (snapshots[at] == NULL) return;
    leveldb_readoptions_destroy(pasts[at]);
    leveldb_release_snapshot(db, snapshots[at]);
    snapshots[at] = NULL;
}

static void drop_iterator(int at) {
    if (iterators[at] != NULL) leveldb_iter_destroy(iterators[at]);
    iterators[at] = NULL;
}

static void close_all(void) {
    for (int i = 0; i < ITERATORS; i++) drop_iterator(i);
    for (int i = 0; i < SNAPSHOTS; i++) drop_snapshot(i);
    leveldb_close(db);
}

static void open_again(void) {
    char *error = NULL;
    db = leveldb_open(options, path, &error);
    expect_none("open", error);
}

/* A snapshot or the present. */
static const leveldb_readoptions_t *draw_time(void) {
    uint64_t at = draw(&state) % (2 * SNAPSHOTS);
    return at < SNAPSHOTS && snapshots[at] != NULL ? pasts[at] : present;
}

static void move_iterator(int at) {
    char key[8];
    if (iterators[at] == NULL) {
        iterators[at] = leveldb_create_iterator(db, draw_time());
        printf("new iterator %d: ", at);
        say_place(iterators[at]);
    }
    leveldb_iterator_t *iterator = iterators[at];
    size_t key_len = draw_key(key);
    uint64_t how = draw(&state) % 12;
    if (how == 0) leveldb_iter_seek_to_first(iterator);
    else if (how == 1) leveldb_iter_seek_to_last(iterator);
    else if (how < 4) leveldb_iter_seek(iterator, key, key_len);
    else if (leveldb_iter_valid(iterator)) {
        for (uint64_t left = 1 + draw(&state) % 20; left > 0 && leveldb_iter_valid(iterator); left--) {
            if (how < 8) leveldb_iter_next(iterator);
            else leveldb_iter_prev(iterator);
        }
    }
    printf("iterator %d, %d: ", at, (int)how);
    say_place(iterator);
}

static void step(void) {
    char key[8], *error = NULL;
    leveldb_writeoptions_t *how = writes[draw(&state) % 32 == 0];
    size_t key_len = draw_key(key);
    int at;
    switch (draw(&state) % 40) {
    case 0:
        say_all(draw_time(), (int)(draw(&state) & 1));
        break;
    case 1:
        at = (int)(draw(&state) % SNAPSHOTS);
        drop_snapshot(at);
        snapshots[at] = leveldb_create_snapshot(db);
        pasts[at] = leveldb_readoptions_create();
        leveldb_readoptions_set_snapshot(pasts[at], snapshots[at]);
        leveldb_readoptions_set_verify_checksums(pasts[at], 1);
        leveldb_readoptions_set_fill_cache(pasts[at], 0);
        printf("snapshot %d\n", at);
        break;
    case 2:
        drop_snapshot((int)(draw(&state) % SNAPSHOTS));
        break;
    case 3:
        drop_iterator((int)(draw(&state) % ITERATORS));
        break;
    case 4:
        if (draw(&state) % 20 == 0) {
            close_all();
            open_again();
            printf("reopened\n");
        }
        break;
    case 5:
        if (draw(&state) % 20 == 0) leveldb_compact_range(db, NULL, 0, NULL, 0);
        break;
    case 6: case 7: case 8: case 9:
        write_batch(how);
        break;
    case 10: case 11: case 12: case 13: case 14: case 15:
        leveldb_delete(db, how, key, key_len, &error);
        expect_none("delete", error);
        break;
    case 16: case 17: case 18: case 19: case 20: case 21: case 22: case 23: case 24: {
        size_t value_len = draw_value();
        leveldb_put(db, how, key, key_len, value_bytes, value_len, &error);
        expect_none("put", error);
        break;
    }
    case 25: case 26: case 27: case 28: case 29: case 30: case 31:
        say_get(draw_time(), key, key_len);
        break;
    default:
        move_iterator((int)(draw(&state) % ITERATORS));
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4 || argc == 5);
    snprintf(path, sizeof path, "%s/db", argv[1]);
    state = strtoull(argv[2], NULL, 10);
    options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_comparator_t *order = NULL;
    if (argc == 5) {
        order = leveldb_comparator_create(NULL, nothing, backwards, name);
        leveldb_options_set_comparator(options, order);
    }
    writes[0] = leveldb_writeoptions_create();
    writes[1] = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(writes[1], 1);
    present = leveldb_readoptions_create();
    open_again();
    for (long left = strtol(argv[3], NULL, 10); left > 0; left--) step();
    close_all();
    open_again();
    say_all(present, 0);
    say_all(present, 1);
    close_all();
    leveldb_options_destroy(options);
    leveldb_writeoptions_destroy(writes[0]);
    leveldb_writeoptions_destroy(writes[1]);
    leveldb_readoptions_destroy(present);
    if (order != NULL) leveldb_comparator_destroy(order);
    return 0;
}
