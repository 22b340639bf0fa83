/* What calls return on an application that is open. */
#include "check.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

static int answer, recovered;
static mangrove_app *app, *twin;
static mangrove_app_client *client, *second;
static int nested[8];
static long counter;
static char *kept;
/* Where on_recover listens; empty: nowhere. */
static char address[108];

static int init_state(void *user) {
    CHECK(user == &answer);
    counter = 40;
    return answer;
}

static int on_recover(void *user) {
    CHECK(user == &answer);
    recovered++;
    if (address[0] != '\0') OK(mangrove_app_listen(app, address));
    return answer;
}

static ptrdiff_t deserialize(void *ctx, const void *input, size_t len) {
    (void)ctx, (void)input;
    return (ptrdiff_t)len;
}

static void get_response(void *ctx, mangrove_app_response *response) {
    (void)ctx, (void)response;
}

static void process(void *ctx) {
    counter += *(long *)ctx;
}

static void nest(void *ctx) {
    nested[0] = mangrove_app_cmd(client, ctx);
    nested[1] = mangrove_app_cmd(second, ctx);
    nested[2] = mangrove_app_sync(app);
    nested[3] = mangrove_app_checkpoint(app);
    nested[4] = mangrove_app_close(app);
    nested[5] = mangrove_app_listen(app, "127.0.0.1:0");
    nested[6] = mangrove_app_serve(app);
    nested[7] = mangrove_app_root(app, 3) != NULL;
    counter++;
}

static void fork_inside(void *ctx) {
    (void)ctx;
    errno = 0;
    nested[0] = fork() == -1 ? errno : 0;
    counter++;
}

static void nest_in_read(void *ctx) {
    nested[0] = mangrove_app_cmd(client, ctx);
}

static void read_counter(void *ctx) {
    *(long *)ctx = counter;
}

static void set_root(void *ctx) {
    *mangrove_app_root(app, 15) = ctx;
    kept = strdup("kept");
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .user = &answer, .process = process,
        .init_state = init_state, .on_recover = on_recover};
    CHECK(argc == 2);
    const char *state = argv[1];
    long two = 2, seen = 0;

    OK(mangrove_app_open(state, NULL, &callbacks, &app));
    CHECK(mangrove_app_is_new(app) && recovered == 0);
    ANSWERS(MANGROVE_APP_ERR_POOL, mangrove_app_open(state, NULL, &callbacks, &twin));
    SAYS("in use");

    OK(mangrove_app_client_new(app, &client));
    OK(mangrove_app_client_new(app, &second));
    OK(mangrove_app_cmd(client, &two));
    OK(mangrove_app_read(client, read_counter, &seen));
    CHECK(seen == 42);
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_cmd(NULL, &two));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_write(client, NULL, &two));

    /* From inside commands. */
    OK(mangrove_app_write(client, nest, &two));
    for (int i = 0; i < 7; i++) CHECK(nested[i] == MANGROVE_APP_ERR_NESTED);
    CHECK(nested[7]);
    OK(mangrove_app_read(client, nest_in_read, &two));
    CHECK(nested[0] == MANGROVE_APP_ERR_NESTED);
    OK(mangrove_app_read(second, read_counter, &seen));
    CHECK(seen == 43);

    /* fork fails inside a command, and the command continues; outside it works. */
    OK(mangrove_app_write(client, fork_inside, NULL));
    CHECK(nested[0] == ENOTSUP && counter == 44);
    pid_t child = fork();
    if (child == 0) {
        /* Combiner and log are its parent's. */
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_read(client, read_counter, &seen));
        SAYS("forked");
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_write(client, fork_inside, NULL));
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_sync(app));
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_checkpoint(app));
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_compact(app));
        SAYS("forked");
        mangrove_app_client *none;
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_client_new(app, &none));
        /* The application stays. */
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_close(app));
        SAYS("forked");
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_sync(app));
        _exit(5);
    }
    int ended = 0;
    CHECK(child > 0 && waitpid(child, &ended, 0) == child && WEXITSTATUS(ended) == 5);

    /* Roots. */
    CHECK(mangrove_app_root(app, 16) == NULL && mangrove_app_root(NULL, 0) == NULL);
    OK(mangrove_app_write(client, set_root, (void *)77));
    CHECK(*mangrove_app_root(app, 15) == (void *)77);

    /* The server needs its callbacks, and an address. */
    ANSWERS(MANGROVE_APP_ERR_SERVER, mangrove_app_listen(app, "127.0.0.1:0"));
    SAYS("deserialize");
    ANSWERS(MANGROVE_APP_ERR_SERVER, mangrove_app_serve(app));
    SAYS("listens nowhere");
    mangrove_app_stop(app);
    mangrove_app_stop(NULL);

    /* Counters, for old and new callers. */
    mangrove_app_counters counters;
    OK(mangrove_app_stat(app, &counters, sizeof counters));
    CHECK(counters.commands == 5 && counters.batches == 5 && counters.failed == 0);
    CHECK(counters.durable >= counters.committed);
    uint64_t only_batches = 9;
    OK(mangrove_app_stat(app, (mangrove_app_counters *)&only_batches, sizeof only_batches));
    CHECK(only_batches == 5);
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_stat(app, &counters, 1));

    OK(mangrove_app_sync(app));
    OK(mangrove_app_checkpoint(app));
    ANSWERS(MANGROVE_APP_ERR_IN_USE, mangrove_app_close(app));
    SAYS("2 clients");
    mangrove_app_client_free(client);
    mangrove_app_client_free(second);
    mangrove_app_client_free(NULL);
    OK(mangrove_app_close(app));
    OK(mangrove_app_close(NULL));

    /* Found again; a recovery that fails changes nothing. */
    counter = 0;
    answer = 9;
    ANSWERS(MANGROVE_APP_ERR_REFUSED, mangrove_app_open(state, NULL, &callbacks, &app));
    SAYS("on_recover returned 9");
    CHECK(recovered == 1);
    /* Nor one that has listened; and what the variables point to is there until the process ends, as after closing. */
    CHECK((size_t)snprintf(address, sizeof address, "unix:%s.socket", state) < sizeof address);
    callbacks.deserialize = deserialize;
    callbacks.get_response = get_response;
    kept = NULL;
    ANSWERS(MANGROVE_APP_ERR_REFUSED, mangrove_app_open(state, NULL, &callbacks, &app));
    SAYS("on_recover returned 9");
    CHECK(app == NULL && recovered == 2 && strcmp(kept, "kept") == 0);
    address[0] = '\0';
    answer = 0;
    counter = 0;
    OK(mangrove_app_open(state, NULL, &callbacks, &app));
    CHECK(recovered == 3 && counter == 44 && !mangrove_app_is_new(app));
    CHECK(*mangrove_app_root(app, 15) == (void *)77);
    OK(mangrove_app_close(app));
    return 0;
}
