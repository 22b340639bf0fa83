/*
 * The SQLite example when a write command is not acknowledged: it has no answer, and a database that could not be
 * looked at is not called damaged. Usage: sqlite_lost DIR
 */
#include "check.h"
#include "durable_sqlite.h"

#include <dlfcn.h>
#include <string.h>

static enum { WORKS, LOSES, REFUSES } how;

/* In place of the library's, which the glue would find second. It loses what it has done, or does nothing, and reports
 * an error that is easy to have. */
mangrove_app_status mangrove_app_write(mangrove_app_client *client, void (*f)(void *), void *ctx)
{
    mangrove_app_status (*theirs)(mangrove_app_client *, void (*)(void *), void *);
    *(void **)&theirs = dlsym(RTLD_NEXT, "mangrove_app_write");
    mangrove_app_status status = how == REFUSES ? MANGROVE_APP_OK : theirs(client, f, ctx);
    return how == WORKS ? status : theirs(NULL, f, ctx);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    mangrove_app *app = database_open(argv[1], NULL);
    CHECK(app != NULL);
    database_client *client = database_connect(app);
    CHECK(client != NULL);
    CHECK(database_run(client, "CREATE TABLE t (a)", NULL, 0) == 0);
    how = LOSES;
    CHECK(database_run(client, "INSERT INTO t VALUES (1) RETURNING 'kept'", NULL, 0)
          == MANGROVE_APP_ERR_INVALID_ARGUMENT);
    CHECK(client->rows.len == 0 && client->changes == 0 && client->error[0] != '\0');
    database_disconnect(client);
    CHECK(database_close(app) == 0);

    how = REFUSES;
    CHECK(database_open(argv[1], NULL) == NULL);
    CHECK(strstr(database_why(), "sound") == NULL && strcmp(database_why(), mangrove_app_last_error()) == 0);
    how = WORKS;
    app = database_open(argv[1], NULL);
    CHECK(app != NULL);
    CHECK(database_close(app) == 0);
    return 0;
}
