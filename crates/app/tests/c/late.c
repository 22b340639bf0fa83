/* A program that loads mangrove_app when it runs: late LIBRARY STATE. Its malloc is libc's. */
#include <dlfcn.h>
#include <mangrove_app.h>
#include <stdio.h>

static void process(void *ctx) {
    (void)ctx;
}

int main(int argc, char **argv) {
    if (argc != 3) return 9;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) return 8;
    mangrove_app_status (*open)(const char *, const mangrove_app_options *, const mangrove_app_callbacks *,
                                mangrove_app **);
    const char *(*last_error)(void);
    *(void **)&open = dlsym(library, "mangrove_app_open");
    *(void **)&last_error = dlsym(library, "mangrove_app_last_error");
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app;
    printf("%d %s\n", (int)open(argv[2], NULL, &callbacks, &app), last_error());
    return 0;
}
