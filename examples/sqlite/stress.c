/*
 * The writer and the checker of the kill and power-cut tests. They say what xtask/src/history.rs judges:
 * "> T N p KEY" before a put and "> T N d KEY" before a delete, "< T N" after it was acknowledged;
 * "? T KEY" before a read, and after it ": T KEY W N" (it found the value of W's operation N) or ": T KEY -";
 * "= KEY T N" for a row found whole, "! KEY WHY" for a damaged one, ". COUNT" at the end.
 *
 *     stress write DIR --round N --seed N --threads N --keys N [--log BYTES] [--durability sync|interval=MS]
 *     stress check DIR [--close]
 */
#include "durable_sqlite.h"
#include "programs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *dir, *log, *durability, *medium;
    unsigned long round, seed, threads, keys;
    bool close;
} arguments;

static mangrove_app *app;
static arguments args;

static void must(bool well, const char *message)
{
    if (!well) {
        fprintf(stderr, "%s\n", message);
        exit(3);
    }
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A value that names its operation and its key, and shows any damage: "THREAD NUMBER KEY" repeated up to `len`. */
static size_t make_value(char *to, size_t size, const char *thread, unsigned long number, const char *key, size_t len)
{
    size_t unit = (size_t)snprintf(to, size, "%s %lu %s ", thread, number, key);
    size_t all = len < unit ? unit : len;
    for (size_t i = unit; i < all; i++)
        to[i] = to[i - unit];
    return all;
}

/* The operation that a value of this key names, if the value is whole. */
static bool names_operation(const char *value, size_t len, const char *key, char thread[64], unsigned long *number)
{
    char expected[20000];
    char head[128] = {0};
    memcpy(head, value, len < sizeof head - 1 ? len : sizeof head - 1);
    return sscanf(head, "%63s %lu", thread, number) == 2
        && make_value(expected, sizeof expected, thread, *number, key, len) == len && memcmp(expected, value, len) == 0;
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
    database_client *client = database_connect(app);
    must(client != NULL, "no client");
    char name[64], key[32], line[256], value[20000];
    snprintf(name, sizeof name, "r%lut%lu", args.round, thread);
    uint64_t dice = mix(args.seed ^ mix(args.round << 8 | thread));
    for (unsigned long number = 1;; number++) {
        dice = mix(dice + 0x9e3779b97f4a7c15u);
        bool deletes = dice % 4 == 0;
        snprintf(key, sizeof key, "k%06lu", (unsigned long)((dice >> 8) % args.keys));
        /* Mostly short, sometimes longer than a page. */
        size_t len = (dice >> 40) % 32 == 0 ? (dice >> 48) % 15000 : (dice >> 48) % 300;
        len = make_value(value, sizeof value, name, number, key, len);
        database_value values[] = {
            {.kind = DATABASE_TEXT, .bytes = key, .len = strlen(key)},
            {.kind = DATABASE_TEXT, .bytes = value, .len = len},
        };
        say(line, snprintf(line, sizeof line, "> %s %lu %c %s\n", name, number, deletes ? 'd' : 'p', key));
        int code = deletes ? database_run(client, "DELETE FROM kv WHERE key = ?", values, 1)
            : database_run(client, "INSERT INTO kv VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                           values, 2);
        must(code == 0, client->error);
        say(line, snprintf(line, sizeof line, "< %s %lu\n", name, number));
        /* What this client has read must not be lost either: a read of its own write, and a scan at times. */
        if (dice >> 20 & 1) {
            /* Its own key, or anybody's. */
            if (dice >> 39 & 1)
                values[0].len = (size_t)snprintf(key, sizeof key, "k%06lu", (unsigned long)(mix(dice) % args.keys));
            say(line, snprintf(line, sizeof line, "? %s %s\n", name, key));
            code = database_run(client, "SELECT value FROM kv WHERE key = ?", values, 1);
            must(code == 0, client->error);
            char writer[64];
            unsigned long theirs;
            if (client->rows.len == 0) {
                say(line, snprintf(line, sizeof line, ": %s %s -\n", name, key));
            } else {
                must(names_operation(client->rows.text, client->rows.len - 1, key, writer, &theirs),
                     "a row is damaged");
                say(line, snprintf(line, sizeof line, ": %s %s %s %lu\n", name, key, writer, theirs));
            }
        }
        if ((dice >> 21) % 512 == 0)
            must(database_run(client, "SELECT count(*), sum(length(value)) FROM kv ORDER BY 2", NULL, 0) == 0,
                 client->error);
    }
    return NULL;
}

static mangrove_app_options *options(bool create)
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
    if (status == MANGROVE_APP_OK && args.medium)
        status = mangrove_app_options_set_medium(
            options, strcmp(args.medium, "dax") == 0 ? MANGROVE_APP_MEDIUM_DAX : MANGROVE_APP_MEDIUM_FILE);
    must(status == MANGROVE_APP_OK, mangrove_app_last_error());
    return options;
}

static int stress_write(void)
{
    app = database_open(args.dir, options(true));
    must(app != NULL, database_why());
    database_client *client = database_connect(app);
    must(client != NULL, "no client");
    /* The index makes each change touch two trees. */
    const char *schema = "CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
                         "CREATE INDEX IF NOT EXISTS by_length ON kv (length(value), key)";
    must(database_run(client, schema, NULL, 0) == 0, client->error);
    pthread_t threads[64];
    must(args.threads >= 1 && args.threads <= 64, "--threads takes 1 to 64");
    for (uintptr_t i = 0; i < args.threads; i++)
        must(pthread_create(&threads[i], NULL, write_for_ever, (void *)i) == 0, "no thread");
    for (unsigned long i = 0; i < args.threads; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static int stress_check(void)
{
    app = database_open(args.dir, options(false));
    must(app != NULL, database_why());
    database_client *client = database_connect(app);
    must(client != NULL, "no client");
    int code = database_run(client, "SELECT key, value FROM kv", NULL, 0);
    /* Killed before the table was made: then there is nothing. */
    must(code == 0 || strstr(client->error, "no such table"), client->error);
    unsigned long count = 0;
    char *at = client->rows.text, *end = at + client->rows.len, *stop;
    for (; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
        *stop = '\0';
        char *key = strsep(&at, "|"), name[64];
        unsigned long number;
        count++;
        if (!at || !names_operation(at, strlen(at), key, name, &number))
            printf("! %s is damaged\n", key);
        else
            printf("= %s %s %lu\n", key, name, number);
    }
    printf(". %lu\n", count);
    /* The index and the table must agree. */
    code = database_run(client, "PRAGMA integrity_check", NULL, 0);
    bool sound = code == 0 && client->rows.len == 3 && memcmp(client->rows.text, "ok\n", 3) == 0;
    fflush(stdout);
    if (!sound) {
        fprintf(stderr, "not sound: %.*s\n", (int)client->rows.len, client->rows.text);
        return 1;
    }
    database_disconnect(client);
    if (args.close)
        must(database_close(app) == MANGROVE_APP_OK, database_why());
    fflush(stdout);
    _exit(0);
}

int stress(int argc, char **argv)
{
    must(argc >= 2, "usage: stress write|check DIR ...");
    parse(argc, argv);
    return strcmp(argv[0], "write") == 0 ? stress_write() : stress_check();
}
