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

int main(int argc, char **argv) {
    pthread_t other, thread;
    OK(mangrove_map_open(below(scratch_of(argc, argv), "map"), NULL, &map));
    CHECK(pthread_create(&other, NULL, write_for_ever, (void *)-1L) == 0);
    for (long number = 0; number < CANCELLED; number++) {
        CHECK(pthread_create(&thread, NULL, write_for_ever, (void *)number) == 0);
        pause_for(number * 37 % 3000);
        cancel(thread);
    }
    /* The other one is not held up. */
    for (long before = calls; calls == before;) pause_for(1000);
    cancel(other);
    OK(mangrove_map_check(map, NULL, NULL));
    OK(mangrove_map_close(map));
    return 0;
}
