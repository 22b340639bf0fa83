/*
 * The connection of the SQLite example has no free lists of its own (lookaside), whose order native reads would change
 * behind the commits. Debian's SQLite never has them, so this looks at what the glue asks for. Usage: sqlite_lists DIR
 */
#include "check.h"
#include "durable_sqlite.h"

#include <dlfcn.h>
#include <sqlite3.h>
#include <stdarg.h>

static int (*theirs)(int, ...);
static int slot_bytes = -1, slots = -1;

/* In place of the library's, which the glue would find second. */
int sqlite3_config(int option, ...)
{
    va_list values;
    int code;
    va_start(values, option);
    if (option == SQLITE_CONFIG_LOOKASIDE) {
        slot_bytes = va_arg(values, int);
        slots = va_arg(values, int);
        code = theirs(option, slot_bytes, slots);
    } else if (option == SQLITE_CONFIG_MEMSTATUS) {
        code = theirs(option, va_arg(values, int));
    } else {
        code = theirs(option);
    }
    va_end(values);
    return code;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    *(void **)&theirs = dlsym(RTLD_NEXT, "sqlite3_config");
    CHECK(theirs != NULL);
    mangrove_app *app = database_open(argv[1], NULL);
    CHECK(app != NULL);
    CHECK(slot_bytes == 0 && slots == 0);
    CHECK(database_close(app) == 0);
    return 0;
}
