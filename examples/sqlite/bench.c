/*
 * Durable `:memory:` beside SQLite's own durability on the same disk: WAL with synchronous=FULL. One subject a
 * run, so that nothing of one is in the other's process. Prints "NAME VALUE": operations per second.
 *
 *     bench durable|wal|wal-shared|memory DIR SECONDS CLIENTS insert|read
 *
 * wal: a connection for each client. wal-shared: one connection behind a lock. memory: `:memory:` behind a lock,
 * nothing durable; as durable does, a client runs prepared statements and collects rows as text.
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

#define ROWS 100000
#define CLIENTS_MAX 64
#define SCHEMA "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value BLOB)"
#define INSERT "INSERT INTO t (name, value) VALUES (?, ?)"
#define READ "SELECT name, value FROM t WHERE id = ?"
#define FILL \
    "INSERT INTO t SELECT value, 'name ' || value, zeroblob(100) FROM " \
    "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 100000) SELECT value FROM n)"

enum subject { DURABLE, WAL, WAL_SHARED, MEMORY };

static enum subject subject;
static bool reads;
static char path[4096];
static mangrove_app *app;
static sqlite3 *shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stopped;
static atomic_ulong total;

static void must(bool well, const char *sentence)
{
    if (!well) {
        fprintf(stderr, "%s\n", sentence ? sentence : "SQLite said no");
        exit(3);
    }
}

static sqlite3 *connect_stock(void)
{
    sqlite3 *connection;
    must(sqlite3_open(subject == MEMORY ? ":memory:" : path, &connection) == SQLITE_OK, "cannot open");
    sqlite3_busy_timeout(connection, 60000);
    if (subject != MEMORY)
        must(sqlite3_exec(connection, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL", NULL, NULL, NULL) ==
                 SQLITE_OK,
             sqlite3_errmsg(connection));
    return connection;
}

typedef struct {
    database_client *durable;
    sqlite3 *connection;
    sqlite3_stmt *statement;
    char rows[4096];
} bench_client;

/* What database_run does around a statement, without Mangrove. */
static void run_stock(bench_client *c, const database_value *values, size_t count)
{
    bool locked = subject != WAL;
    if (locked)
        pthread_mutex_lock(&lock);
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
    if (locked)
        pthread_mutex_unlock(&lock);
}

static void *work(void *context)
{
    static _Thread_local bench_client c;
    uint64_t dice = (uintptr_t)context * 0x9e3779b97f4a7c15u + 1;
    unsigned long done = 0;
    char name[32], blob[100];
    memset(blob, 'v', sizeof blob);
    if (subject == DURABLE) {
        c.durable = database_connect(app);
        must(c.durable != NULL, "no client");
    } else {
        c.connection = subject == WAL ? connect_stock() : shared;
        pthread_mutex_lock(&lock);
        must(sqlite3_prepare_v2(c.connection, reads ? READ : INSERT, -1, &c.statement, NULL) == SQLITE_OK,
             sqlite3_errmsg(c.connection));
        pthread_mutex_unlock(&lock);
    }
    while (!stopped) {
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        database_value row[] = {
            {.kind = DATABASE_TEXT, .bytes = name, .len = (size_t)snprintf(name, sizeof name, "name %lu", done)},
            {.kind = DATABASE_BLOB, .bytes = blob, .len = sizeof blob},
        };
        database_value key = {.kind = DATABASE_INTEGER, .integer = (int64_t)(dice % ROWS) + 1};
        if (subject != DURABLE)
            run_stock(&c, reads ? &key : row, reads ? 1 : 2);
        else
            must(database_run(c.durable, reads ? READ : INSERT, reads ? &key : row, reads ? 1 : 2) == 0,
                 c.durable->error);
        done++;
    }
    total += done;
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
    static const char *const names[] = {"durable", "wal", "wal-shared", "memory"};
    must(argc == 5, "usage: bench durable|wal|wal-shared|memory DIR SECONDS CLIENTS insert|read");
    while (subject < MEMORY && strcmp(argv[0], names[subject]) != 0)
        subject++;
    double seconds = atof(argv[2]);
    unsigned long clients = strtoul(argv[3], NULL, 10);
    must(clients >= 1 && clients <= CLIENTS_MAX, "CLIENTS is 1 to 64");
    reads = strcmp(argv[4], "read") == 0;
    snprintf(path, sizeof path, "%s%s", argv[1], subject == DURABLE ? "" : ".db");
    if (subject == DURABLE) {
        app = database_open(path, NULL);
        must(app != NULL, database_why());
        database_client *client = database_connect(app);
        must(database_run(client, SCHEMA, NULL, 0) == 0 && database_run(client, FILL, NULL, 0) == 0, client->error);
        database_disconnect(client);
    } else {
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
