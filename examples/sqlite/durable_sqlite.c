/*
 * The glue between SQLite and Mangrove.
 *
 * What is persistent: the connection, the pages, the schema, prepared statements: everything that SQLite allocates
 * while a tracked command runs, and SQLite's own variables. What a native read changes of it, and why that is well:
 *
 * 1. Cursors, sorters, registers: allocated natively, gone at sqlite3_reset. Reference counts and lists return to
 *    what they were. So a read must end before another command begins: it does, within one call. The free lists of a
 *    connection (lookaside) would come back in another order, so the connection has none.
 * 2. Preparing a statement may fill caches of the schema (columns of views, affinities, virtual tables), which stay.
 *    So statements are prepared in tracked commands only and kept; reads step what is prepared. Statements over
 *    virtual tables, which cache at every step, run tracked.
 * 3. A page that a rollback has touched is decoded anew by the next reader, natively; a statement counts its
 *    runs in its own code. A restart must not find such things half recorded. So after a restart all pages are decoded
 *    anew, by the check that is due anyway, and all statements are prepared anew.
 * 4. The connection's error text stays. So its buffer is allocated beforehand, as long as it gets.
 * 5. Rows go to the client's buffer, which is the process's memory and grows as rows come. So append_bytes runs
 *    natively in tracked commands, too: no text has to run again because its rows were longer than expected.
 *
 * SQLite runs without locks of its own (SQLITE_CONFIG_SINGLETHREAD): writes are alone, reads take `reading`.
 */
#include "durable_sqlite.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATEMENTS_MAX 64

typedef struct {
    uint64_t hash;
    char *sql;
    sqlite3_stmt *statement;
    bool native; /* reads, and may run natively */
} kept_statement;

/* All of it made by init_state, and so part of the state, as is `base` itself. */
typedef struct {
    sqlite3 *connection;
    kept_statement kept[STATEMENTS_MAX];
    size_t kept_count;
    bool changes_schema; /* found out by the authorizer while a statement is prepared */
} database;

static database *base;

/* Not part of the state: no command writes it. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static char why[DATABASE_ERROR_MAX];

/* One text on its way through a command. */
typedef struct {
    database_client *client;
    const char *sql;
    const database_value *values;
    size_t count;
    size_t times; /* one statement runs as often, each time with `count` values */
    uint64_t hash;
    int code;
    size_t settled; /* bytes of rows that belong to statements that are done, in transactions that are */
    enum { DONE, TRACK, READ } next; /* what is still to be done: a tracked run, a native one */
} request;

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* ---- statements ---- */

static int authorize(void *user, int action, const char *a, const char *b, const char *c, const char *d)
{
    (void)user, (void)b, (void)c, (void)d;
    switch (action) {
    case SQLITE_ATTACH: /* other files are not durable memory; VACUUM attaches "". NULL: a name known later only */
        return a && (!*a || strcmp(a, ":memory:") == 0) ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_PRAGMA: /* temporary files would be gone after a restart; `a` is as the text spells it */
        if (a && (sqlite3_strnicmp(a, "temp_store", 10) == 0 || sqlite3_stricmp(a, "journal_mode") == 0) && b)
            return SQLITE_DENY;
        base->changes_schema = true;
        return SQLITE_OK;
    case SQLITE_DELETE: case SQLITE_INSERT: case SQLITE_READ: case SQLITE_SELECT: case SQLITE_TRANSACTION:
    case SQLITE_UPDATE: case SQLITE_FUNCTION: case SQLITE_SAVEPOINT: case SQLITE_RECURSIVE:
        return SQLITE_OK;
    default: /* everything else creates, alters or drops */
        base->changes_schema = true;
        return SQLITE_OK;
    }
}

static void forget_statements(void)
{
    for (size_t i = 0; i < base->kept_count; i++) {
        sqlite3_finalize(base->kept[i].statement);
        free(base->kept[i].sql);
    }
    base->kept_count = 0;
}

static kept_statement *find(const request *r)
{
    for (size_t i = 0; i < base->kept_count; i++)
        if (base->kept[i].hash == r->hash && strcmp(base->kept[i].sql, r->sql) == 0)
            return &base->kept[i];
    return NULL;
}

/* What begins otherwise may still only read, and then runs tracked. BEGIN, for one, "only reads" to SQLite. */
static bool looks_like_reading(const char *sql)
{
    while (*sql == ' ' || *sql == '\n' || *sql == '\t')
        sql++;
    return sqlite3_strnicmp(sql, "SELECT", 6) == 0 || sqlite3_strnicmp(sql, "WITH", 4) == 0
        || sqlite3_strnicmp(sql, "VALUES", 6) == 0;
}

