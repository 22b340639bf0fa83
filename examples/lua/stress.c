/*
 * The writer and the checker of the kill tests. They print the lines that xtask/src/kill9.rs reads and
 * crates/crashlab/src/history.rs judges, as examples/sqlite/stress.c does.
 *
 *     stress write DIR --round N --seed N --threads N --keys N [--log BYTES] [--durability sync|interval=MS]
 *     stress check DIR [--close]
 *
 * Each operation is a chunk of Lua that changes an entry of a table, two counters and a suspended coroutine. Some
 * chunks then fail: what they did is acknowledged like the others. The checker compares all four.
 */
#include "durable_lua.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUE_BYTES_MAX 20000
#define THREADS_MAX 64

static const char setup[] =
    "if not put then\n"
    "  kv, count, operations = {}, 0, 0\n"
    "  tick = coroutine.wrap(function() local n = 0 while true do n = n + 1 coroutine.yield(n) end end)\n"
    "  function put(key, value)\n"
    "    count = count + (value and 1 or 0) - (kv[key] and 1 or 0)\n"
    "    kv[key] = value\n"
    "    operations = operations + 1\n"
    "    assert(tick() == operations, 'the coroutine is behind')\n"
    "  end\n"
    "end";

static const char list[] =
    "local found = 0\n"
    "for key, value in pairs(kv or {}) do found = found + 1 print(key .. '|' .. value) end\n"
    "assert(found == (count or 0), 'the count is wrong')\n"
    "if tick then operations = operations + 1 assert(tick() == operations, 'the coroutine is behind') end";

typedef struct {
    const char *dir, *log, *durability, *medium;
    unsigned long round, seed, threads, keys;
    bool close;
} arguments;

static mangrove_app *app;
static arguments args;

static void must(bool well, const char *sentence)
{
    if (!well) {
        fprintf(stderr, "%s\n", sentence);
        exit(3);
    }
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A value that names its operation and its key, and shows any damage: "THREAD NUMBER KEY " repeated up to `len`. */
static size_t make_value(char *to, const char *thread, unsigned long number, const char *key, size_t len)
{
    size_t unit = (size_t)snprintf(to, VALUE_BYTES_MAX, "%s %lu %s ", thread, number, key);
    size_t all = len < unit ? unit : len;
    for (size_t i = unit; i < all; i++)
        to[i] = to[i - unit];
    to[all] = '\0';
    return all;
}

/* The operation that a value of this key names, if the value is whole. */
static bool names_operation(const char *value, const char *key, char thread[64], unsigned long *number)
{
    char expected[VALUE_BYTES_MAX];
    size_t len = strlen(value);
    return len < sizeof expected && sscanf(value, "%63s %lu", thread, number) == 2
        && make_value(expected, thread, *number, key, len) == len && memcmp(expected, value, len) == 0;
}

static void say(const char *line, int len)
{
    /* One write a line: a line is there whole or not at all, and its place is an instant. */
    must(write(STDOUT_FILENO, line, (size_t)len) == len, "standard output is gone");
}

static void parse(int argc, char **argv)
{
    args = (arguments){.dir = argv[1], .threads = 4, .keys = 2000, .seed = 1, .durability = "sync"};
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--close") == 0) {
            args.close = true;
            continue;
        }
        if (strcmp(argv[i], "--round") == 0) args.round = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0) args.seed = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--threads") == 0) args.threads = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--keys") == 0) args.keys = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--log") == 0) args.log = value;
        else if (strcmp(argv[i], "--durability") == 0) args.durability = value;
        else if (strcmp(argv[i], "--medium") == 0) args.medium = value;
        else must(false, "unknown option");
        i++;
    }
}

