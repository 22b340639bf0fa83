/*
 * The glue between Lua and Mangrove.
 *
 * What is persistent: the lua_State and everything that it allocates: globals, functions, closures, suspended
 * coroutines, the seed of its string hashes, the state of math.random. `L` is a variable that init_state wrote.
 *
 * 1. Every chunk is a write. Lua's API pushes what it looks up on the stack of the lua_State, compiles into its heap
 *    and moves its collector on, so even `print(x)` changes the state.
 * 2. Between two commands nothing in the state points to the C stack: lua_pcall puts the jmp_buf there, and takes its
 *    address out of the lua_State when it returns. A coroutine of Lua has no C stack while it is suspended.
 * 3. No file, no descriptor and no handle of a library may stay in the state: after a restart its number belongs to
 *    another file, and Lua's collector would close that one. So there is no io.open, and no C module.
 * 4. What a chunk prints goes to the client when the chunk is durable. Its buffer is the process's memory, which a
 *    command must not grow by itself: output_append runs natively.
 */
#include "durable_lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static lua_State *L;

/* One text on its way through a command. */
typedef struct {
    lua_client *client;
    const char *text, *name;
    size_t len;
    bool compiled;
    lua_outcome outcome;
} request;

/* Thread-local variables are not part of the state: no pointer to the request stays behind in it. */
static _Thread_local request *current;

/* ---- what Lua sees of the outside ---- */

static int print(lua_State *l)
{
    int count = lua_gettop(l);
    for (int i = 1; i <= count; i++) {
        size_t len;
        const char *text = luaL_tolstring(l, i, &len);
        if (i > 1)
            output_append(&current->client->printed, "\t", 1);
        output_append(&current->client->printed, text, len);
        lua_pop(l, 1);
    }
    output_append(&current->client->printed, "\n", 1);
    return 0;
}

static int write_text(lua_State *l)
{
    int count = lua_gettop(l);
    for (int i = 1; i <= count; i++) {
        size_t len;
        const char *text = luaL_checklstring(l, i, &len);
        output_append(&current->client->printed, text, len);
    }
    return 0;
}

/* Point 3: what ends the process, starts another, or changes what no restart would find. */
static const char *const left_out[][2] = {
    {"os", "exit"}, {"os", "execute"}, {"os", "remove"}, {"os", "rename"}, {"os", "setlocale"}, {"os", "tmpname"},
    {"debug", "debug"}, {"package", "loadlib"}, {"package", "cpath"},
};

static int open_libraries(lua_State *l)
{
    static const luaL_Reg libraries[] = {
        {LUA_GNAME, luaopen_base}, {LUA_LOADLIBNAME, luaopen_package}, {LUA_COLIBNAME, luaopen_coroutine},
        {LUA_TABLIBNAME, luaopen_table}, {LUA_STRLIBNAME, luaopen_string}, {LUA_MATHLIBNAME, luaopen_math},
        {LUA_UTF8LIBNAME, luaopen_utf8}, {LUA_OSLIBNAME, luaopen_os}, {LUA_DBLIBNAME, luaopen_debug},
    };
    static const luaL_Reg io[] = {{"write", write_text}, {NULL, NULL}};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        luaL_requiref(l, libraries[i].name, libraries[i].func, 1);
        lua_pop(l, 1);
    }
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        lua_getglobal(l, left_out[i][0]);
        lua_pushnil(l);
        lua_setfield(l, -2, left_out[i][1]);
        lua_pop(l, 1);
    }
    /* require finds modules of Lua only: the third and the fourth searcher load libraries. */
    lua_getglobal(l, "package");
    lua_getfield(l, -1, "searchers");
    for (int i = 3; i <= 4; i++) {
        lua_pushnil(l);
        lua_rawseti(l, -2, i);
    }
    luaL_newlib(l, io);
    lua_setglobal(l, "io");
    lua_register(l, "print", print);
    return 0;
}

/* ---- running ---- */

static int describe(lua_State *l)
{
    const char *text = lua_tostring(l, 1);
    if (!text)
        text = luaL_tolstring(l, 1, NULL);
    if (current->compiled)
        luaL_traceback(l, l, text, 1);
    return 1;
}

/* Whether the compiler wanted more text. */
static bool wants_more(lua_State *l)
{
    static const char mark[] = "<eof>";
    size_t len;
    const char *text = lua_tolstring(l, -1, &len);
    return text && len >= sizeof mark - 1 && strcmp(text + len - (sizeof mark - 1), mark) == 0;
}

