/* What a careless caller does: each call returns its status and leaves its message, and nothing breaks. */
#include "check.h"
#include <pthread.h>
#include <sys/stat.h>

#define INVALID(call) ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, call)

static void null_handles(mangrove_map *map) {
    void *value = &value;
    size_t len = 7;
    uint64_t count = 7;
    mangrove_snapshot *snapshot = (mangrove_snapshot *)&value;
    mangrove_iter *iter = (mangrove_iter *)&value;
    mangrove_map *none = (mangrove_map *)&value;

    INVALID(mangrove_map_open(NULL, NULL, &none));
    CHECK(none == NULL);
    INVALID(mangrove_map_open("/tmp/never", NULL, NULL));
    INVALID(mangrove_map_close(NULL));
    INVALID(mangrove_map_get(NULL, S("k"), &value, &len));
    CHECK(value == NULL && len == 0);
    CHECK(strstr(mangrove_last_error(), "map") != NULL);
    INVALID(mangrove_map_get(map, S("k"), NULL, &len));
    INVALID(mangrove_map_get(map, S("k"), &value, NULL));
    INVALID(mangrove_map_get(map, NULL, 3, &value, &len));
    CHECK(strstr(mangrove_last_error(), "key") != NULL);
    INVALID(mangrove_map_get(map, "k", (size_t)-1, &value, &len));
    INVALID(mangrove_map_get_into(map, S("k"), NULL, 5, &len));
    INVALID(mangrove_map_get_into(map, S("k"), &value, 5, NULL));
    INVALID(mangrove_map_get_into(NULL, S("k"), NULL, 0, &len));
    INVALID(mangrove_map_contains(NULL, S("k")));
    INVALID(mangrove_map_put(NULL, S("k"), S("v")));
    INVALID(mangrove_map_put(map, S("k"), NULL, 1));
    INVALID(mangrove_map_put_nowait(NULL, S("k"), S("v")));
    INVALID(mangrove_map_insert_new(NULL, S("k"), S("v")));
    INVALID(mangrove_map_delete(NULL, S("k")));
    INVALID(mangrove_map_delete_nowait(NULL, S("k")));
    INVALID(mangrove_map_compare_and_set(NULL, S("k"), S("v"), S("w")));
    INVALID(mangrove_map_compare_and_set(map, S("k"), NULL, 2, S("w")));
    INVALID(mangrove_map_len(NULL, &count));
    CHECK(count == 0);
    INVALID(mangrove_map_len(map, NULL));
    INVALID(mangrove_map_sync(NULL));
    INVALID(mangrove_map_checkpoint(NULL));
    INVALID(mangrove_map_write(NULL, NULL));
    INVALID(mangrove_map_write(map, NULL));
    INVALID(mangrove_map_delete_range(NULL, NULL, &count));
    CHECK(count == 0);
    INVALID(mangrove_map_snapshot(NULL, &snapshot));
    CHECK(snapshot == NULL);
    INVALID(mangrove_map_snapshot(map, NULL));
    INVALID(mangrove_snapshot_get(NULL, S("k"), &value, &len));
    INVALID(mangrove_snapshot_get_into(NULL, S("k"), NULL, 0, &len));
    INVALID(mangrove_snapshot_len(NULL, &count));
    INVALID(mangrove_map_iter(NULL, NULL, &iter));
    CHECK(iter == NULL);
    INVALID(mangrove_map_iter(map, NULL, NULL));
    INVALID(mangrove_snapshot_iter(NULL, NULL, &iter));
    INVALID(mangrove_iter_first(NULL));
    INVALID(mangrove_iter_last(NULL));
    INVALID(mangrove_iter_next(NULL));
    INVALID(mangrove_iter_prev(NULL));
    INVALID(mangrove_iter_seek(NULL, S("k")));
    INVALID(mangrove_iter_seek_back(NULL, S("k")));
    CHECK(!mangrove_iter_valid(NULL));
    CHECK(mangrove_iter_key(NULL, &len) == NULL && len == 0);
    CHECK(mangrove_iter_value(NULL, NULL) == NULL);
    INVALID(mangrove_map_backup(NULL, "/tmp/never", NULL, NULL, NULL));
    INVALID(mangrove_map_backup(map, NULL, NULL, NULL, NULL));
    INVALID(mangrove_map_check(NULL, NULL, NULL));
    INVALID(mangrove_pool_check(NULL, NULL));
    INVALID(mangrove_pool_read_info(NULL, NULL));
    INVALID(mangrove_batch_put(NULL, S("k"), S("v")));
    INVALID(mangrove_batch_delete(NULL, S("k")));
    INVALID(mangrove_batch_clear(NULL));
    CHECK(mangrove_batch_len(NULL) == 0 && mangrove_batch_bytes(NULL) == 0);

    mangrove_free(NULL);
    mangrove_options_free(NULL);
    mangrove_batch_free(NULL);
    mangrove_snapshot_free(NULL);
    mangrove_iter_free(NULL);
}

