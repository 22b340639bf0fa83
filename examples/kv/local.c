/*
 * The store in local mode: the program itself issues the commands.
 *
 *     kv_local STATE put INDEX VALUE        kv_local STATE get INDEX
 *     kv_local STATE run THREADS ROUNDS     every thread puts numbers into slots of its own, and prints
 *                                           "THREAD NUMBER" after each that was acknowledged
 *     kv_local STATE dump THREADS           what `run` would find
 */
#include "glue.h"
#include <pthread.h>
#include <string.h>

enum { SLOTS_A_THREAD = 16 };

static mangrove_app *app;
static unsigned long rounds;

static void command(mangrove_app_client *client, kv_client *ctx, const kv_request *request) {
    ctx->request = request;
    must(mangrove_app_cmd(client, ctx));
}

static unsigned slot_of(unsigned long thread, unsigned long number) {
    return (unsigned)(thread * SLOTS_A_THREAD + number % SLOTS_A_THREAD);
}

/* The newest number in the thread's slots; ends the program when they contradict each other. */
static unsigned long newest(mangrove_app_client *client, unsigned long thread) {
    unsigned long found[SLOTS_A_THREAD], last = 0;
    kv_client ctx = {.id = thread};
    for (unsigned i = 0; i < SLOTS_A_THREAD; i++) {
        kv_request request;
        kv_get(&request, slot_of(thread, i));
        command(client, &ctx, &request);
        found[i] = strtoul(ctx.reply, NULL, 10);
        if (found[i] > last) last = found[i];
    }
    /* Numbers were put one after another, so all the last ones must be there. */
    for (unsigned long n = last; n > 0 && n + SLOTS_A_THREAD > last; n--)
        if (found[n % SLOTS_A_THREAD] != n) {
            fprintf(stderr, "thread %lu: %lu is there and %lu is not\n", thread, last, n);
            exit(2);
        }
    return last;
}

static void *run(void *arg) {
    unsigned long thread = (unsigned long)arg;
    mangrove_app_client *client;
    kv_client ctx = {.id = thread};
    must(mangrove_app_client_new(app, &client));
    unsigned long first = newest(client, thread) + 1;
    for (unsigned long n = first; n < first + rounds; n++) {
        kv_request request;
        char value[VALUE_BYTES], line[64];
        snprintf(value, sizeof value, "%lu", n);
        kv_put(&request, slot_of(thread, n), value);
        command(client, &ctx, &request);
        int len = snprintf(line, sizeof line, "%lu %lu\n", thread, n);
        fwrite(line, 1, (size_t)len, stdout);
        fflush(stdout);
    }
    mangrove_app_client_free(client);
    return NULL;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks,
        .is_read_only = glue_is_read_only,
        .process = glue_process,
        .init_state = glue_init_state,
    };
    if (argc < 4) {
        fprintf(stderr, "usage: %s STATE put INDEX VALUE | get INDEX | run THREADS ROUNDS | dump THREADS\n", argv[0]);
        return 2;
    }
    must(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    unsigned long number = strtoul(argv[3], NULL, 10);
    if (strcmp(argv[2], "run") == 0 && argc > 4) {
        pthread_t threads[256];
        if (number > 256) number = 256;
        rounds = strtoul(argv[4], NULL, 10);
        for (unsigned long t = 0; t < number; t++)
            if (pthread_create(&threads[t], NULL, run, (void *)t) != 0) return 1;
        for (unsigned long t = 0; t < number; t++) pthread_join(threads[t], NULL);
    } else {
        mangrove_app_client *client;
        kv_client ctx = {.id = 0};
        kv_request request;
        must(mangrove_app_client_new(app, &client));
        if (strcmp(argv[2], "dump") == 0) {
            for (unsigned long t = 0; t < number; t++) printf("%lu %lu\n", t, newest(client, t));
        } else {
            if (strcmp(argv[2], "put") == 0 && argc > 4)
                kv_put(&request, (unsigned)number, argv[4]);
            else
                kv_get(&request, (unsigned)number);
            command(client, &ctx, &request);
            fputs(ctx.reply, stdout);
        }
        mangrove_app_client_free(client);
    }
    must(mangrove_app_close(app));
    return 0;
}
