/* One map, many threads: own keys, a shared counter by compare-and-set, walks that stand still. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60 };

static mangrove_map *map;

static void increment(void) {
    for (;;) {
        uint64_t old = 0, new;
        size_t len;
        mangrove_status status = mangrove_map_get_into(map, S("counter"), &old, sizeof old, &len);
        CHECK(status == MANGROVE_NOT_FOUND || (status == MANGROVE_OK && len == sizeof old));
        new = old + 1;
        status = mangrove_map_compare_and_set(map, S("counter"), status == MANGROVE_OK ? &old : NULL,
                                              status == MANGROVE_OK ? sizeof old : 0, &new, sizeof new);
        CHECK(status == MANGROVE_OK || status == MANGROVE_MISMATCH);
        if (status == MANGROVE_OK) return;
    }
}

/* Within one snapshot the two keys that every batch writes together agree. */
static void look(void) {
    mangrove_iter *iter;
    char left[32] = "", right[32] = "";
    OK(mangrove_map_iter(map, NULL, &iter));
    while (mangrove_iter_next(iter) == MANGROVE_OK) {
        size_t key_len, value_len;
        const char *key = mangrove_iter_key(iter, &key_len);
        const char *value = mangrove_iter_value(iter, &value_len);
        if (key_len == 4 && memcmp(key, "left", 4) == 0) memcpy(left, value, value_len);
        if (key_len == 5 && memcmp(key, "right", 5) == 0) memcpy(right, value, value_len);
    }
    CHECK(strcmp(left, right) == 0);
    mangrove_iter_free(iter);
}

static void *work(void *number) {
    int me = *(int *)number, i;
    mangrove_batch *batch = mangrove_batch_new();
    for (i = 0; i < ROUNDS; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "thread %d round %d", me, i);
        OK(mangrove_map_put(map, text, (size_t)len, text, (size_t)len));
        value_is(map, text, text);
        increment();
        OK(mangrove_batch_put(batch, S("left"), text, (size_t)len));
        OK(mangrove_batch_put(batch, S("right"), text, (size_t)len));
        OK(mangrove_map_write(map, batch));
        if (i % 10 == me) look();
        if (i % 2) OK(mangrove_map_delete(map, text, (size_t)len));
    }
    mangrove_batch_free(batch);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    int numbers[THREADS], i;
    uint64_t counter;
    size_t len;
    OK(mangrove_map_open(below(scratch_of(argc, argv), "pool"), NULL, &map));
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(mangrove_map_get_into(map, S("counter"), &counter, sizeof counter, &len));
    CHECK(counter == THREADS * ROUNDS);
    CHECK(records_of(map) == 3 + THREADS * ROUNDS / 2);
    OK(mangrove_map_check(map, NULL, NULL));
    OK(mangrove_map_close(map));
    return 0;
}
