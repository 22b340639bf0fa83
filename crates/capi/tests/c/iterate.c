/* Iterators against a model: every range, every direction, seeks, turns; snapshots; range delete. */
#include "check.h"

/* Keys that begin one another, share long prefixes, and hold the smallest and largest bytes. */
static const struct { const char *bytes; size_t len; } keys[] = {
    {S("")}, {S("\0")}, {S("\0\0")}, {S("a")}, {S("a\0")}, {S("aa")}, {S("aab")}, {S("ab")},
    {S("a\xff")}, {S("b")}, {S("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb1")},
    {S("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb2")}, {S("c")}, {S("\xff")}, {S("\xff\xff")},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int stands_on(const mangrove_iter *iter, int i) {
    size_t key_len, value_len;
    const char *key = mangrove_iter_key(iter, &key_len);
    const char *value = mangrove_iter_value(iter, &value_len);
    char expected[16];
    if (!mangrove_iter_valid(iter)) return key == NULL && value == NULL && i < 0;
    snprintf(expected, sizeof expected, "value %d", i);
    return i >= 0 && key_len == keys[i].len && memcmp(key, keys[i].bytes, key_len) == 0 &&
           value_len == strlen(expected) && memcmp(value, expected, value_len) == 0;
}

/* The result of a move, and where it must have led: to record i, or off the ends. */
#define MOVES(iter, i, first, last, call)                                                   \
    do {                                                                                    \
        int to_ = (i);                                                                      \
        ANSWERS(to_ >= (first) && to_ <= (last) ? MANGROVE_OK : MANGROVE_NOT_FOUND, call);  \
        CHECK(stands_on(iter, to_ >= (first) && to_ <= (last) ? to_ : -1));                 \
    } while (0)

/* All moves in the part of the model from `first` to `last`. */
static void walk(mangrove_iter *iter, int first, int last) {
    int i, at;
    unsigned random = 12345;
    CHECK(stands_on(iter, -1));
    for (i = first; i <= last; i++) MOVES(iter, i, first, last, mangrove_iter_next(iter));
    MOVES(iter, last + 1, first, last, mangrove_iter_next(iter));
    MOVES(iter, last + 1, first, last, mangrove_iter_next(iter));
    for (i = last; i >= first; i--) MOVES(iter, i, first, last, mangrove_iter_prev(iter));
    MOVES(iter, first - 1, first, last, mangrove_iter_prev(iter));
    MOVES(iter, first - 1, first, last, mangrove_iter_prev(iter));
    MOVES(iter, first, first, last, mangrove_iter_next(iter));
    MOVES(iter, first, first, last, mangrove_iter_first(iter));
    MOVES(iter, last, first, last, mangrove_iter_last(iter));
    for (i = 0; i < KEYS; i++) {
        int up = i < first ? first : i, down = i > last ? last : i;
        MOVES(iter, up, first, last, mangrove_iter_seek(iter, keys[i].bytes, keys[i].len));
        MOVES(iter, down, first, last, mangrove_iter_seek_back(iter, keys[i].bytes, keys[i].len));
    }
    if (first > last) return;
    /* Turning round at random. */
    OK(mangrove_iter_first(iter));
    for (at = first, i = 0; i < 200; i++) {
        random = random * 1103515245u + 12345u;
        if (random >> 16 & 1) {
            if (at <= last) at++;
            MOVES(iter, at, first, last, mangrove_iter_next(iter));
        } else {
            if (at >= first) at--;
            MOVES(iter, at, first, last, mangrove_iter_prev(iter));
        }
    }
}

static void every_range(mangrove_map *map, mangrove_snapshot *snapshot) {
    int from, to, flags;
    int step = getenv("MANGROVE_TEST_QUICK") != NULL ? 4 : 1; /* under valgrind */
    mangrove_iter *iter;
    for (from = -1; from < KEYS; from += step) {
        for (to = -1; to < KEYS; to += step) {
            for (flags = 0; flags < 4; flags++) {
                mangrove_range range = {0};
                int first = 0, last = KEYS - 1;
                if (from >= 0) {
                    range.start = keys[from].bytes;
                    range.start_len = keys[from].len;
                    first = from + (flags & MANGROVE_RANGE_START_EXCLUDED ? 1 : 0);
                }
                if (to >= 0) {
                    range.end = keys[to].bytes;
                    range.end_len = keys[to].len;
                    last = to - (flags & MANGROVE_RANGE_END_INCLUDED ? 0 : 1);
                }
                range.flags = (uint32_t)flags;
                if ((from + to) % 2) OK(mangrove_map_iter(map, &range, &iter));
                else OK(mangrove_snapshot_iter(snapshot, &range, &iter));
                walk(iter, first, last);
                mangrove_iter_free(iter);
            }
        }
    }
}

static void every_prefix(mangrove_map *map) {
    int p, first, last;
    mangrove_iter *iter;
    for (p = 0; p < KEYS; p++) {
        mangrove_range range = {keys[p].bytes, keys[p].len, NULL, 0, MANGROVE_RANGE_PREFIX};
        for (first = p, last = p; last + 1 < KEYS; last++) {
            if (keys[last + 1].len < keys[p].len) break;
            if (memcmp(keys[last + 1].bytes, keys[p].bytes, keys[p].len) != 0) break;
        }
        OK(mangrove_map_iter(map, &range, &iter));
        walk(iter, first, last);
        mangrove_iter_free(iter);
    }
}

static void snapshots_stand_still(mangrove_map *map) {
    mangrove_snapshot *snapshot;
    mangrove_iter *iter, *late;
    void *value;
    char buffer[8];
    size_t len;
    uint64_t removed;
    mangrove_range middle = {S("a"), S("c"), 0};
    OK(mangrove_map_snapshot(map, &snapshot));
    OK(mangrove_map_iter(map, NULL, &iter));
    OK(mangrove_iter_first(iter));

    OK(mangrove_map_delete_range(map, &middle, &removed));
    CHECK(removed == 9);
    CHECK(records_of(map) == KEYS - 9);
    OK(mangrove_map_put(map, S("a"), S("new")));
    OK(mangrove_map_put(map, S("zz"), S("new")));

    OK(mangrove_snapshot_iter(snapshot, NULL, &late));
    OK(mangrove_snapshot_len(snapshot, &removed));
    CHECK(removed == KEYS);
    walk(late, 0, KEYS - 1);
    OK(mangrove_iter_seek_back(iter, S("\xff\xff\xff")));
    CHECK(stands_on(iter, KEYS - 1));
    OK(mangrove_snapshot_get(snapshot, S("a"), &value, &len));
    CHECK(len == 7 && strcmp(value, "value 3") == 0);
    mangrove_free(value);
    OK(mangrove_snapshot_get_into(snapshot, S("ab"), buffer, sizeof buffer, &len));
    CHECK(len == 7 && memcmp(buffer, "value 7", 7) == 0);
    ANSWERS(MANGROVE_BUFFER_TOO_SMALL, mangrove_snapshot_get_into(snapshot, S("ab"), buffer, 6, &len));
    CHECK(len == 7);
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_snapshot_get(snapshot, S("zz"), &value, &len));
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_snapshot_get_into(snapshot, S("zz"), buffer, 6, &len));
    value_is(map, "a", "new");

    mangrove_iter_free(iter);
    mangrove_snapshot_free(snapshot);
    OK(mangrove_iter_first(late));
    mangrove_iter_free(late);

    OK(mangrove_map_delete_range(map, &middle, NULL));
    OK(mangrove_map_delete_range(map, &middle, &removed));
    CHECK(removed == 0);
    {
        mangrove_range everything = {0}, prefix = {0};
        uint64_t before = records_of(map);
        prefix.flags = MANGROVE_RANGE_PREFIX;
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, NULL, &removed));
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, &everything, &removed));
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, &prefix, &removed));
        prefix.start = "";
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, &prefix, &removed));
        prefix.flags = 0;
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, &prefix, &removed));
        prefix.flags = MANGROVE_RANGE_START_EXCLUDED;
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, &prefix, &removed));
        CHECK(records_of(map) == before && before > 0);
        everything.flags = MANGROVE_RANGE_EVERYTHING | MANGROVE_RANGE_PREFIX;
        ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_delete_range(map, &everything, &removed));
        everything.flags = MANGROVE_RANGE_EVERYTHING;
        OK(mangrove_map_delete_range(map, &everything, &removed));
    }
    CHECK(removed == KEYS - 8 && records_of(map) == 0);
    OK(mangrove_map_iter(map, NULL, &iter));
    walk(iter, 0, -1);
    mangrove_iter_free(iter);
}

