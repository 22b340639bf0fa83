/*
 * Durable `:memory:` beside SQLite's own durability on the same disk. One subject a run, so that nothing of one is
 * in the other's process. Prints "NAME VALUE": rows per second.
 *
 *     bench durable|interval|wal|wal-normal|wal-shared|memory DIR SECONDS CLIENTS insert|read [ROWS]
 *
 * durable, wal and wal-shared lose nothing that was acknowledged (synchronous=FULL); interval and wal-normal may
 * lose the last transactions in a power cut. wal, wal-normal: a connection for each client. wal-shared: one
 * connection behind a lock. memory: `:memory:` behind a lock, nothing durable; as durable does, a client runs
 * prepared statements and collects rows as text. ROWS are inserted in one transaction (default: 1). The others are
 * set up as durable_sqlite.c sets up its own: no lock that this program does not need, no statistics of memory, and a
 * page cache that holds the data.
 */
#include "durable_sqlite.h"
#include "programs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TABLE_ROWS 100000
#define CLIENTS_MAX 64
#define ROWS_MAX 1000
#define NAME_BYTES 32
#define INTERVAL_MS 10
#define CACHE "PRAGMA cache_size=-524288;" /* KiB */
#define SCHEMA "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value BLOB)"
#define INSERT "INSERT INTO t (name, value) VALUES (?, ?)"
#define READ "SELECT name, value FROM t WHERE id = ?"
#define FILL \
    "INSERT INTO t SELECT value, 'name ' || value, zeroblob(100) FROM " \
    "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 100000) SELECT value FROM n)"

/* Mangrove's first, then those with a connection each. */
enum subject { DURABLE, INTERVAL, WAL, WAL_NORMAL, WAL_SHARED, MEMORY };

static enum subject subject;
static bool reads;
static size_t rows = 1;
static char path[4096];
static mangrove_app *app;
static sqlite3 *shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stopped;
static atomic_ulong total;

static void must(bool well, const char *message)
{
    if (!well) {
        fprintf(stderr, "%s\n", message ? message : "SQLite said no");
        exit(3);
    }
}

static sqlite3 *connect_stock(void)
{
    sqlite3 *connection;
    must(sqlite3_open(subject == MEMORY ? ":memory:" : path, &connection) == SQLITE_OK, "cannot open");
    sqlite3_busy_timeout(connection, 60000);
    const char *pragmas = subject == WAL_NORMAL ? CACHE "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
                                                : CACHE "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL";
    if (subject != MEMORY)
        must(sqlite3_exec(connection, pragmas, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(connection));
    return connection;
}

typedef struct {
    database_client *durable;
    sqlite3 *connection;
    sqlite3_stmt *statement;
    char rows[4096];
} bench_client;

static bool is_ours(void)
{
    return subject <= INTERVAL;
}

static bool has_own_connection(void)
{
    return subject == WAL || subject == WAL_NORMAL;
}

/* Before anything else of SQLite. */
static void set_up_stock(void)
{
    int threads = has_own_connection() ? SQLITE_CONFIG_MULTITHREAD : SQLITE_CONFIG_SINGLETHREAD;
    must(sqlite3_config(threads) == SQLITE_OK && sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK,
         "SQLite cannot be set up");
}

static void execute(sqlite3 *connection, const char *sql)
{
    must(sqlite3_exec(connection, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(connection));
}

static void step_stock(bench_client *c, const database_value *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int at = (int)i + 1;
        if (values[i].kind == DATABASE_INTEGER)
            sqlite3_bind_int64(c->statement, at, values[i].integer);
        else if (values[i].kind == DATABASE_TEXT)
            sqlite3_bind_text64(c->statement, at, values[i].bytes, values[i].len, SQLITE_STATIC, SQLITE_UTF8);
        else
            sqlite3_bind_blob64(c->statement, at, values[i].bytes, values[i].len, SQLITE_STATIC);
    }
    int code;
    size_t len = 0;
    while ((code = sqlite3_step(c->statement)) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(c->statement); i++) {
            const void *bytes = sqlite3_column_blob(c->statement, i);
            size_t bytes_len = (size_t)sqlite3_column_bytes(c->statement, i);
            if (len + bytes_len + 1 > sizeof c->rows)
                len = 0;
            if (bytes_len)
                memcpy(c->rows + len, bytes, bytes_len);
            len += bytes_len;
            c->rows[len++] = '|';
        }
    }
    must(code == SQLITE_DONE, sqlite3_errmsg(c->connection));
    sqlite3_reset(c->statement);
    sqlite3_clear_bindings(c->statement);
}

