/*
 * The store in RPC mode: the library owns the sockets.
 *
 *     kv_server [--interval MS] STATE ADDRESS...     ADDRESS is HOST:PORT or unix:PATH; prints where it listens
 *
 * A request is a kv_request; a reply is REPLY_BYTES long. With --interval answers do not wait until they are durable,
 * which everything is made every MS milliseconds.
 */
#include "glue.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static mangrove_app *app;

static void *init_client(uint64_t id, void *user) {
    (void)user;
    kv_client *client = calloc(1, sizeof *client);
    if (client != NULL) client->id = id;
    return client;
}

static void destroy_client(void *ctx) {
    free(ctx);
}

static ptrdiff_t deserialize(void *ctx, const void *input, size_t len) {
    const kv_request *request = input;
    if (len < sizeof *request) return 0;
    if (request->kind != KV_GET && request->kind != KV_PUT) return -1;
    ((kv_client *)ctx)->request = request;
    return sizeof *request;
}

static void get_response(void *ctx, mangrove_app_response *response) {
    kv_client *client = ctx;
    response->data = client->reply;
    response->len = REPLY_BYTES;
}

static bool failed(void *ctx, int32_t status, const char *message) {
    kv_client *client = ctx;
    snprintf(client->reply, REPLY_BYTES, "ERROR %d %s\n", (int)status, message);
    return true;
}

static void stop(int signal) {
    (void)signal;
    mangrove_app_stop(app);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks,
        .init_client = init_client,
        .destroy_client = destroy_client,
        .deserialize = deserialize,
        .is_read_only = glue_is_read_only,
        .process = glue_process,
        .get_response = get_response,
        .failed = failed,
        .init_state = glue_init_state,
    };
    const char *program = argv[0];
    mangrove_app_options *options = mangrove_app_options_new();
    if (argc > 3 && strcmp(argv[1], "--interval") == 0) {
        must(mangrove_app_options_set_durability_interval(options, (uint32_t)strtoul(argv[2], NULL, 10)));
        argc -= 2;
        argv += 2;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: %s [--interval MS] STATE ADDRESS...\n", program);
        return 2;
    }
    must(mangrove_app_open(argv[1], options, &callbacks, &app));
    mangrove_app_options_free(options);
    for (int i = 2; i < argc; i++) {
        must(mangrove_app_listen(app, argv[i]));
        printf("%s\n", mangrove_app_address(app, (uint32_t)(i - 2)));
    }
    fflush(stdout);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    must(mangrove_app_serve(app));
    /* No handler may use what is closed. From here on a second signal ends the process, which loses nothing. */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    must(mangrove_app_close(app));
    return 0;
}
