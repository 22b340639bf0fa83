/*
 * Rows of the SQLite example: a text with more of them than the buffer holds runs once, and a statement that has no
 * room for them leaves nothing behind. Usage: sqlite_rows DIR
 */
#include "check.h"
#include "durable_sqlite.h"

#include <sqlite3.h>
#include <string.h>

#define BODY_BYTES 100000
/* INSERT ... RETURNING with two bodies. */
#define COPY "INSERT INTO t SELECT body FROM big RETURNING a"

static database_client *client;

static int run(const char *sql)
{
    return database_run(client, sql, NULL, 0);
}

static bool answered(const char *rows)
{
    return client->rows.len == strlen(rows) && memcmp(client->rows.text, rows, client->rows.len) == 0;
}

static void check_no_room(int code)
{
    CHECK(code == SQLITE_TOOBIG && strcmp(client->error, "there is no room for the rows") == 0);
}

/* The table, which no other program writes, has so many rows. */
static void check_count(const char *rows)
{
    CHECK(run("SELECT count(*) FROM t") == 0 && answered(rows));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    mangrove_app *app = database_open(argv[1], NULL);
    CHECK(app != NULL);
    client = database_connect(app);
    CHECK(client != NULL);
    CHECK(run("CREATE TABLE t (a); CREATE TABLE big (body)") == 0);
    CHECK(run("INSERT INTO big SELECT printf('%.100000c', 'x') FROM (VALUES (1), (2))") == 0);

    CHECK(run("INSERT INTO t VALUES (1); SELECT body FROM big") == 0 && client->changes == 1);
    CHECK(client->rows.len == 2 * (BODY_BYTES + 1));
    /* Memory that a tracked command gets by itself would be the state's. */
    CHECK(!mangrove_app_is_persistent(client->rows.text));
    check_count("1\n");
    CHECK(run(COPY) == 0 && client->rows.len == 2 * (BODY_BYTES + 1) && client->changes == 2);
    check_count("3\n");

    client->rows.bytes_max = BODY_BYTES + BODY_BYTES / 2;
    for (int round = 0; round < 2; round++) { /* the second finds prepared statements */
        check_no_room(run(COPY));
        CHECK(answered("") && client->changes == 0);
        check_no_room(database_run_many(client, "INSERT INTO t SELECT body FROM big LIMIT 1 RETURNING a", NULL, 0, 2));
        CHECK(answered(""));
        check_no_room(run("SELECT body FROM big"));
        CHECK(answered(""));
        check_count("3\n");
        check_no_room(run("BEGIN; INSERT INTO t VALUES (1) RETURNING 'undone'; " COPY "; COMMIT"));
        CHECK(answered(""));
        check_count("3\n");
    }
    /* What the text did before stays, as in the stock library. */
    check_no_room(run("INSERT INTO t VALUES (1) RETURNING 'done'; " COPY "; DELETE FROM t"));
    CHECK(answered("done\n") && client->changes == 1);
    check_count("4\n");
    CHECK(run("BEGIN; INSERT INTO t VALUES (1) RETURNING 'undone'; SELECT nonsense; COMMIT") == SQLITE_ERROR);
    CHECK(answered(""));
    CHECK(run("SELECT 'done'; BEGIN; INSERT INTO t VALUES (1) RETURNING 'undone'") == SQLITE_MISUSE);
    CHECK(answered("done\n"));
    check_count("4\n");

    client->rows.bytes_max = ROWS_BYTES_MAX;
    CHECK(run(COPY) == 0 && client->rows.len == 2 * (BODY_BYTES + 1));
    check_count("6\n");
    database_disconnect(client);
    CHECK(database_close(app) == 0);
    return 0;
}