/* Whether a reading statement may run natively: it opens no virtual table. */
static bool may_run_natively(const char *sql)
{
    sqlite3_stmt *explained;
    char *text = sqlite3_mprintf("EXPLAIN %s", sql);
    bool may = text && sqlite3_prepare_v2(base->connection, text, -1, &explained, NULL) == SQLITE_OK;
    if (may) {
        while (sqlite3_step(explained) == SQLITE_ROW) {
            const char *opcode = (const char *)sqlite3_column_text(explained, 1);
            if (!opcode || opcode[0] == 'V')
                may = may && opcode && strncmp(opcode, "VOpen", 5) && strncmp(opcode, "VUpdate", 7)
                    && strncmp(opcode, "VBegin", 6) && strncmp(opcode, "VFilter", 7);
        }
        sqlite3_finalize(explained);
    }
    sqlite3_free(text);
    return may;
}

/* NULL: no memory, and the statement is gone. */
static kept_statement *keep(const request *r, sqlite3_stmt *statement)
{
    if (base->kept_count == STATEMENTS_MAX)
        forget_statements();
    bool native = looks_like_reading(r->sql) && sqlite3_stmt_readonly(statement) && may_run_natively(r->sql);
    char *sql = strdup(r->sql);
    if (!sql) {
        sqlite3_finalize(statement);
        return NULL;
    }
    base->kept[base->kept_count] = (kept_statement){r->hash, sql, statement, native};
    return &base->kept[base->kept_count++];
}

/* ---- running ---- */

static void fail(request *r, int code)
{
    r->code = code;
    snprintf(r->client->error, sizeof r->client->error, "%s", sqlite3_errmsg(base->connection));
}

/* Point 5. */
static bool append_bytes(database_rows *rows, const void *bytes, size_t len)
{
    if (len > rows->bytes_max - rows->len)
        return false;
    if (rows->len + len > rows->capacity) {
        size_t capacity = (rows->len + len) * 2;
        char *larger = realloc(rows->text, capacity);
        if (!larger)
            return false;
        rows->text = larger;
        rows->capacity = capacity;
    }
    if (len)
        memcpy(rows->text + rows->len, bytes, len);
    rows->len += len;
    return true;
}

/* Volatile: the compiler must neither put append_bytes in line nor use what it knows of its registers. */
static bool (*const volatile append)(database_rows *rows, const void *bytes, size_t len) = append_bytes;

static bool append_row(request *r, sqlite3_stmt *statement)
{
    int columns = sqlite3_column_count(statement);
    for (int i = 0; i < columns; i++) {
        const void *bytes = sqlite3_column_blob(statement, i);
        if (sqlite3_column_type(statement, i) != SQLITE_BLOB)
            bytes = sqlite3_column_text(statement, i);
        if (!append(&r->client->rows, bytes, (size_t)sqlite3_column_bytes(statement, i)) ||
            !append(&r->client->rows, i + 1 < columns ? "|" : "\n", 1))
            return false;
    }
    return true;
}

static int bind(const request *r, sqlite3_stmt *statement, const database_value *values)
{
    int code = SQLITE_OK;
    for (size_t i = 0; i < r->count && code == SQLITE_OK; i++) {
        const database_value *v = &values[i];
        int at = (int)i + 1;
        switch (v->kind) {
        case DATABASE_NULL: code = sqlite3_bind_null(statement, at); break;
        case DATABASE_INTEGER: code = sqlite3_bind_int64(statement, at, v->integer); break;
        /* STATIC: cleared before this command ends. */
        case DATABASE_TEXT:
            code = sqlite3_bind_text64(statement, at, v->bytes, v->len, SQLITE_STATIC, SQLITE_UTF8);
            break;
        case DATABASE_BLOB: code = sqlite3_bind_blob64(statement, at, v->bytes, v->len, SQLITE_STATIC); break;
        }
    }
    return code;
}

/* The rows so far count, unless something failed or a transaction is open, which may still be undone. */
static void settle(request *r)
{
    if (r->code == SQLITE_OK && sqlite3_get_autocommit(base->connection))
        r->settled = r->client->rows.len;
}

