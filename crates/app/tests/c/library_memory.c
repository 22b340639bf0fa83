/* What the library takes for itself inside a command is the process's memory, however much it is. The process's heap
 * grows by brk, which a command must not call. Usage: library_memory STATE */
#include "check.h"
#include <unistd.h>

#define COUNT 6000

static void process(void *ctx) {
    mangrove_app_options **made = ctx;
    for (int i = 0; i < COUNT; i++) made[i] = mangrove_app_options_new();
    for (int i = 0; i < COUNT; i += 2) mangrove_app_options_free(made[i]);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app;
    mangrove_app_client *client;
    CHECK(argc == 2);
    /* A heap that was left in the middle of a call has its lock. */
    alarm(300);
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    mangrove_app_options **made = calloc(COUNT, sizeof *made);
    CHECK(made != NULL);
    OK(mangrove_app_cmd(client, made));
    for (int i = 1; i < COUNT; i += 2) {
        CHECK(made[i] != NULL && !mangrove_app_is_persistent(made[i]));
        mangrove_app_options_free(made[i]);
    }
    free(made);
    mangrove_app_client_free(client);
    OK(mangrove_app_close(app));
    return 0;
}
