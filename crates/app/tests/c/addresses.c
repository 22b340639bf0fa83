/*
 * A state that points to functions of the program and of libraries, or to nothing but itself.
 *
 *   addresses STATE none|own|libc     makes the state with such a pointer, or finds it and uses it
 *   addresses STATE open              opens and prints the outcome
 *   addresses STATE taken             something else lies where the state belongs
 *   addresses STATE plugin LIBRARY    loads LIBRARY first, and keeps a pointer into it
 *   addresses STATE late LIBRARY      mangrove_app itself was loaded late (LIBRARY): see late.c
 *
 * With a last argument "known" the program promises that its state depends on no address that moves.
 */
#include "check.h"
#include <dlfcn.h>
#include <sys/mman.h>

typedef int function(const char *);

static int own(const char *text) {
    return text[0] + BUILD;
}

static struct {
    function *call;
    char *text;
} *state;

static function *wanted;

static void make(void *ctx) {
    (void)ctx;
    state = malloc(sizeof *state);
    state->call = wanted;
    state->text = strdup("7 lives");
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = make};
    mangrove_app *app;
    mangrove_app_client *client;
    CHECK(argc >= 3);
    if (strcmp(argv[2], "own") == 0) wanted = own;
    if (strcmp(argv[2], "libc") == 0) *(void **)&wanted = dlsym(RTLD_DEFAULT, "atoi");
    if (strcmp(argv[2], "plugin") == 0) {
        void *library = dlopen(argv[3], RTLD_NOW);
        CHECK(library != NULL);
        *(void **)&wanted = dlsym(library, "plugged");
        CHECK(wanted != NULL);
    }
    if (strcmp(argv[2], "taken") == 0) {
        unsigned long address = strtoul(argv[3], NULL, 16);
        void *page = (void *)address;
        CHECK(mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    }
    mangrove_app_options *options = mangrove_app_options_new();
    if (strcmp(argv[argc - 1], "known") == 0) OK(mangrove_app_options_set_random_addresses(options, true));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_options_set_random_addresses(NULL, true));
    mangrove_app_status status = mangrove_app_open(argv[1], options, &callbacks, &app);
    mangrove_app_options_free(options);
    if (status != MANGROVE_APP_OK) {
        printf("%s: %s\n", mangrove_app_status_name(status), mangrove_app_last_error());
        return 2;
    }
    OK(mangrove_app_client_new(app, &client));
    if (state == NULL) {
        status = mangrove_app_cmd(client, NULL);
        if (status != MANGROVE_APP_OK) {
            printf("%s: %s\n", mangrove_app_status_name(status), mangrove_app_last_error());
            return 3;
        }
    }
    CHECK(strcmp(state->text, "7 lives") == 0);
    if (state->call != NULL) CHECK(state->call(state->text) > 0);
    printf("%s %p fixed %d\n", "fine", (void *)state, mangrove_app_addresses_are_fixed());
    mangrove_app_client_free(client);
    OK(mangrove_app_close(app));
    return 0;
}