/* What database_run_many does around a statement, without Mangrove. */
static void run_stock(bench_client *c, const database_value *values, size_t count, size_t times)
{
    bool locked = !has_own_connection();
    if (locked)
        pthread_mutex_lock(&lock);
    if (times > 1)
        execute(c->connection, "BEGIN IMMEDIATE");
    for (size_t i = 0; i < times; i++)
        step_stock(c, values + i * count, count);
    if (times > 1)
        execute(c->connection, "COMMIT");
    if (locked)
        pthread_mutex_unlock(&lock);
}

static void *work(void *context)
{
    static _Thread_local bench_client c;
    uint64_t dice = (uintptr_t)context * 0x9e3779b97f4a7c15u + 1;
    unsigned long done = 0;
    char blob[100];
    char (*names)[NAME_BYTES] = malloc(rows * sizeof *names);
    database_value *values = malloc(rows * 2 * sizeof *values);
    must(names && values, "no memory");
    memset(blob, 'v', sizeof blob);
    if (is_ours()) {
        c.durable = database_connect(app);
        must(c.durable != NULL, "no client");
    } else {
        c.connection = has_own_connection() ? connect_stock() : shared;
        pthread_mutex_lock(&lock);
        must(sqlite3_prepare_v2(c.connection, reads ? READ : INSERT, -1, &c.statement, NULL) == SQLITE_OK,
             sqlite3_errmsg(c.connection));
        pthread_mutex_unlock(&lock);
    }
    while (!stopped) {
        for (size_t i = 0; i < rows && !reads; i++) {
            int len = snprintf(names[i], NAME_BYTES, "name %lu", done + i);
            values[2 * i] = (database_value){.kind = DATABASE_TEXT, .bytes = names[i], .len = (size_t)len};
            values[2 * i + 1] = (database_value){.kind = DATABASE_BLOB, .bytes = blob, .len = sizeof blob};
        }
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        if (reads)
            values[0] = (database_value){.kind = DATABASE_INTEGER, .integer = (int64_t)(dice % TABLE_ROWS) + 1};
        const char *sql = reads ? READ : INSERT;
        size_t count = reads ? 1 : 2;
        if (!is_ours())
            run_stock(&c, values, count, rows);
        else
            must(database_run_many(c.durable, sql, values, count, rows) == 0, c.durable->error);
        done += rows;
    }
    total += done;
    free(values);
    free(names);
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int bench(int argc, char **argv)
{
    static const char *const names[] = {"durable", "interval", "wal", "wal-normal", "wal-shared", "memory"};
    must(argc == 5 || argc == 6,
         "usage: bench durable|interval|wal|wal-normal|wal-shared|memory DIR SECONDS CLIENTS insert|read [ROWS]");
    while (subject < MEMORY && strcmp(argv[0], names[subject]) != 0)
        subject++;
    double seconds = atof(argv[2]);
    unsigned long clients = strtoul(argv[3], NULL, 10);
    must(clients >= 1 && clients <= CLIENTS_MAX, "CLIENTS is 1 to 64");
    reads = strcmp(argv[4], "read") == 0;
    rows = argc == 6 ? strtoul(argv[5], NULL, 10) : 1;
    must(rows >= 1 && rows <= (reads ? 1 : ROWS_MAX), "ROWS is 1 to 1000, and 1 for reads");
    snprintf(path, sizeof path, "%s%s", argv[1], is_ours() ? "" : ".db");
    if (is_ours()) {
        mangrove_app_options *options = mangrove_app_options_new();
        if (subject == INTERVAL)
            must(mangrove_app_options_set_durability_interval(options, INTERVAL_MS) == MANGROVE_APP_OK,
                 mangrove_app_last_error());
        app = database_open(path, options);
        mangrove_app_options_free(options);
        must(app != NULL, database_why());
        database_client *client = database_connect(app);
        must(database_run(client, SCHEMA, NULL, 0) == 0 && database_run(client, FILL, NULL, 0) == 0, client->error);
        database_disconnect(client);
    } else {
        set_up_stock();
        shared = connect_stock();
        must(sqlite3_exec(shared, SCHEMA ";" FILL, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(shared));
    }
    pthread_t threads[CLIENTS_MAX];
    double begin = now();
    for (uintptr_t i = 0; i < clients; i++)
        must(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0, "no thread");
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    stopped = true;
    for (unsigned long i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    printf("%s %.1f\n", argv[0], (double)total / (now() - begin));
    return 0;
}
