/* An interpreter of Lua whose globals survive: a chunk that was acknowledged is never lost, nor run by halves. */
#ifndef DURABLE_LUA_H
#define DURABLE_LUA_H

#include <mangrove_app.h>
#include <stdbool.h>
#include <stddef.h>

/* What a chunk printed. The process's own memory, not the state's. */
typedef struct {
    char *text;
    size_t len, capacity;
    bool cut; /* there was no memory for all of it, or it passed OUTPUT_BYTES_MAX */
} output;

#define OUTPUT_BYTES_MAX ((size_t)256 << 20)

/* Runs natively wherever a chunk prints, see lua_open. */
void output_append(output *to, const char *bytes, size_t len);

/* One at a time runs a chunk through a client; usually each thread has one. */
typedef struct {
    mangrove_app_client *client;
    output printed;
    char error[1024]; /* "" after success */
} lua_client;

typedef enum {
    LUA_RAN,        /* acknowledged: everything that the chunk did is durable */
    LUA_FAILED,     /* an error of the chunk: what it did before is durable, as in the stock interpreter */
    LUA_INCOMPLETE, /* the text is the beginning of a chunk; nothing ran */
    LUA_LOST,       /* the runtime failed: nothing of this chunk is durable, and no other will run */
} lua_outcome;

/* NULL: lua_why() tells. */
mangrove_app *lua_open(const char *path, mangrove_app_options *options);
mangrove_app_status lua_end(mangrove_app *app);
const char *lua_why(void);

lua_client *lua_connect(mangrove_app *app);
void lua_disconnect(lua_client *client);

/* Runs `text`, an expression too: its values are printed. `name` is what messages call it ("=stdin", "@file.lua"). */
lua_outcome lua_run(lua_client *client, const char *text, size_t len, const char *name);

/* The program of the kill tests; arguments without the program's and its own name. */
int stress(int argc, char **argv);

#endif
