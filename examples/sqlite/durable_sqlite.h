/*
 * An SQLite database in memory (`:memory:`, the stock library) that survives any crash.
 *
 * One database a process; any number of clients, each used by one thread at a time. Statements that write run
 * tracked, one after another; statements that only read run natively. A statement, or a text of several, is one
 * command: what was acknowledged is durable, what was not is there whole or not at all. Transactions begin and
 * end within one text.
 */
#ifndef DURABLE_SQLITE_H
#define DURABLE_SQLITE_H

#include <stddef.h>
#include <stdint.h>

#include <mangrove_app.h>

typedef struct {
    enum { DATABASE_NULL, DATABASE_INTEGER, DATABASE_TEXT, DATABASE_BLOB } kind;
    int64_t integer;
    const void *bytes; /* of a text or blob; must stay during the call */
    size_t len;
} database_value;

#define DATABASE_ERROR_MAX 512

/* The rows of a statement as text: columns end with '|' or '\n', NULL is empty. */
typedef struct {
    char *text;
    size_t len, capacity;
} database_rows;

/* A client and its last answer. */
typedef struct {
    mangrove_app_client *client;
    database_rows rows;
    int64_t changes; /* rows that the last text inserted, updated or deleted */
    char error[DATABASE_ERROR_MAX];
} database_client;

/* Opens the database in the directory `path` and makes it when it is not there. NULL: see `database_why`.
 * After a crash it is checked as a whole (PRAGMA quick_check) and refused when it is not sound. */
mangrove_app *database_open(const char *path, const mangrove_app_options *options);
int database_close(mangrove_app *app);
const char *database_why(void);

database_client *database_connect(mangrove_app *app);
void database_disconnect(database_client *client);

/* Runs SQL with `count` values for its parameters. Returns 0 when it is done and durable, else an error code of
 * SQLite's or a negative status of Mangrove's, with a message in `client->error`. */
int database_run(database_client *client, const char *sql, const database_value *values, size_t count);

/* Runs one statement `times` times in one transaction, which is one command: the first time with the first `count`
 * values, then with the next. All of it is done and durable, or nothing. */
int database_run_many(database_client *client, const char *sql, const database_value *values, size_t count,
                      size_t times);

#endif
