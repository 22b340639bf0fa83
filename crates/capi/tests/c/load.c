/* A new map that is loaded without a log: whole, or not at all. */
#include "check.h"

#include <pthread.h>

enum { RECORDS = 20000 };

typedef struct {
    const char *path;
    pthread_t caller;
    mangrove_snapshot *kept;
    int answer;
} job;

static int32_t fill(mangrove_map *map, void *context) {
    job *job = context;
    mangrove_snapshot *before;
    mangrove_batch *batch = mangrove_batch_new();
    mangrove_map *none;
    char key[32];
    int32_t number;

    CHECK(pthread_equal(job->caller, pthread_self()));
    /* Not there yet. */
    mangrove_options *existing = mangrove_options_new();
    OK(mangrove_options_set_create(existing, false));
    ANSWERS(MANGROVE_ERR_POOL_NOT_FOUND, mangrove_map_open(job->path, existing, &none));
    mangrove_options_free(existing);
    /* In no order. */
    for (number = 0; number < RECORDS; number++) {
        CHECK(snprintf(key, sizeof key, "%08x", (uint32_t)number * 0x9e3779b1u) == 8);
        OK(mangrove_map_put(map, key, 8, &number, sizeof number));
    }
    OK(mangrove_map_snapshot(map, &before));
    OK(mangrove_batch_put(batch, S("tide"), S("low")));
    OK(mangrove_batch_delete(batch, S("00000000")));
    OK(mangrove_map_write(map, batch));
    mangrove_batch_free(batch);
    OK(mangrove_map_sync(map));
    value_is(map, "tide", "low");
    CHECK(records_of(map) == RECORDS);
    if (job->answer == 2) {
        job->kept = before;
        return 0;
    }
    mangrove_snapshot_free(before);
    return job->answer;
}

int main(int argc, char **argv) {
    const char *scratch = scratch_of(argc, argv);
    job job = {.path = below(scratch, "map"), .caller = pthread_self()};
    mangrove_options *options = mangrove_options_new();
    mangrove_map *map;

    OK(mangrove_options_set_medium(options, MANGROVE_MEDIUM_FILE));
    OK(mangrove_options_set_capacity(options, 1 << 28));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_load(job.path, options, NULL, &job));
    ANSWERS(MANGROVE_ERR_INVALID_ARGUMENT, mangrove_map_load(NULL, options, fill, &job));

    /* Refused by the callback, and by a snapshot that it left: nothing is there. */
    job.answer = 1;
    ANSWERS(MANGROVE_ERR_STOPPED, mangrove_map_load(job.path, options, fill, &job));
    job.answer = 2;
    ANSWERS(MANGROVE_ERR_IN_USE, mangrove_map_load(job.path, options, fill, &job));
    CHECK(strstr(mangrove_last_error(), "snapshots") != NULL);
    mangrove_snapshot_free(job.kept);

    job.answer = 0;
    OK(mangrove_map_load(job.path, options, fill, &job));
    ANSWERS(MANGROVE_ERR_POOL_EXISTS, mangrove_map_load(job.path, options, fill, &job));
    OK(mangrove_map_open(job.path, NULL, &map));
    CHECK(records_of(map) == RECORDS);
    value_is(map, "tide", "low");
    OK(mangrove_map_put(map, S("tide"), S("high")));
    OK(mangrove_map_close(map));

    OK(mangrove_options_set_read_only(options, true));
    ANSWERS(MANGROVE_ERR_UNSUPPORTED, mangrove_map_load(below(scratch, "other"), options, fill, &job));
    mangrove_options_free(options);
    /* All defaults. */
    job.path = below(scratch, "default");
    OK(mangrove_map_load(job.path, NULL, fill, &job));
    return 0;
}
