/*
 * sqlite DIR [SQL...]             runs each text; without any, one a line from standard input
 * sqlite stress write|check ...   see stress.c
 * sqlite bench ...                see bench.c
 */
#include "durable_sqlite.h"
#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    int code = 0;
    for (int i = 2; i < argc && code == 0; i++)
        code = run(client, argv[i]);
    char *line = NULL;
    size_t capacity = 0;
    while (argc == 2 && getline(&line, &capacity, stdin) > 0)
        code = run(client, line);
    free(line);
    database_disconnect(client);
    if (database_close(app) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", database_why());
        return 3;
    }
    return code != 0;
}
