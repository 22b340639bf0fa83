/* Where there is no memory for a value, reading it fails and says why, and everything else continues. */
#include "check.h"
#include <sys/resource.h>

enum { BIG = 64 << 20 };

/* Lets the process have this many bytes of address space more than it has; 0 is no limit. */
static void limit_memory(size_t more) {
    struct rlimit limit;
    unsigned long pages = 0;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    if (more > 0) {
        FILE *statm = fopen("/proc/self/statm", "r");
        CHECK(statm != NULL && fscanf(statm, "%lu", &pages) == 1 && fclose(statm) == 0);
        limit.rlim_cur = pages * 4096 + more;
    }
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    const void *keys[2] = {"small", "big"};
    const size_t key_lens[2] = {5, 3};
    void *value, *values[2];
    size_t len, lens[2];
    mangrove_map *map;
    mangrove_snapshot *snapshot;
    char *big = calloc(1, BIG);
    CHECK(big != NULL);
    OK(mangrove_map_open(below(folder, "pool"), NULL, &map));
    OK(mangrove_map_put(map, S("big"), big, BIG));
    OK(mangrove_map_put(map, S("small"), S("value")));
    free(big);
    OK(mangrove_map_snapshot(map, &snapshot));

    limit_memory(BIG / 2);
    ANSWERS(MANGROVE_ERR_NO_MEMORY, mangrove_map_get(map, S("big"), &value, &len));
    CHECK(value == NULL && len == 0 && strstr(mangrove_last_error(), "67108864") != NULL);
    ANSWERS(MANGROVE_ERR_NO_MEMORY, mangrove_map_get_into(map, S("big"), NULL, 0, &len));
    ANSWERS(MANGROVE_ERR_NO_MEMORY, mangrove_map_get_many(map, 2, keys, key_lens, values, lens));
    CHECK(values[0] == NULL && values[1] == NULL);
    ANSWERS(MANGROVE_ERR_NO_MEMORY, mangrove_snapshot_get(snapshot, S("big"), &value, &len));
    ANSWERS(MANGROVE_ERR_NO_MEMORY, mangrove_map_compare_and_set(map, S("big"), S("a"), S("b")));
    value_is(map, "small", "value");
    OK(mangrove_map_put(map, S("small"), S("another")));
    OK(mangrove_map_contains(map, S("big")));

    /* What was there at the snapshot, after it has changed. */
    limit_memory(0);
    OK(mangrove_map_put(map, S("big"), S("tiny")));
    limit_memory(BIG / 2);
    ANSWERS(MANGROVE_ERR_NO_MEMORY, mangrove_snapshot_get(snapshot, S("big"), &value, &len));
    CHECK(value == NULL && strstr(mangrove_last_error(), "67108864") != NULL);

    limit_memory(0);
    OK(mangrove_snapshot_get(snapshot, S("big"), &value, &len));
    CHECK(len == BIG);
    mangrove_free(value);
    OK(mangrove_map_get(map, S("big"), &value, &len));
    CHECK(len == 4);
    mangrove_free(value);
    mangrove_snapshot_free(snapshot);
    OK(mangrove_map_close(map));
    return 0;
}
