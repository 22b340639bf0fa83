/* Batches: all or nothing, the last entry of a key wins, limits, reuse. */
#include "check.h"

int main(int argc, char **argv) {
    static char long_key[MANGROVE_KEY_BYTES_MAX + 1];
    const char *scratch = scratch_of(argc, argv);
    mangrove_map *map;
    mangrove_options *options;
    mangrove_batch *batch = mangrove_batch_new();
    int i, round;
    CHECK(batch != NULL && mangrove_batch_len(batch) == 0);
    OK(mangrove_map_open(below(scratch, "pool"), NULL, &map));
    OK(mangrove_map_write(map, batch)); /* an empty batch is accepted */

    OK(mangrove_map_put(map, S("old"), S("1")));
    OK(mangrove_batch_put(batch, S("new"), S("2")));
    OK(mangrove_batch_put(batch, S("new"), S("3")));
    OK(mangrove_batch_delete(batch, S("old")));
    OK(mangrove_batch_put(batch, S("gone"), S("4")));
    OK(mangrove_batch_delete(batch, S("gone")));
    OK(mangrove_batch_delete(batch, S("never there")));
    CHECK(mangrove_batch_len(batch) == 6);
    CHECK(mangrove_batch_bytes(batch) == 3 + 1 + 3 + 1 + 3 + 4 + 1 + 4 + 11);
    ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_batch_put(batch, long_key, sizeof long_key, S("")));
    ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_batch_delete(batch, long_key, sizeof long_key));
    CHECK(mangrove_batch_len(batch) == 6);
    CHECK(records_of(map) == 1); /* nothing happens before the write */
    OK(mangrove_map_write(map, batch));
    CHECK(mangrove_batch_len(batch) == 0 && mangrove_batch_bytes(batch) == 0);
    CHECK(records_of(map) == 1);
    value_is(map, "new", "3");

    OK(mangrove_batch_put(batch, S("forgotten"), S("5")));
    OK(mangrove_batch_clear(batch));
    CHECK(mangrove_batch_len(batch) == 0);
    OK(mangrove_map_write(map, batch));
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_contains(map, S("forgotten")));

    /* Conditions: a value, an absent key, the empty value, and none of it where one is not met. */
    OK(mangrove_map_put(map, S("alice"), S("100")));
    OK(mangrove_map_put(map, S("empty"), S("")));
    for (i = 0; i < 4; i++) {
        OK(mangrove_batch_put(batch, S("alice"), S("70")));
        OK(mangrove_batch_put(batch, S("bob"), S("30")));
        OK(mangrove_batch_expect(batch, S("alice"), i == 0 ? "99" : "100", i == 0 ? 2 : 3));
        OK(mangrove_batch_expect(batch, S("bob"), i == 1 ? "" : NULL, 0));
        OK(mangrove_batch_expect(batch, S("empty"), i == 2 ? NULL : "", 0));
        ANSWERS(MANGROVE_ERR_KEY_TOO_LONG, mangrove_batch_expect(batch, long_key, sizeof long_key, NULL, 0));
        CHECK(mangrove_batch_len(batch) == 2);
        if (i < 3) {
            ANSWERS(MANGROVE_MISMATCH, mangrove_map_write(map, batch));
            value_is(map, "alice", "100");
            ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_contains(map, S("bob")));
        } else {
            OK(mangrove_map_write(map, batch));
            value_is(map, "alice", "70");
            value_is(map, "bob", "30");
        }
        CHECK(mangrove_batch_len(batch) == 0 && mangrove_batch_bytes(batch) == 0);
    }
    OK(mangrove_map_delete(map, S("alice")));
    OK(mangrove_map_delete(map, S("bob")));
    OK(mangrove_map_delete(map, S("empty")));

    for (round = 0; round < 3; round++) {
        for (i = 0; i < 1000; i++) {
            char key[16], value[16];
            int key_len = snprintf(key, sizeof key, "key %04d", i);
            int value_len = snprintf(value, sizeof value, "%d.%d", round, i);
            OK(mangrove_batch_put(batch, key, (size_t)key_len, value, (size_t)value_len));
        }
        OK(mangrove_map_write(map, batch));
        CHECK(records_of(map) == 1001);
    }
    value_is(map, "key 0999", "2.999");
    OK(mangrove_map_close(map));

    options = mangrove_options_new();
    OK(mangrove_options_set_read_only(options, true));
    OK(mangrove_map_open(below(scratch, "pool"), options, &map));
    mangrove_options_free(options); /* the map stays open without them */
    OK(mangrove_batch_delete(batch, S("new")));
    ANSWERS(MANGROVE_ERR_READ_ONLY, mangrove_map_write(map, batch));
    value_is(map, "new", "3");
    value_is(map, "key 0000", "2.0");
    OK(mangrove_map_close(map));
    mangrove_batch_free(batch);
    return 0;
}