/* Runs a prepared statement to its end and leaves nothing of it behind. */
static void step_all(request *r, sqlite3_stmt *statement, const database_value *values)
{
    bool has_room = true;
    int code = bind(r, statement, values);
    if (code == SQLITE_OK)
        while ((code = sqlite3_step(statement)) == SQLITE_ROW && has_room) {
            has_room = append_row(r, statement);
            if (has_room)
                continue;
            if (sqlite3_stmt_readonly(statement))
                break;
            /* INSERT ... RETURNING has made all its changes before the first row, and a reset would commit them.
             * A statement that is interrupted is undone, with the transaction that is open. */
            sqlite3_interrupt(base->connection);
        }
    if (!has_room) {
        r->code = SQLITE_TOOBIG;
        snprintf(r->client->error, sizeof r->client->error, "there is no room for the rows");
    } else if (code == SQLITE_DONE) {
        r->code = SQLITE_OK;
    } else {
        fail(r, code);
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    settle(r);
}

/* Runs a prepared statement as often as the request wants it, in a transaction if that is more than once. */
static void step_times(request *r, sqlite3_stmt *statement)
{
    int code = r->times > 1 ? sqlite3_exec(base->connection, "BEGIN", NULL, NULL, NULL) : SQLITE_OK;
    if (code == SQLITE_OK)
        for (size_t i = 0; i < r->times && r->code == SQLITE_OK && r->next == DONE; i++)
            step_all(r, statement, r->values + i * r->count);
    if (r->times > 1 && code == SQLITE_OK && r->code == SQLITE_OK && r->next == DONE)
        code = sqlite3_exec(base->connection, "COMMIT", NULL, NULL, NULL);
    if (code != SQLITE_OK)
        fail(r, code);
    settle(r);
    /* What has failed is rolled back when the command ends. */
}

static void run_read(void *context)
{
    request *r = context;
    pthread_mutex_lock(&reading);
    kept_statement *kept = find(r);
    r->next = kept && kept->native ? DONE : TRACK;
    if (r->next == DONE)
        step_all(r, kept->statement, r->values);
    pthread_mutex_unlock(&reading);
}

/* Prepares and runs every statement of the text. The only one of a text is kept; if it only reads, it is left to a
 * native run. */
static void run_text(request *r)
{
    const char *rest = r->sql;
    while (r->code == SQLITE_OK && *rest) {
        sqlite3_stmt *statement;
        const char *begin = rest;
        base->changes_schema = false;
        int code = sqlite3_prepare_v3(base->connection, begin, -1, SQLITE_PREPARE_PERSISTENT, &statement, &rest);
        if (code != SQLITE_OK) {
            fail(r, code);
            return;
        }
        if (!statement)
            continue; /* a comment, blanks */
        bool changes_schema = base->changes_schema;
        if (begin == r->sql && !*rest && !changes_schema) {
            kept_statement *kept = keep(r, statement);
            if (!kept)
                r->code = SQLITE_NOMEM;
            else if (kept->native && r->times == 1)
                r->next = READ;
            else
                step_times(r, statement);
            return;
        }
        if (r->times > 1) {
            r->code = SQLITE_MISUSE;
            snprintf(r->client->error, sizeof r->client->error, "one statement only, and none of the schema");
            sqlite3_finalize(statement);
            return;
        }
        step_all(r, statement, r->values);
        sqlite3_finalize(statement);
        if (changes_schema)
            forget_statements();
    }
}

static void run_tracked(void *context)
{
    request *r = context;
    int64_t before = sqlite3_total_changes64(base->connection);
    r->code = SQLITE_OK;
    r->next = DONE;
    kept_statement *kept = find(r);
    if (kept)
        step_times(r, kept->statement);
    else
        run_text(r);
    if (!sqlite3_get_autocommit(base->connection)) {
        sqlite3_exec(base->connection, "ROLLBACK", NULL, NULL, NULL);
        if (r->code == SQLITE_OK) {
            r->code = SQLITE_MISUSE;
            snprintf(r->client->error, sizeof r->client->error,
                     "a transaction must end in the text in which it begins; it was rolled back");
        }
    }
    r->client->changes = sqlite3_total_changes64(base->connection) - before;
}

/* ---- opening ---- */

static int refuse(int code)
{
    if (base && base->connection)
        snprintf(why, sizeof why, "SQLite: %s", sqlite3_errmsg(base->connection));
    else
        snprintf(why, sizeof why, "SQLite: %s", sqlite3_errstr(code));
    return code ? code : SQLITE_ERROR;
}

/* Runs tracked, once in the life of the state. */
static int make(void *user)
{
    (void)user;
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* point 1 */
    base = calloc(1, sizeof *base);
    if (!base)
        return refuse(SQLITE_NOMEM);
    int code = sqlite3_open_v2(":memory:", &base->connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(base->connection, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_set_authorizer(base->connection, authorize, NULL);
    if (code != SQLITE_OK)
        return refuse(code);
    /* Point 4: the longest error text there is. */
    char *nonsense = malloc(4096);
    if (!nonsense)
        return refuse(SQLITE_NOMEM);
    memset(nonsense, 'x', 4095);
    nonsense[4095] = '\0';
    char *sql = sqlite3_mprintf("SELECT json_extract('{}', %Q)", nonsense);
    sqlite3_exec(base->connection, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    free(nonsense);
    return 0;
}

/* Runs tracked, after a restart (points 2 and 3). `context` is an int: SQLITE_OK when the database is sound,
 * SQLITE_CORRUPT when it is not, another code when the check did not end. */
static void wake(void *context)
{
    int *code = context;
    sqlite3_stmt *check = NULL;
    forget_statements();
    *code = sqlite3_prepare_v2(base->connection, "PRAGMA quick_check(1)", -1, &check, NULL);
    if (*code == SQLITE_OK)
        *code = sqlite3_step(check);
    if (*code == SQLITE_ROW) {
        const char *found = (const char *)sqlite3_column_text(check, 0);
        *code = !found ? SQLITE_NOMEM : strcmp(found, "ok") == 0 ? SQLITE_OK : SQLITE_CORRUPT;
    }
    sqlite3_finalize(check);
}

static mangrove_app_status open_with(const char *path, mangrove_app_options *options, mangrove_app **app)
{
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = run_tracked, .init_state = make};
    mangrove_app_status status = mangrove_app_native(options, (const void *)(uintptr_t)append_bytes);
    return status == MANGROVE_APP_OK ? mangrove_app_open(path, options, &callbacks, app) : status;
}

mangrove_app *database_open(const char *path, mangrove_app_options *options)
{
    mangrove_app *app;
    mangrove_app_client *client;
    mangrove_app_options *defaults = options ? NULL : mangrove_app_options_new();
    why[0] = '\0';
    mangrove_app_status status = open_with(path, options ? options : defaults, &app);
    mangrove_app_options_free(defaults);
    if (status != MANGROVE_APP_OK) {
        if (!why[0])
            snprintf(why, sizeof why, "%s", mangrove_app_last_error());
        return NULL;
    }
    if (mangrove_app_is_new(app))
        return app;
    int code = SQLITE_OK;
    status = mangrove_app_client_new(app, &client);
    if (status == MANGROVE_APP_OK)
        status = mangrove_app_write(client, wake, &code);
    if (status != MANGROVE_APP_OK)
        snprintf(why, sizeof why, "%s", mangrove_app_last_error());
    mangrove_app_client_free(client);
    if (status == MANGROVE_APP_OK && code == SQLITE_OK)
        return app;
    if (status == MANGROVE_APP_OK && code == SQLITE_CORRUPT)
        snprintf(why, sizeof why, "the database is not sound");
    else if (status == MANGROVE_APP_OK)
        snprintf(why, sizeof why, "the database could not be checked: %s", sqlite3_errstr(code));
    mangrove_app_close(app);
    return NULL;
}

int database_close(mangrove_app *app)
{
    int status = mangrove_app_close(app);
    if (status != MANGROVE_APP_OK)
        snprintf(why, sizeof why, "%s", mangrove_app_last_error());
    return status;
}

const char *database_why(void)
{
    return why;
}

/* ---- clients ---- */

#define ROWS_BYTES_MIN 65536

database_client *database_connect(mangrove_app *app)
{
    database_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->rows.capacity = ROWS_BYTES_MIN;
    client->rows.bytes_max = ROWS_BYTES_MAX;
    client->rows.text = malloc(ROWS_BYTES_MIN);
    if (!client->rows.text || mangrove_app_client_new(app, &client->client) != MANGROVE_APP_OK) {
        database_disconnect(client);
        return NULL;
    }
    return client;
}

void database_disconnect(database_client *client)
{
    if (client) {
        mangrove_app_client_free(client->client);
        free(client->rows.text);
        free(client);
    }
}

int database_run(database_client *client, const char *sql, const database_value *values, size_t count)
{
    return database_run_many(client, sql, values, count, 1);
}

int database_run_many(database_client *client, const char *sql, const database_value *values, size_t count,
                      size_t times)
{
    request r = {
        .client = client, .sql = sql, .values = values, .count = count, .times = times, .hash = hash_of(sql)};
    int status = MANGROVE_APP_OK;
    client->changes = 0;
    client->error[0] = '\0';
    r.next = looks_like_reading(sql) && times == 1 ? READ : TRACK;
    while (status == MANGROVE_APP_OK && r.next != DONE) {
        client->rows.len = r.settled = 0;
        status = r.next == READ ? mangrove_app_read(client->client, run_read, &r)
                                : mangrove_app_write(client->client, run_tracked, &r);
    }
    if (status != MANGROVE_APP_OK) {
        /* The command may have run and answered, but it is not durable. */
        client->rows.len = 0;
        client->changes = 0;
        snprintf(client->error, sizeof client->error, "%s", mangrove_app_last_error());
        return status;
    }
    client->rows.len = r.settled;
    return r.code;
}
