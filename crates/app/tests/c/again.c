/* A program that opens states one after the other: again stream|time|environment|locale|exit|none STATE... A command is
 * the first to use what libc keeps in memory of its own, so that it lies in a state. Says "fine" after the last. */
#include <locale.h>
#include <mangrove_app.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *how;
static int count;

static void nothing(void) {
}

static void process(void *ctx) {
    char name[16];
    time_t when = 1700000000;
    (void)ctx;
    count++;
    if (strcmp(how, "stream") == 0) printf("%d\n", count);
    if (strcmp(how, "time") == 0 && localtime(&when) == NULL) abort();
    if (strcmp(how, "locale") == 0) setlocale(LC_ALL, "C.UTF-8");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "V%d", i);
        if (strcmp(how, "environment") == 0) setenv(name, "value", 1);
        if (strcmp(how, "exit") == 0) atexit(nothing);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 9;
    how = argv[1];
    for (int i = 2; i < argc; i++) {
        mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
        mangrove_app *app;
        mangrove_app_client *client;
        if (mangrove_app_open(argv[i], NULL, &callbacks, &app) != MANGROVE_APP_OK) {
            fprintf(stderr, "%s\n", mangrove_app_last_error());
            return 2;
        }
        if (mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) return 3;
        for (int n = 0; n < 3; n++) {
            if (mangrove_app_cmd(client, NULL) != MANGROVE_APP_OK) return 4;
        }
        mangrove_app_client_free(client);
        if (mangrove_app_close(app) != MANGROVE_APP_OK) return 5;
        time_t when = 1700000000;
        setenv("X", "y", 1);
        if (localtime(&when) == NULL || setlocale(LC_ALL, NULL) == NULL) return 6;
        printf("closed %s\n", argv[i]);
    }
    printf("fine\n");
    return 0;
}
