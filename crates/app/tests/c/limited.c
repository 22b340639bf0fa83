/* limited DIR LIMIT COUNT: a state that may have LIMIT MiB of memory; a command for each of COUNT blocks of a MiB. */
#include "check.h"
#include <stdio.h>
#include <stdlib.h>

static unsigned long blocks;
static char *volatile newest; /* so that the compiler keeps what is written there */
static bool refused;

static void grow(void *context)
{
    char *block = malloc(1 << 20);
    (void)context;
    if (block == NULL) {
        refused = true;
        return;
    }
    memset(block, 1, 1 << 20);
    newest = block;
    blocks++;
}

static int make(void *user)
{
    (void)user;
    return 0;
}

int main(int argc, char **argv)
{
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = grow, .init_state = make};
    mangrove_app_options *options = mangrove_app_options_new();
    mangrove_app *app;
    mangrove_app_client *client;
    if (argc < 4)
        return 2;
    OK(mangrove_app_options_set_memory_max(options, strtoull(argv[2], NULL, 10) << 20));
    mangrove_app_status status = mangrove_app_open(argv[1], options, &callbacks, &app);
    mangrove_app_options_free(options);
    if (status != MANGROVE_APP_OK) {
        printf("%s: %s\n", mangrove_app_status_name(status), mangrove_app_last_error());
        return 1;
    }
    OK(mangrove_app_client_new(app, &client));
    refused = false;
    for (long n = strtol(argv[3], NULL, 10); n > 0 && !refused; n--)
        OK(mangrove_app_cmd(client, NULL));
    printf("MiB %lu %s\n", blocks, refused ? "malloc returned NULL" : "");
    mangrove_app_client_free(client);
    OK(mangrove_app_close(app));
    return 0;
}
