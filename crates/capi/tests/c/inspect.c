/* Figures, checks and backups. */
#include "check.h"

static int calls;

static int32_t count_calls(const mangrove_progress *progress, void *context) {
    uint64_t *last = context;
    calls++;
    CHECK(progress->records >= *last && progress->records <= progress->records_total);
    *last = progress->records;
    return 0;
}

static int32_t stop(const mangrove_progress *progress, void *context) {
    (void)progress;
    (void)context;
    return 1;
}

static void figures(mangrove_map *map, const char *path) {
    /* For a program that was compiled against an older or a newer header. */
    struct { mangrove_stat stat; char newer[64]; } wide;
    mangrove_stat stat = {.size = sizeof stat};
    mangrove_recovery recovery = {.size = sizeof recovery};
    mangrove_pool_info info = {.size = sizeof info}, read = {.size = sizeof read};

    OK(mangrove_map_stat(map, &stat));
    CHECK(stat.size == sizeof stat && stat.records == 20000 && stat.interval_ms == 50);
    CHECK(stat.medium == MANGROVE_MEDIUM_FILE && stat.poisoned[0] == 0 && !stat.read_only);
    CHECK(stat.capacity >= stat.image_bytes && stat.image_bytes >= stat.durable_bytes);
    CHECK(stat.durable_bytes > 20000 * 16 && stat.log_bytes_written > 20000 * 16);

    memset(&wide, 0x55, sizeof wide);
    wide.stat.size = offsetof(mangrove_stat, durable_bytes);
    OK(mangrove_map_stat(map, &wide.stat));
    CHECK(wide.stat.records == 20000 && wide.stat.durable_bytes == 0x5555555555555555u);
    wide.stat.size = sizeof wide;
    OK(mangrove_map_stat(map, &wide.stat));
    CHECK(wide.stat.size == sizeof stat && wide.stat.poisoned[0] == 0 && wide.newer[63] == 0);

    OK(mangrove_map_recovery(map, &recovery));
    CHECK(recovery.created && recovery.records == 0 && recovery.seconds >= 0);
    OK(mangrove_map_info(map, &info));
    CHECK(strcmp(info.kind, "map") == 0 && strlen(info.uuid) > 16 && info.version >= 1);
    OK(mangrove_pool_read_info(path, &read));
    CHECK(strcmp(info.uuid, read.uuid) == 0 && read.busy && read.capacity == info.capacity);
    CHECK(info.medium == MANGROVE_MEDIUM_FILE);
}

static void checks(mangrove_map *map) {
    uint64_t records = 0;
    char *problems = "unset";
    OK(mangrove_map_check(map, &records, &problems));
    CHECK(records == 20000 && problems == NULL);
}

static void backups(mangrove_map *map, const char *scratch) {
    uint64_t records, last = 0;
    mangrove_map *copy;
    mangrove_pool_info info = {.size = sizeof info}, original = {.size = sizeof original};
    OK(mangrove_map_backup(map, below(scratch, "copy"), count_calls, &last, &records));
    CHECK(records == 20000 && calls > 0);
    ANSWERS(MANGROVE_ERR_POOL_EXISTS, mangrove_map_backup(map, below(scratch, "copy"), NULL, NULL, NULL));
    ANSWERS(MANGROVE_ERR_STOPPED, mangrove_map_backup(map, below(scratch, "half"), stop, NULL, &records));
    CHECK(records == 0);
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_pool_read_info(below(scratch, "half"), &info));

    OK(mangrove_map_put(map, S("later"), S("1")));
    OK(mangrove_map_open(below(scratch, "copy"), NULL, &copy));
    CHECK(records_of(copy) == 20000);
    value_is(copy, "key 12345", "12345");
    ANSWERS(MANGROVE_NOT_FOUND, mangrove_map_contains(copy, S("later")));
    OK(mangrove_map_info(copy, &info));
    OK(mangrove_map_info(map, &original));
    CHECK(strcmp(info.uuid, original.uuid) != 0);
    OK(mangrove_map_close(copy));
    OK(mangrove_pool_check(below(scratch, "copy"), NULL));
    OK(mangrove_map_delete(map, S("later")));
}

/* One flipped byte in a closed pool is found, and its place reported. */
static void damage(const char *scratch, const char *path) {
    char *problems = NULL;
    char image[600];
    FILE *file;
    long at;
    mangrove_status status;
    OK(mangrove_pool_check(path, &problems));
    CHECK(problems == NULL);
    snprintf(image, sizeof image, "%s/image", path);
    file = fopen(image, "r+b");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    at = ftell(file) / 2;
    CHECK(at > 0 && fseek(file, at, SEEK_SET) == 0);
    {
        int byte = fgetc(file);
        CHECK(byte != EOF && fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 4, file) != EOF);
    }
    CHECK(fclose(file) == 0);
    status = mangrove_pool_check(path, &problems);
    CHECK(status == MANGROVE_UNSOUND || status == MANGROVE_ERR_CORRUPT);
    if (status == MANGROVE_UNSOUND) CHECK(problems != NULL && strstr(problems, "image") != NULL);
    mangrove_free(problems);
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_pool_check(below(scratch, "none"), &problems));
    CHECK(problems == NULL);
}

int main(int argc, char **argv) {
    const char *scratch = scratch_of(argc, argv);
    const char *path = below(scratch, "pool");
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;
    int i;
    char kept[512];
    snprintf(kept, sizeof kept, "%s", path);
    OK(mangrove_options_set_durability_interval(options, 50));
    OK(mangrove_options_set_medium(options, MANGROVE_MEDIUM_FILE));
    OK(mangrove_options_set_capacity(options, (uint64_t)1 << 30));
    OK(mangrove_options_set_log_bytes(options, (uint64_t)8 << 20));
    OK(mangrove_options_set_snapshot_bytes_max(options, (uint64_t)16 << 20));
    OK(mangrove_options_set_recovery_threads(options, 2));
    OK(mangrove_options_set_domain(options, MANGROVE_DOMAIN_ADR));
    OK(mangrove_options_set_locking(options, MANGROVE_LOCKING_PER_TREE));
    OK(mangrove_map_open(kept, options, &map));
    mangrove_options_free(options);
    for (i = 0; i < 20000; i++) {
        char key[16], value[16];
        int key_len = snprintf(key, sizeof key, "key %d", i);
        int value_len = snprintf(value, sizeof value, "%d", i);
        OK(mangrove_map_put(map, key, (size_t)key_len, value, (size_t)value_len));
    }
    OK(mangrove_map_sync(map));
    figures(map, kept);
    checks(map);
    backups(map, scratch);
    OK(mangrove_map_close(map));
    damage(scratch, kept);
    return 0;
}
