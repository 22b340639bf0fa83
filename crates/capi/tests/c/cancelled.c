/* A thread that is cancelled in a call on a map ends when the call has: the process, the map and the other threads go
 * on, and what the call acknowledged is there. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define CANCELLED 100

static mangrove_map *map;
static atomic_long calls;

static void pause_for(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

/* Returns at the first cancellation point between two calls. */
static void *write_for_ever(void *number) {
    static const char value[3000];
    for (unsigned n = 0;; n++) {
        char key[32];
        snprintf(key, sizeof key, "%ld %u", (long)number, n % 50);
        OK(mangrove_map_put(map, key, strlen(key), value, n % sizeof value));
        calls++;
        pthread_testcancel();
    }
    return NULL;
}

static void cancel(pthread_t thread) {
    void *ended;
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &ended) == 0);
    CHECK(ended == PTHREAD_CANCELED);
}

/* Reads what a thread recovers meanwhile, then from memory. */
static void *get_for_ever(void *unused) {
    for (;;) {
        char value[5000];
        size_t len = 0;
        OK(mangrove_map_get_into(map, "large 7", 7, value, sizeof value, &len));
        CHECK(len == sizeof value);
        CHECK(mangrove_map_contains(map, "large 8", 7) == MANGROVE_OK);
        pthread_testcancel();
    }
    return unused;
}

/* The same in gets of a large map that was closed: until it is recovered they read its files. */
static void cancel_in_early_gets(const char *path) {
    static const char value[5000];
    for (int n = 0; n < 4000; n++) {
        char key[32];
        snprintf(key, sizeof key, "large %d", n);
        OK(mangrove_map_put_nowait(map, key, strlen(key), value, sizeof value));
    }
    for (long round = 0; round < 30; round++) {
        pthread_t thread;
        OK(mangrove_map_close(map));
        OK(mangrove_map_open(path, NULL, &map));
        CHECK(pthread_create(&thread, NULL, get_for_ever, NULL) == 0);
        pause_for(round * 37 % 600);
        cancel(thread);
    }
    OK(mangrove_map_wait_recovered(map));
}

/* The get waits until the record is durable, and this thread writes the log for it. */
static void *get_what_is_not_durable(void *unused) {
    char value[1];
    size_t len;
    OK(mangrove_map_put_nowait(map, "late", 4, "x", 1));
    CHECK(pthread_cancel(pthread_self()) == 0);
    OK(mangrove_map_get_into(map, "late", 4, value, sizeof value, &len));
    pthread_testcancel();
    return unused;
}

static void cancel_in_a_get_that_writes(const char *path) {
    mangrove_options *options = mangrove_options_new();
    pthread_t thread;
    void *ended;
    OK(mangrove_options_set_nowait_within(options, 0)); /* no other thread writes */
    OK(mangrove_map_open(path, options, &map));
    CHECK(pthread_create(&thread, NULL, get_what_is_not_durable, NULL) == 0);
    CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
    OK(mangrove_map_close(map));
    mangrove_options_free(options);
}

int main(int argc, char **argv) {
    pthread_t other, thread;
    const char *path = below(scratch_of(argc, argv), "map");
    OK(mangrove_map_open(path, NULL, &map));
    CHECK(pthread_create(&other, NULL, write_for_ever, (void *)-1L) == 0);
    for (long number = 0; number < CANCELLED; number++) {
        CHECK(pthread_create(&thread, NULL, write_for_ever, (void *)number) == 0);
        pause_for(number * 37 % 3000);
        cancel(thread);
    }
    /* The other one is not held up. */
    for (long before = calls; calls == before;) pause_for(1000);
    cancel(other);
    cancel_in_early_gets(path);
    OK(mangrove_map_check(map, NULL, NULL));
    OK(mangrove_map_close(map));
    cancel_in_a_get_that_writes(path);
    return 0;
}
