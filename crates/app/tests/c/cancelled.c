/* A thread that is cancelled in calls ends after them: the process continues, and what they acknowledged is there. */
#include "check.h"
#include <pthread.h>

static mangrove_app *app;
static mangrove_app_client *client;
static long counter;
static long two = 2, seen;

static void process(void *ctx) {
    counter += *(long *)ctx;
    /* A cancellation point, in the middle of a command. */
    pthread_testcancel();
    counter += *(long *)ctx;
}

static void read_counter(void *ctx) {
    pthread_testcancel();
    *(long *)ctx = counter;
}

/* The cancellation waits from the beginning, so that it would take effect at the first cancellation point of a call. */
static void *call(void *state) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    uint64_t ticket;
    CHECK(pthread_cancel(pthread_self()) == 0);
    OK(mangrove_app_open(state, NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    OK(mangrove_app_cmd(client, &two));
    OK(mangrove_app_read(client, read_counter, &seen));
    OK(mangrove_app_batch_call(app, process, &two));
    OK(mangrove_app_batch_commit(app, &ticket));
    OK(mangrove_app_wait(app, ticket));
    OK(mangrove_app_checkpoint(app));
    pthread_testcancel();
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    void *ended;
    CHECK(argc == 2);
    CHECK(pthread_create(&thread, NULL, call, argv[1]) == 0);
    CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
    CHECK(seen == 4);
    OK(mangrove_app_cmd(client, &two));
    OK(mangrove_app_read(client, read_counter, &seen));
    CHECK(seen == 12);
    mangrove_app_client_free(client);
    OK(mangrove_app_close(app));
    return 0;
}
