/*
 * sqlite DIR [SQL...]             runs each text up to the first that fails; without any, one a line from standard
 *                                 input. Ends with 1 when a text failed, and at once with 3 when one is not durable
 * sqlite stress write|check ...   see stress.c
 * sqlite bench ...                see bench.c
 */
#include "durable_sqlite.h"
#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the text answered leaves here: it is durable by now. */
static int run(database_client *client, const char *sql)
{
    int code = database_run(client, sql, NULL, 0);
    fwrite(client->rows.text, 1, client->rows.len, stdout);
    fflush(stdout);
    if (code != 0)
        fprintf(stderr, "error: %s\n", client->error);
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: sqlite DIR [SQL...]\n");
        return 2;
    }
    if (strcmp(argv[1], "stress") == 0)
        return stress(argc - 2, argv + 2);
    if (strcmp(argv[1], "bench") == 0)
        return bench(argc - 2, argv + 2);
    mangrove_app *app = database_open(argv[1], NULL);
    database_client *client = app ? database_connect(app) : NULL;
    if (!client) {
        fprintf(stderr, "%s\n", app ? mangrove_app_last_error() : database_why());
        return 3;
    }
    int worst = 0;
    for (int i = 2; i < argc && worst == 0; i++)
        worst = run(client, argv[i]);
    char *line = NULL;
    size_t capacity = 0;
    while (argc == 2 && worst >= 0 && getline(&line, &capacity, stdin) > 0) {
        int code = run(client, line);
        worst = code < 0 || worst == 0 ? code : worst;
    }
    free(line);
    database_disconnect(client);
    if (database_close(app) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", database_why());
        return 3;
    }
    return worst < 0 ? 3 : worst != 0;
}
