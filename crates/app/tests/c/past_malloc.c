/* past_malloc STATE malloc|new|libc: one more element of a list, made by malloc, by operator new, or by libc's own name
 * of its malloc.
 * With -DALLOCATOR: a library with a malloc of its own, whose operator new does not call malloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ALLOCATOR
void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes);
void *_Znwm(size_t bytes);

void *malloc(size_t bytes) {
    return __libc_malloc(bytes);
}

void *_Znwm(size_t bytes) {
    return __libc_malloc(bytes);
}
#else
#include <dlfcn.h>
#include <mangrove_app.h>

struct element {
    struct element *next;
};
static struct element *list;
static void *(*make)(size_t) = malloc;

static void process(void *ctx) {
    struct element *element = ctx == NULL ? malloc(sizeof *element) : make(sizeof *element);
    element->next = list;
    list = element;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app;
    mangrove_app_client *client;
    int there = 0;
    if (argc != 3) return 9;
    const char *past = strcmp(argv[2], "new") == 0 ? "_Znwm" : strcmp(argv[2], "libc") == 0 ? "__libc_malloc" : NULL;
    void *new = past == NULL ? NULL : dlsym(RTLD_DEFAULT, past);
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK ||
        mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    if (new != NULL) memcpy(&make, &new, sizeof make);
    if (mangrove_app_cmd(client, new) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 3;
    }
    for (struct element *element = list; element != NULL; element = element->next) there++;
    printf("%d there\n", there);
    mangrove_app_client_free(client);
    return mangrove_app_close(app) == MANGROVE_APP_OK ? 0 : 4;
}
#endif
