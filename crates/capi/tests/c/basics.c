/* Single keys: every way to write and read one, the limits, the odd keys. */
#include "check.h"

static void write_and_read(mangrove_map *map) {
    void *value;
    size_t len;
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_get(map, S("root"), &value, &len));
    CHECK(value == NULL && len == 0);
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_contains(map, S("root")));
    OK(mangrove_map_put(map, S("root"), S("below")));
    value_is(map, "root", "below");
    OK(mangrove_map_contains(map, S("root")));
    OK(mangrove_map_put(map, S("root"), S("a longer value than before, in another size class")));
    value_is(map, "root", "a longer value than before, in another size class");
    CHECK(records_of(map) == 1);
    OK(mangrove_map_delete(map, S("root")));
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_delete(map, S("root")));
    CHECK(records_of(map) == 0);

    OK(mangrove_map_put_nowait(map, S("leaf"), S("above")));
    value_is(map, "leaf", "above");
    OK(mangrove_map_sync(map));
    OK(mangrove_map_delete_nowait(map, S("leaf")));
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_delete_nowait(map, S("leaf")));
    OK(mangrove_map_sync(map));
}

static void into_a_buffer(mangrove_map *map) {
    char buffer[8] = "unhurt";
    size_t len = 99;
    OK(mangrove_map_put(map, S("k"), S("12345")));
    ANSWERS(MANGROVE_BUFFER_TOO_SMALL, mangrove_map_get_into(map, S("k"), NULL, 0, &len));
    CHECK(len == 5);
    ANSWERS(MANGROVE_BUFFER_TOO_SMALL, mangrove_map_get_into(map, S("k"), buffer, 4, &len));
    CHECK(len == 5 && strcmp(buffer, "unhurt") == 0);
    OK(mangrove_map_get_into(map, S("k"), buffer, 5, &len));
    CHECK(len == 5 && memcmp(buffer, "12345t", 7) == 0); /* no NUL added */
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_get_into(map, S("none"), buffer, 8, &len));
    CHECK(len == 0);
    OK(mangrove_map_delete(map, S("k")));
}

static void many_at_once(mangrove_map *map) {
    enum { COUNT = 40 };
    const void *keys[COUNT];
    size_t key_lens[COUNT], lens[COUNT];
    void *values[COUNT];
    static char text[COUNT][8], large[3000];
    memset(large, 'v', sizeof large);
    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "many%02d", i);
        keys[i] = text[i], key_lens[i] = 6;
        if (i % 3 != 0) OK(mangrove_map_put(map, keys[i], 6, large, i * 70));
    }
    /* One array for the lengths of keys and of values. */
    memcpy(lens, key_lens, sizeof lens);
    OK(mangrove_map_get_many(map, COUNT, keys, lens, values, lens));
    CHECK(lens[1] == 70 && lens[COUNT - 2] == (COUNT - 2) * 70);
    for (int i = 0; i < COUNT; i++) mangrove_free(values[i]);
    OK(mangrove_map_get_many(map, COUNT, keys, key_lens, values, lens));
    for (int i = 0; i < COUNT; i++) {
        if (i % 3 == 0) {
            CHECK(values[i] == NULL && lens[i] == 0);
            continue;
        }
        CHECK(lens[i] == (size_t)i * 70 && memcmp(values[i], large, lens[i]) == 0);
        CHECK(((char *)values[i])[lens[i]] == 0);
        mangrove_free(values[i]);
        OK(mangrove_map_delete(map, keys[i], 6));
    }
    OK(mangrove_map_get_many(map, 0, NULL, NULL, NULL, NULL));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_get_many(map, 1, NULL, key_lens, values, lens));
    key_lens[COUNT - 1] = MANGROVE_KEY_BYTES_MAX + 1;
    keys[COUNT - 1] = large;
    values[0] = large;
    ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_map_get_many(map, COUNT, keys, key_lens, values, lens));
    for (int i = 0; i < COUNT; i++) CHECK(values[i] == NULL && lens[i] == 0);
}

