/* Options of a state, each by its effect: options STATE capacity|sync|latency|variables|explicit. */
#include "check.h"
#include <time.h>

#define LINE 64
#define WRITE_NS 20000
#define LINES 1024

static mangrove_app_options *options;
static mangrove_app *app;
static mangrove_app_client *client;

static long counter;
static void *large, *small;
static char *lines;
static long *block;

static void process(void *ctx) {
    (void)ctx;
}

static void open_state(const char *state, int (*init_state)(void *)) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process, .init_state = init_state};
    OK(mangrove_app_open(state, options, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
}

static void close_state(void) {
    mangrove_app_client_free(client);
    OK(mangrove_app_close(app));
}

static void run(void (*command)(void *)) {
    OK(mangrove_app_write(client, command, NULL));
}

static void count(void *ctx) {
    (void)ctx;
    counter += 2;
}

/* A state grows to its capacity and no further. */
static void allocate_two(void *ctx) {
    (void)ctx;
    large = malloc((size_t)128 << 20);
    small = malloc((size_t)1 << 20);
}

static void capacity(const char *state) {
    OK(mangrove_app_options_set_capacity(options, (uint64_t)64 << 20));
    open_state(state, NULL);
    run(allocate_two);
    CHECK(large == NULL && small != NULL);
    close_state();
}

/* With durability sync a command is durable when it returns; with a long interval it is not. */
static bool is_durable(void) {
    mangrove_app_counters counters;
    OK(mangrove_app_stat(app, &counters, sizeof counters));
    return counters.durable >= counters.committed;
}

static void durability(const char *state) {
    OK(mangrove_app_options_set_durability_interval(options, 60000));
    open_state(state, NULL);
    run(count);
    CHECK(!is_durable());
    close_state();
    OK(mangrove_app_options_set_durability_sync(options));
    open_state(state, NULL);
    run(count);
    CHECK(is_durable());
    close_state();
}

/* Each cache line that a command wrote is flushed, and costs at least the latency that was asked for. */
static int make_lines(void *user) {
    (void)user;
    lines = calloc(LINES, LINE);
    return lines == NULL;
}

static void fill_lines(void *ctx) {
    (void)ctx;
    memset(lines, 1, LINES * LINE);
}

static void latency(const char *state) {
    OK(mangrove_app_options_set_emulated_latency(options, WRITE_NS, 0));
    OK(mangrove_app_options_set_log_bytes(options, 1 << 20));
    open_state(state, make_lines);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    run(fill_lines);
    clock_gettime(CLOCK_MONOTONIC, &to);
    long long took_ns = (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
    CHECK(took_ns > (long long)LINES * WRITE_NS / 2);
    close_state();
}

/* Without variables in the state, opening leaves them as they are. */
static void variables(const char *state) {
    OK(mangrove_app_options_set_variables(options, false));
    open_state(state, NULL);
    run(count);
    CHECK(counter == 2);
    close_state();
    counter = 7;
    open_state(state, NULL);
    CHECK(counter == 7);
    close_state();
}

/* With the explicit tracker the state has what the program announced, and nothing else. */
static int make_block(void *user) {
    (void)user;
    mangrove_app_will_write(&block, sizeof block);
    block = calloc(2, 4096);
    return block == NULL;
}

static void fill_block(void *ctx) {
    (void)ctx;
    mangrove_app_will_write(&block[0], sizeof block[0]);
    block[0] = 5;
    block[512] = 6;
}

static void announced(const char *state) {
    OK(mangrove_app_options_set_tracker(options, MANGROVE_APP_TRACKER_EXPLICIT));
    open_state(state, make_block);
    run(fill_block);
    CHECK(block[0] == 5 && block[512] == 6);
    mangrove_app_will_write(&block[512], sizeof block[512]); /* outside commands it does nothing */
    close_state();
    block = NULL;
    open_state(state, make_block);
    CHECK(!mangrove_app_is_new(app) && block != NULL);
    CHECK(block[0] == 5 && block[512] == 0);
    close_state();
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    options = mangrove_app_options_new();
    if (strcmp(argv[2], "capacity") == 0) capacity(argv[1]);
    else if (strcmp(argv[2], "sync") == 0) durability(argv[1]);
    else if (strcmp(argv[2], "latency") == 0) latency(argv[1]);
    else if (strcmp(argv[2], "variables") == 0) variables(argv[1]);
    else if (strcmp(argv[2], "explicit") == 0) announced(argv[1]);
    else return 9;
    mangrove_app_options_free(options);
    return 0;
}