static void *write_for_ever(void *context)
{
    unsigned long thread = (unsigned long)(uintptr_t)context;
    lua_client *client = lua_connect(app);
    must(client != NULL, "no client");
    char name[64], key[32], line[256], value[VALUE_BYTES_MAX], chunk[VALUE_BYTES_MAX + 128];
    snprintf(name, sizeof name, "r%lut%lu", args.round, thread);
    uint64_t dice = mix(args.seed ^ mix(args.round << 8 | thread));
    for (unsigned long number = 1;; number++) {
        dice = mix(dice + 0x9e3779b97f4a7c15u);
        bool deletes = dice % 4 == 0, fails = (dice >> 2) % 16 == 0;
        snprintf(key, sizeof key, "k%06lu", (unsigned long)((dice >> 8) % args.keys));
        /* Mostly short, sometimes longer than a page. */
        make_value(value, name, number, key,
                   (dice >> 40) % 32 == 0 ? (dice >> 48) % 15000 : (dice >> 48) % 300);
        int len = deletes
            ? snprintf(chunk, sizeof chunk, "put('%s') %s", key, fails ? "error('on purpose')" : "")
            : snprintf(chunk, sizeof chunk, "put('%s', '%s') %s", key, value, fails ? "error('on purpose')" : "");
        say(line, snprintf(line, sizeof line, "> %s %lu %c %s\n", name, number, deletes ? 'd' : 'p', key));
        lua_outcome outcome = lua_run(client, chunk, (size_t)len, "=stress");
        must(fails ? outcome == LUA_FAILED && strstr(client->error, "on purpose") : outcome == LUA_RAN,
             client->error);
        say(line, snprintf(line, sizeof line, "< %s %lu\n", name, number));
        if (!(dice >> 20 & 1))
            continue;
        /* What this client has read must not be lost either. Its own key, or anybody's. */
        if (dice >> 39 & 1)
            snprintf(key, sizeof key, "k%06lu", (unsigned long)(mix(dice) % args.keys));
        say(line, snprintf(line, sizeof line, "? %s %s\n", name, key));
        len = snprintf(chunk, sizeof chunk, "kv['%s'] or '-'", key);
        must(lua_run(client, chunk, (size_t)len, "=stress") == LUA_RAN, client->error);
        char writer[64], *found = client->printed.text;
        unsigned long theirs;
        must(client->printed.len > 0 && !client->printed.cut, "a read printed nothing");
        found[client->printed.len - 1] = '\0';
        if (strcmp(found, "-") == 0) {
            say(line, snprintf(line, sizeof line, ": %s %s -\n", name, key));
        } else {
            must(names_operation(found, key, writer, &theirs), "a value is damaged");
            say(line, snprintf(line, sizeof line, ": %s %s %s %lu\n", name, key, writer, theirs));
        }
    }
    return NULL;
}

static mangrove_app *open_state(bool create)
{
    mangrove_app_options *options = mangrove_app_options_new();
    mangrove_app_status status = mangrove_app_options_set_create(options, create);
    if (status == MANGROVE_APP_OK && args.log) {
        char *unit;
        unsigned long bytes = strtoul(args.log, &unit, 10);
        status = mangrove_app_options_set_log_bytes(options, *unit == 'M' ? bytes << 20 : bytes);
    }
    if (status == MANGROVE_APP_OK && strncmp(args.durability, "interval=", 9) == 0)
        status =
            mangrove_app_options_set_durability_interval(options, (uint32_t)strtoul(args.durability + 9, NULL, 10));
    if (status == MANGROVE_APP_OK && args.medium) {
        int medium = strcmp(args.medium, "dax") == 0 ? MANGROVE_APP_MEDIUM_DAX
            : strcmp(args.medium, "emulated") == 0 ? MANGROVE_APP_MEDIUM_EMULATED : MANGROVE_APP_MEDIUM_FILE;
        status = mangrove_app_options_set_medium(options, medium);
    }
    must(status == MANGROVE_APP_OK, mangrove_app_last_error());
    mangrove_app *opened = lua_open(args.dir, options);
    mangrove_app_options_free(options);
    must(opened != NULL, lua_why());
    return opened;
}

static int stress_write(void)
{
    app = open_state(true);
    lua_client *client = lua_connect(app);
    must(client != NULL, "no client");
    must(lua_run(client, setup, sizeof setup - 1, "=setup") == LUA_RAN, client->error);
    pthread_t threads[THREADS_MAX];
    must(args.threads >= 1 && args.threads <= THREADS_MAX, "--threads takes 1 to 64");
    for (uintptr_t i = 0; i < args.threads; i++)
        must(pthread_create(&threads[i], NULL, write_for_ever, (void *)i) == 0, "no thread");
    for (unsigned long i = 0; i < args.threads; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static int stress_check(void)
{
    app = open_state(false);
    lua_client *client = lua_connect(app);
    must(client != NULL, "no client");
    lua_outcome outcome = lua_run(client, list, sizeof list - 1, "=list");
    unsigned long count = 0;
    char *at = client->printed.text, *end = at + client->printed.len, *stop;
    for (; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
        *stop = '\0';
        char *key = strsep(&at, "|"), name[64];
        unsigned long number;
        count++;
        if (!at || !names_operation(at, key, name, &number))
            printf("! %s is damaged\n", key);
        else
            printf("= %s %s %lu\n", key, name, number);
    }
    printf(". %lu\n", count);
    fflush(stdout);
    if (outcome != LUA_RAN) {
        fprintf(stderr, "not sound: %s\n", client->error);
        return 1;
    }
    lua_disconnect(client);
    if (args.close)
        must(lua_end(app) == MANGROVE_APP_OK, lua_why());
    fflush(stdout);
    _exit(0);
}

int stress(int argc, char **argv)
{
    must(argc >= 2, "usage: stress write|check DIR ...");
    parse(argc, argv);
    return strcmp(argv[0], "write") == 0 ? stress_write() : stress_check();
}
