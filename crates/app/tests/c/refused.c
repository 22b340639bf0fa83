/* refused STATE: an initialisation is the first to use a stream, leaves memory in a variable, and then fails. The
 * process continues to use both, and says "fine". */
#include <mangrove_app.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *name;

static void drop(void) {
    free(name);
}

static int init_state(void *user) {
    (void)user;
    name = strdup("a name");
    printf("refused, ");
    return name != NULL;
}

static void process(void *ctx) {
    (void)ctx;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process, .init_state = init_state};
    mangrove_app *app;
    if (argc != 2 || atexit(drop) != 0) return 9;
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_ERR_REFUSED) return 2;
    printf("%s, %s: fine\n", name, mangrove_app_last_error());
    name = realloc(name, 100);
    return name != NULL && strcmp(name, "a name") == 0 ? 0 : 3;
}