/* A walk whose snapshot has expired never looks like one that has come to its end. */
static void expired_stays_expired(const char *path) {
    enum { RECORDS = 600 };
    static const char value[500];
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    mangrove_iter *iter;
    char key[8];
    int round, i, s;
    OK(mangrove_options_set_snapshot_bytes_max(options, 50000));
    OK(mangrove_map_open(path, options, &map));
    mangrove_options_free(options);
    for (round = 0; round < 2; round++) {
        if (round == 1) {
            OK(mangrove_map_iter(map, NULL, &iter));
            OK(mangrove_iter_next(iter));
        }
        for (i = 0; i < RECORDS; i++) {
            snprintf(key, sizeof key, "%03d", i);
            OK(mangrove_map_put_nowait(map, key, strlen(key), value, sizeof value - (size_t)round));
        }
    }
    for (i = 1; (s = mangrove_iter_next(iter)) == MANGROVE_OK; i++) CHECK(i < RECORDS);
    CHECK(s == MANGROVE_ERR_SNAPSHOT_EXPIRED && i < RECORDS);
    for (i = 0; i < 3; i++) {
        ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_next(iter));
        CHECK(stands_on(iter, -1));
        ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_prev(iter));
    }
    ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_seek(iter, S("5")));
    ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_prev(iter));
    ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_first(iter));
    ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_next(iter));
    ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_last(iter));
    ANSWERS(MANGROVE_ERR_SNAPSHOT_EXPIRED, mangrove_iter_next(iter));
    mangrove_iter_free(iter);
    OK(mangrove_map_close(map));
}

int main(int argc, char **argv) {
    mangrove_map *map;
    mangrove_snapshot *snapshot;
    int i;
    OK(mangrove_map_open(below(scratch_of(argc, argv), "pool"), NULL, &map));
    for (i = KEYS - 1; i >= 0; i--) {
        char value[16];
        int len = snprintf(value, sizeof value, "value %d", i);
        OK(mangrove_map_put_nowait(map, keys[i].bytes, keys[i].len, value, (size_t)len));
    }
    OK(mangrove_map_sync(map));
    OK(mangrove_map_snapshot(map, &snapshot));
    every_range(map, snapshot);
    mangrove_snapshot_free(snapshot);
    every_prefix(map);
    snapshots_stand_still(map);
    OK(mangrove_map_close(map));
    expired_stays_expired(below(argv[1], "expired"));
    return 0;
}
