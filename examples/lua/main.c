/*
 * lua DIR [CHUNK...]           runs each chunk; without any, those of standard input, a line or more each
 * lua stress write|check ...   see stress.c
 */
#include "durable_lua.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a chunk printed leaves here: it is durable by now. */
static void show(const lua_client *client, lua_outcome outcome)
{
    fwrite(client->printed.text, 1, client->printed.len, stdout);
    fflush(stdout);
    if (client->printed.cut)
        fprintf(stderr, "lua: not all of the output is shown: there is no memory for it\n");
    if (outcome != LUA_RAN)
        fprintf(stderr, "lua: %s\n", client->error);
}

/* Reads lines until they are a chunk. Returns the worst outcome. */
static lua_outcome converse(lua_client *client)
{
    bool asks = isatty(STDIN_FILENO);
    lua_outcome worst = LUA_RAN, outcome = LUA_RAN;
    char *line = NULL, *chunk = NULL;
    size_t capacity = 0, len = 0;
    for (;;) {
        if (asks) {
            fputs(outcome == LUA_INCOMPLETE ? ">> " : "> ", stdout);
            fflush(stdout);
        }
        ssize_t got = getline(&line, &capacity, stdin);
        if (got <= 0)
            break;
        char *longer = realloc(chunk, len + (size_t)got);
        if (!longer) {
            fprintf(stderr, "lua: there is no memory for this line\n");
            outcome = LUA_FAILED;
            break;
        }
        chunk = longer;
        memcpy(chunk + len, line, (size_t)got);
        len += (size_t)got;
        outcome = lua_run(client, chunk, len, "=stdin");
        if (outcome == LUA_INCOMPLETE)
            continue;
        show(client, outcome);
        len = 0;
        worst = outcome > worst ? outcome : worst;
        if (outcome == LUA_LOST)
            break;
    }
    if (outcome == LUA_INCOMPLETE)
        show(client, outcome);
    free(line);
    free(chunk);
    return outcome > worst ? outcome : worst;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: lua DIR [CHUNK...]\n");
        return 2;
    }
    if (strcmp(argv[1], "stress") == 0)
        return stress(argc - 2, argv + 2);
    mangrove_app_options *options = mangrove_app_options_new();
    mangrove_app *app = lua_open(argv[1], options);
    mangrove_app_options_free(options);
    lua_client *client = app ? lua_connect(app) : NULL;
    if (!client) {
        fprintf(stderr, "lua: %s\n", app ? mangrove_app_last_error() : lua_why());
        return 3;
    }
    lua_outcome outcome = argc == 2 ? converse(client) : LUA_RAN;
    for (int i = 2; i < argc && outcome == LUA_RAN; i++) {
        outcome = lua_run(client, argv[i], strlen(argv[i]), "=argument");
        show(client, outcome);
    }
    lua_disconnect(client);
    if (lua_end(app) != MANGROVE_APP_OK) {
        fprintf(stderr, "lua: %s\n", lua_why());
        return 3;
    }
    return outcome == LUA_LOST ? 3 : outcome != LUA_RAN;
}