static void bad_ranges_and_sizes(mangrove_map *map) {
    mangrove_iter *iter;
    mangrove_stat stat;
    mangrove_recovery recovery;
    mangrove_pool_info info;
    mangrove_range both = {S("a"), S("b"), MANGROVE_RANGE_PREFIX};
    mangrove_range unknown = {NULL, 0, NULL, 0, 64};
    mangrove_range length = {NULL, 4, NULL, 0, 0};
    INVALID(mangrove_map_iter(map, &both, &iter));
    INVALID(mangrove_map_iter(map, &unknown, &iter));
    INVALID(mangrove_map_iter(map, &length, &iter));
    CHECK(iter == NULL);
    INVALID(mangrove_map_delete_range(map, &unknown, NULL));
    CHECK(records_of(map) == 1);

    INVALID(mangrove_map_stat(map, NULL));
    INVALID(mangrove_map_recovery(map, NULL));
    INVALID(mangrove_map_info(map, NULL));
    stat.size = 0;
    recovery.size = 3;
    info.size = (size_t)-1;
    INVALID(mangrove_map_stat(map, &stat));
    CHECK(strstr(mangrove_last_error(), "sizeof") != NULL);
    INVALID(mangrove_map_recovery(map, &recovery));
    INVALID(mangrove_map_info(map, &info));
}

static void bad_options(void) {
    mangrove_options *options = mangrove_options_new();
    CHECK(options != NULL);
    INVALID(mangrove_options_set_medium(options, 17));
    INVALID(mangrove_options_set_domain(options, -1));
    INVALID(mangrove_options_set_locking(options, 2));
    INVALID(mangrove_options_set_durability_interval(options, 0));
    INVALID(mangrove_options_set_durability_interval(options, 60001));
    INVALID(mangrove_options_set_nowait_within(options, 60001));
    OK(mangrove_options_set_nowait_within(options, 0));
    OK(mangrove_options_set_nowait_within(options, 100));
    INVALID(mangrove_options_set_recovery_threads(options, 0));
    INVALID(mangrove_options_set_create(NULL, true));
    INVALID(mangrove_options_set_create_new(NULL, true));
    INVALID(mangrove_options_set_read_only(NULL, true));
    INVALID(mangrove_options_set_medium(NULL, MANGROVE_MEDIUM_FILE));
    INVALID(mangrove_options_set_emulated_latency(NULL, 300, 100));
    INVALID(mangrove_options_set_durability_sync(NULL));
    INVALID(mangrove_options_set_capacity(NULL, 1));
    INVALID(mangrove_options_set_log_bytes(NULL, 1));
    INVALID(mangrove_options_set_capacity(options, (1 << 20) - 1));
    CHECK(strstr(mangrove_last_error(), "not 1048575") != NULL);
    INVALID(mangrove_options_set_capacity(options, ((uint64_t)64 << 40) + 1));
    INVALID(mangrove_options_set_log_bytes(options, (16 << 10) - 1));
    INVALID(mangrove_options_set_log_bytes(options, (1 << 30) + 1));
    CHECK(strstr(mangrove_last_error(), "not 1073741825") != NULL);
    INVALID(mangrove_options_set_snapshot_bytes_max(NULL, 1));
    mangrove_options_free(options);
}

static void handles_still_in_use(const char *scratch, mangrove_map *map) {
    mangrove_snapshot *snapshot;
    mangrove_iter *iter;
    mangrove_map *second;
    OK(mangrove_map_snapshot(map, &snapshot));
    OK(mangrove_snapshot_iter(snapshot, NULL, &iter));
    ANSWERS(MANGROVE_ERR_IN_USE, mangrove_map_close(map));
    mangrove_snapshot_free(snapshot);
    ANSWERS(MANGROVE_ERR_IN_USE, mangrove_map_close(map));
    OK(mangrove_iter_next(iter)); /* outlives the snapshot it was made from */
    mangrove_iter_free(iter);
    value_is(map, "k", "v"); /* a refused close leaves the map open */

    ANSWERS(MANGROVE_ERR_POOL_BUSY, mangrove_map_open(below(scratch, "pool"), NULL, &second));
    CHECK(second == NULL);
    CHECK(strstr(mangrove_last_error(), "pool") != NULL);
}