/* Compiles and calls the text of the request. */
static int execute(lua_State *l)
{
    request *r = current;
    /* An expression, as in the stock interpreter: its values are printed. */
    luaL_Buffer expression;
    luaL_buffinit(l, &expression);
    luaL_addstring(&expression, "return ");
    luaL_addlstring(&expression, r->text, r->len);
    luaL_pushresult(&expression);
    size_t len;
    const char *text = lua_tolstring(l, 1, &len);
    int status = luaL_loadbufferx(l, text, len, r->name, "t");
    if (status != LUA_OK) {
        lua_settop(l, 0);
        status = luaL_loadbufferx(l, r->text, r->len, r->name, "t");
    } else {
        lua_remove(l, 1);
    }
    if (status == LUA_ERRSYNTAX && wants_more(l))
        r->outcome = LUA_INCOMPLETE;
    if (status != LUA_OK)
        return lua_error(l);
    r->compiled = true;
    lua_call(l, 0, LUA_MULTRET);
    if (lua_gettop(l) > 0) {
        lua_pushcfunction(l, print);
        lua_insert(l, 1);
        lua_call(l, lua_gettop(l) - 1, 0);
    }
    return 0;
}

/* The command. An error of the chunk ends in lua_pcall: no longjmp leaves. */
static void run_tracked(void *context)
{
    request *r = current = context;
    r->outcome = LUA_RAN;
    lua_settop(L, 0);
    lua_pushcfunction(L, describe);
    lua_pushcfunction(L, execute);
    if (lua_pcall(L, 0, 0, 1) != LUA_OK) {
        if (r->outcome == LUA_RAN)
            r->outcome = LUA_FAILED;
        const char *text = lua_tostring(L, -1);
        snprintf(r->client->error, sizeof r->client->error, "%s", text ? text : "an error that is not text");
    }
    lua_settop(L, 0);
    current = NULL;
}

lua_outcome lua_run(lua_client *client, const char *text, size_t len, const char *name)
{
    request r = {.client = client, .text = text, .name = name, .len = len, .outcome = LUA_LOST};
    client->printed.len = 0;
    client->printed.cut = false;
    client->error[0] = '\0';
    if (mangrove_app_cmd(client->client, &r) != MANGROVE_APP_OK) {
        /* The chunk may have run and printed, but it is not durable. */
        client->printed.len = 0;
        client->printed.cut = false;
        snprintf(client->error, sizeof client->error, "%s", mangrove_app_last_error());
        return LUA_LOST;
    }
    return r.outcome;
}

/* ---- opening ---- */

static char why[1024];

/* Runs tracked, once in the life of the state. */
static int make(void *user)
{
    (void)user;
    L = luaL_newstate();
    if (!L)
        return 1;
    lua_pushcfunction(L, open_libraries);
    return lua_pcall(L, 0, 0, 0);
}

mangrove_app *lua_open(const char *path, mangrove_app_options *options)
{
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = run_tracked, .init_state = make};
    mangrove_app *app = NULL;
    /* os.date makes libc read the time zone, into memory that would be the state's and lost at each restart. */
    tzset();
    why[0] = '\0';
    if (mangrove_app_native(options, (const void *)output_append) != MANGROVE_APP_OK
        || mangrove_app_open(path, options, &callbacks, &app) != MANGROVE_APP_OK)
        snprintf(why, sizeof why, "%s", mangrove_app_last_error());
    return app;
}

mangrove_app_status lua_end(mangrove_app *app)
{
    mangrove_app_status status = mangrove_app_close(app);
    if (status != MANGROVE_APP_OK)
        snprintf(why, sizeof why, "%s", mangrove_app_last_error());
    return status;
}

const char *lua_why(void)
{
    return why;
}

/* ---- clients ---- */

lua_client *lua_connect(mangrove_app *app)
{
    lua_client *client = calloc(1, sizeof *client);
    if (client && mangrove_app_client_new(app, &client->client) != MANGROVE_APP_OK) {
        free(client);
        return NULL;
    }
    return client;
}

void lua_disconnect(lua_client *client)
{
    if (client) {
        mangrove_app_client_free(client->client);
        free(client->printed.text);
        free(client);
    }
}
