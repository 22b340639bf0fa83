/*
 * An SQLite database in memory (`:memory:`, the stock library) that survives any crash.
 *
 * One database a process; any number of clients, each used by one thread at a time. Statements that write run
 * tracked, one after another; statements that only read run natively. A statement, or a text of several, is one
 * command: what was acknowledged is durable, what was not is there whole or not at all. Transactions begin and
 * end within one text.
 *
 * A statement that fails is undone, and ends its text: what the text did before is done and durable, as in the stock
 * library, except in a transaction that was open, which is undone.
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

#define ROWS_BYTES_MAX ((size_t)1 << 30)

/* The rows of all statements of a text, as text: columns end with '|' or '\n', NULL is empty. There are none of a
 * statement that failed or was undone. One whose rows make them longer than `bytes_max` fails: that is ROWS_BYTES_MAX,
 * unless the caller sets another. */
typedef struct {
    char *text;
    size_t len, capacity, bytes_max;
} database_rows;

/* A client and its last answer. */
typedef struct {
    mangrove_app_client *client;
    database_rows rows;
    int64_t changes; /* rows that the last text inserted, updated or deleted */
    char error[DATABASE_ERROR_MAX];
} database_client;

/* Opens the database in the directory `path` and makes it when it is not there. NULL: see `database_why`.
 * After a crash it is checked as a whole (PRAGMA quick_check) and refused when it is not sound.
 * `options` (NULL: the defaults) gets the function that runs natively. */
mangrove_app *database_open(const char *path, mangrove_app_options *options);
int database_close(mangrove_app *app);
const char *database_why(void);

database_client *database_connect(mangrove_app *app);
void database_disconnect(database_client *client);

/* Runs SQL with `count` values for its parameters. Returns 0 when it is done and durable; an error code of SQLite's
 * when a statement failed; a negative status of Mangrove's when the text is not durable. `client->error` then has a
 * message. */
int database_run(database_client *client, const char *sql, const database_value *values, size_t count);

/* Runs one statement `times` times in one transaction, which is one command: the first time with the first `count`
 * values, then with the next. All of it is done and durable, or nothing. */
int database_run_many(database_client *client, const char *sql, const database_value *values, size_t count,
                      size_t times);

#endif
