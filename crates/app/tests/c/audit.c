/* A program with mistakes that MANGROVE_AUDIT finds: audit STATE STEP... The steps: put (a correct command), get (a
 * correct read), count (a read that writes), wrong steps for commands: map (keeps an address in a mapping of a file),
 * stream (keeps stdout), open (opens a stream), locale (makes a locale), heap (keeps memory of the process), stack;
 * seeded (the program draws a seed before opening). */
#include <fcntl.h>
#include <locale.h>
#include <mangrove_app.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    uint64_t values[64];
    uint64_t lookups;
    void *kept;
    FILE *opened;
    locale_t locale;
} table;

static table *state;
static void *outside;
uint64_t table_hash_seed = 17;  /* the same in each run: harmless */
static uint64_t drawn_hash_seed;

struct request {
    const char *step;
    uint64_t answer;
};

static __attribute__((noinline)) void count_lookup(void) {
    state->lookups++;
}

static bool is_read_only(void *ctx) {
    const struct request *request = ctx;
    return strcmp(request->step, "get") == 0 || strcmp(request->step, "count") == 0;
}

static void process(void *ctx) {
    struct request *request = ctx;
    const char *step = request->step;
    if (strcmp(step, "count") == 0) count_lookup();
    if (is_read_only(ctx)) {
        request->answer = state->values[3];
        return;
    }
    /* A bitmap whose words look like addresses in what the library and the stack reserve. */
    for (uint64_t i = 0; i < 64; i++) state->values[i] = 0x7ff7ff7ffbf0 + i * 0x100000007 % 0x800000000;
    if (strcmp(step, "map") == 0 || strcmp(step, "heap") == 0) state->kept = outside;
    if (strcmp(step, "stack") == 0) state->kept = request;
    if (strcmp(step, "stream") == 0) state->kept = stdout;
    if (strcmp(step, "open") == 0) state->opened = fopen("/dev/null", "r");
    if (strcmp(step, "locale") == 0) state->locale = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    request->answer = 1;
}

static int init_state(void *user) {
    (void)user;
    state = calloc(1, sizeof *state);
    return state == NULL;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .process = process, .is_read_only = is_read_only, .init_state = init_state};
    mangrove_app *app;
    mangrove_app_client *client;
    const char *slices = getenv("G_SLICE");
    printf("G_SLICE is %s\n", slices == NULL ? "not set" : slices);
    if (argc > 2 && strcmp(argv[2], "seeded") == 0) drawn_hash_seed = 0x1234567 + (uintptr_t)argv;
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    if (mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) return 3;
    for (int i = 2; i < argc; i++) {
        struct request request = {argv[i], 0};
        outside = NULL;
        if (strcmp(argv[i], "heap") == 0) outside = strdup("of this run");
        if (strcmp(argv[i], "map") == 0) {
            int descriptor = open("/proc/self/exe", O_RDONLY);
            outside = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, descriptor, 0);
            if (outside == MAP_FAILED || *(char *)outside != 0x7f) return 4;
        }
        if (mangrove_app_cmd(client, &request) != MANGROVE_APP_OK) {
            fprintf(stderr, "%s\n", mangrove_app_last_error());
            return 5;
        }
    }
    printf("fine %d\n", (int)(table_hash_seed + drawn_hash_seed > 0));
    fflush(stdout);
    _exit(0);
}
