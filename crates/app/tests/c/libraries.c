/* A program with libraries that it loads itself: libraries STATE LIBRARY... Each command calls plugged() of each, and
 * then tries to load one more. Prints what they counted before, writes ten times, and kills itself. */
#include <dlfcn.h>
#include <mangrove_app.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int (*plugged[8])(const char *);
static int count, loaded, own;
static mangrove_app *app, *other;
static mangrove_app_client *client;
static mangrove_app_status inside[2];

static void look(void *ctx) {
    int *counts = ctx;
    for (int i = 0; i < count; i++) counts[i] = plugged[i](NULL);
}

static void process(void *ctx) {
    for (int i = 0; i < count; i++) plugged[i]("");
    own++;
    if (dlopen("libz.so.1", RTLD_NOW) != NULL) loaded++;
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    inside[0] = mangrove_app_open((const char *)ctx, NULL, &callbacks, &other);
    inside[1] = mangrove_app_client_new(app, &client);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app_client *mine;
    int counts[8];
    if (argc < 2 || argc > 10) return 9;
    for (count = 0; count < argc - 2; count++) {
        void *library = dlopen(argv[count + 2], RTLD_NOW);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 8;
        }
        *(void **)&plugged[count] = dlsym(library, "plugged");
    }
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK ||
        mangrove_app_client_new(app, &mine) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    if (mangrove_app_read(mine, look, counts) != MANGROVE_APP_OK) return 3;
    printf("own %d loaded %d", own, loaded);
    for (int i = 0; i < count; i++) printf(" %d", counts[i]);
    printf(".\n");
    fflush(stdout);
    for (int i = 0; i < 10; i++) {
        if (mangrove_app_cmd(mine, argv[1]) != MANGROVE_APP_OK) {
            fprintf(stderr, "%s\n", mangrove_app_last_error());
            return 4;
        }
        if (inside[0] != MANGROVE_APP_ERR_NESTED || inside[1] != MANGROVE_APP_ERR_NESTED) return 5;
    }
    raise(SIGKILL);
    return 6;
}