static void conditions(mangrove_map *map) {
    OK(mangrove_map_insert_new(map, S("c"), S("1")));
    ANSWERS(MANGROVE_MISMATCH, mangrove_map_insert_new(map, S("c"), S("2")));
    value_is(map, "c", "1");
    ANSWERS(MANGROVE_MISMATCH, mangrove_map_compare_and_set(map, S("c"), S("2"), S("3")));
    ANSWERS(MANGROVE_MISMATCH, mangrove_map_compare_and_set(map, S("c"), NULL, 0, S("3")));
    ANSWERS(MANGROVE_MISMATCH, mangrove_map_compare_and_set(map, S("c"), S(""), S("3")));
    OK(mangrove_map_compare_and_set(map, S("c"), S("1"), S("3")));
    value_is(map, "c", "3");
    OK(mangrove_map_compare_and_set(map, S("c"), S("3"), S("")));
    value_is(map, "c", "");
    ANSWERS(MANGROVE_MISMATCH, mangrove_map_compare_and_set(map, S("c"), NULL, 0, S("3")));
    OK(mangrove_map_compare_and_set(map, S("c"), S(""), NULL, 0));
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_contains(map, S("c")));
    OK(mangrove_map_compare_and_set(map, S("c"), NULL, 0, S("4")));
    value_is(map, "c", "4");
    OK(mangrove_map_delete(map, S("c")));
}

static void odd_keys_and_values(mangrove_map *map) {
    static char key[MANGROVE_KEY_BYTES_MAX + 1];
    size_t len;
    void *value;
    memset(key, 0xff, sizeof key);

    /* The empty key, by an empty pointer and by NULL, with the empty value. */
    OK(mangrove_map_put(map, S(""), NULL, 0));
    OK(mangrove_map_get(map, NULL, 0, &value, &len));
    CHECK(value != NULL && len == 0 && *(char *)value == 0);
    mangrove_free(value);

    /* Zero bytes, and keys that begin one another. */
    OK(mangrove_map_put(map, "\0", 1, S("one")));
    OK(mangrove_map_put(map, "\0\0", 2, S("two")));
    OK(mangrove_map_put(map, "\0\0\0", 3, "\0\1\0", 3));
    CHECK(records_of(map) == 4);
    OK(mangrove_map_get(map, "\0\0\0", 3, &value, &len));
    CHECK(len == 3 && memcmp(value, "\0\1\0", 3) == 0);
    mangrove_free(value);

    /* The longest key, and one byte more. */
    OK(mangrove_map_put(map, key, MANGROVE_KEY_BYTES_MAX, S("long")));
    OK(mangrove_map_contains(map, key, MANGROVE_KEY_BYTES_MAX));
    ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_map_put(map, key, sizeof key, S("too long")));
    CHECK(strstr(mangrove_last_error(), "1024") != NULL);
    ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_map_get(map, key, sizeof key, &value, &len));
    ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_map_delete(map, key, sizeof key));
    ANSWERS(MANGROVE_ERR_VALUE_TOO_LONG,
            mangrove_map_put(map, S("v"), key, (size_t)MANGROVE_VALUE_BYTES_MAX + 1));
    CHECK(records_of(map) == 5);
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_contains(map, S("v")));
}

static void values_of_many_sizes(mangrove_map *map) {
    size_t sizes[] = {0, 1, 7, 8, 9, 100, 1000, 4095, 4096, 65536, 300000, 3000000};
    size_t i, round, len;
    char *block = malloc(3000000);
    void *value;
    CHECK(block != NULL);
    for (round = 0; round < 2; round++) {
        for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            memset(block, (int)(i + round), sizes[i]);
            OK(mangrove_map_put(map, S("size"), block, sizes[i]));
            OK(mangrove_map_get(map, S("size"), &value, &len));
            CHECK(len == sizes[i] && memcmp(value, block, len) == 0);
            mangrove_free(value);
        }
    }
    OK(mangrove_map_delete(map, S("size")));
    free(block);
}

int main(int argc, char **argv) {
    mangrove_map *map;
    CHECK(strcmp(mangrove_version(), MANGROVE_VERSION) == 0);
    CHECK(strcmp(mangrove_last_error(), "") == 0);
    OK(mangrove_map_open(below(scratch_of(argc, argv), "pool"), NULL, &map));
    write_and_read(map);
    into_a_buffer(map);
    many_at_once(map);
    conditions(map);
    odd_keys_and_values(map);
    values_of_many_sizes(map);
    OK(mangrove_map_checkpoint(map));
    OK(mangrove_map_close(map));
    return 0;
}
