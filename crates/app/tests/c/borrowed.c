/* A program and its library that share variables: borrowed STATE. The program names them, so the linker gives them a
 * place in the program (copy relocations). Each run adds ten to each of the counts and is killed; prints what it
 * found. */
#ifdef LIBRARY
long shared_count = 5;
long other_count;
void library_adds(void);
void library_adds(void) {
    shared_count++;
    other_count++;
}
#else
#include <mangrove_app.h>
#include <signal.h>
#include <stdio.h>

extern long shared_count;
void library_adds(void);
static long own_count;

static void process(void *client) {
    (void)client;
    library_adds();
    shared_count++;
    own_count++;
    fputc('.', stderr); /* stderr is libc's variable with a place here too, and stays libc's */
}

int main(int argc, char **argv) {
    if (argc != 2) return 9;
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app;
    mangrove_app_client *client;
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    if (mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) return 3;
    printf("shared %ld own %ld\n", shared_count, own_count);
    fflush(stdout);
    for (int i = 0; i < 10; i++) {
        if (mangrove_app_cmd(client, NULL) != MANGROVE_APP_OK) return 4;
    }
    raise(SIGKILL);
    return 5;
}
#endif
