/*
 * One statement of the SQLite example, run many times in one transaction: all rows or none, also when it was prepared
 * before and when it is not the first. Usage: sqlite_many DIR
 */
#include "check.h"
#include "durable_sqlite.h"

#include <sqlite3.h>
#include <string.h>

static database_value integer(int64_t value)
{
    return (database_value){.kind = DATABASE_INTEGER, .integer = value};
}

static void check_count(database_client *client, const char *count)
{
    CHECK(database_run(client, "SELECT count(*) FROM t", NULL, 0) == 0);
    CHECK(client->rows.len == strlen(count) + 1 && memcmp(client->rows.text, count, strlen(count)) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    mangrove_app *app = database_open(argv[1], NULL);
    CHECK(app != NULL);
    database_client *client = database_connect(app);
    CHECK(client != NULL);
    CHECK(database_run(client, "CREATE TABLE t (a PRIMARY KEY)", NULL, 0) == 0);

    const char *insert = "INSERT INTO t VALUES (?)";
    database_value fresh[100], again[3] = {integer(200), integer(201), integer(7)};
    for (int i = 0; i < 100; i++)
        fresh[i] = integer(i);
    CHECK(database_run_many(client, insert, fresh, 1, 100) == 0 && client->changes == 100);
    check_count(client, "100");
    for (int round = 0; round < 2; round++) {
        /* The third of them is there already. */
        CHECK(database_run_many(client, insert, again, 1, 3) == SQLITE_CONSTRAINT);
        CHECK(strstr(client->error, "UNIQUE") != NULL);
        check_count(client, "100");
    }
    CHECK(database_run_many(client, insert, again, 1, 2) == 0);
    check_count(client, "102");
    CHECK(database_run_many(client, insert, again, 1, 0) == 0);

    /* Reads are statements, too; their rows follow one another. */
    CHECK(database_run_many(client, "SELECT a FROM t WHERE a = ?", fresh, 1, 3) == 0);
    CHECK(client->rows.len == 6 && memcmp(client->rows.text, "0\n1\n2\n", 6) == 0);
    /* Several statements, or one of the schema, are not one statement. */
    CHECK(database_run_many(client, "DELETE FROM t; DELETE FROM t", NULL, 0, 2) == SQLITE_MISUSE);
    CHECK(database_run_many(client, "CREATE TABLE u (a)", NULL, 0, 2) == SQLITE_MISUSE);
    check_count(client, "102");

    database_disconnect(client);
    CHECK(database_close(app) == 0);
    return 0;
}