static void bad_paths(const char *scratch) {
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    FILE *file = fopen(below(scratch, "file"), "w");
    CHECK(file != NULL && fputs("not a pool\n", file) >= 0 && fclose(file) == 0);
    CHECK(mkdir(below(scratch, "folder"), 0755) == 0);
    file = fopen(below(scratch, "folder/notes"), "w");
    CHECK(file != NULL && fputs("somebody's notes\n", file) >= 0 && fclose(file) == 0);

    CHECK(mangrove_map_open(below(scratch, "file"), NULL, &map) < 0);
    CHECK(map == NULL && strstr(mangrove_last_error(), "file") != NULL);
    CHECK(mangrove_map_open(below(scratch, "no/such/parent"), NULL, &map) < 0);
    CHECK(map == NULL && mangrove_last_error()[0] != 0);
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_open("", NULL, &map));
    CHECK(strstr(mangrove_last_error(), "is empty") != NULL);

    OK(mangrove_options_set_create(options, false));
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_map_open(below(scratch, "none"), options, &map));
    CHECK(strstr(mangrove_last_error(), "none") != NULL);
    OK(mangrove_options_set_read_only(options, true));
    OK(mangrove_options_set_create(options, true));
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_map_open(below(scratch, "none"), options, &map));
    mangrove_options_free(options);

    options = mangrove_options_new();
    OK(mangrove_options_set_create_new(options, true));
    ANSWERS(MANGROVE_ERR_POOL_EXISTS, mangrove_map_open(below(scratch, "pool"), options, &map));
    mangrove_options_free(options);
}

static void read_only(const char *scratch) {
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map, *second;
    OK(mangrove_options_set_read_only(options, true));
    OK(mangrove_map_open(below(scratch, "pool"), options, &map));
    OK(mangrove_map_open(below(scratch, "pool"), options, &second)); /* readers share */
    value_is(map, "k", "v");
    ANSWERS(MANGROVE_ERR_READ_ONLY, mangrove_map_put(map, S("k"), S("w")));
    ANSWERS(MANGROVE_ERR_READ_ONLY, mangrove_map_delete(second, S("k")));
    value_is(second, "k", "v");
    OK(mangrove_map_close(map));
    OK(mangrove_map_open(below(scratch, "pool"), NULL, &map)); /* a reader keeps no writer out */
    OK(mangrove_map_put(map, S("k"), S("w")));
    value_is(second, "k", "v");
    OK(mangrove_map_close(second));
    OK(mangrove_map_open(below(scratch, "pool"), options, &second)); /* beside the writer */
    value_is(second, "k", "w");
    OK(mangrove_map_put(map, S("k"), S("v")));
    OK(mangrove_map_close(map));
    OK(mangrove_map_close(second));
    mangrove_options_free(options);
}

static void *another_thread(void *nothing) {
    (void)nothing;
    CHECK(strcmp(mangrove_last_error(), "") == 0);
    INVALID(mangrove_map_sync(NULL));
    return NULL;
}

static void last_errors_are_per_thread(void) {
    pthread_t thread;
    char before[256];
    INVALID(mangrove_options_set_medium(NULL, 0));
    snprintf(before, sizeof before, "%s", mangrove_last_error());
    CHECK(pthread_create(&thread, NULL, another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(before, mangrove_last_error()) == 0);
    CHECK(strstr(before, "options") != NULL);
}

int main(int argc, char **argv) {
    const char *scratch = scratch_of(argc, argv);
    mangrove_map *map;
    OK(mangrove_map_open(below(scratch, "pool"), NULL, &map));
    OK(mangrove_map_put(map, S("k"), S("v")));
    null_handles(map);
    bad_ranges_and_sizes(map);
    bad_options();
    handles_still_in_use(scratch, map);
    OK(mangrove_map_close(map));
    bad_paths(scratch);
    read_only(scratch);
    last_errors_are_per_thread();
    return 0;
}
