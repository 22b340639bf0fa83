/* A program whose library comes and goes: plugins STATE STEP... The steps: open, load:PATH, unload, over (maps memory
 * where the library was), call (a command that calls the library), idle (one that does not), fill (one that writes to
 * all of that memory), read, wait, kill; drop (a command that calls the library and unloads it); keep (a command that
 * keeps the address of the library's function), kept (what that function returns); meet:PATH (a command that keeps
 * that address of a library which another thread loads meanwhile); grow (a command that allocates blocks); last (the
 * process ends by a command that does); openB and callB, the same with another state. */
#include <dlfcn.h>
#include <link.h>
#include <mangrove_app.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct call {
    const char *step;
    int answer;
};

static struct {
    void *handle;
    int (*plugged)(const char *);
    const char *path;
    char *start, *end;
} library;
static int (*kept)(const char *);
static int count;
static char *volatile grown;
static mangrove_app_client *last_client;
static volatile int is_inside, is_loaded;

static void look(void *ctx) {
    struct call *call = ctx;
    call->answer = (strcmp(call->step, "kept") == 0 ? kept : library.plugged)(NULL);
}

static void process(void *ctx) {
    struct call *call = ctx;
    if (strncmp(call->step, "call", 4) == 0) call->answer = library.plugged("");
    if (strcmp(call->step, "keep") == 0) kept = library.plugged;
    if (strcmp(call->step, "drop") == 0) {
        library.plugged("");
        call->answer = dlclose(library.handle);
    }
    if (strncmp(call->step, "meet:", 5) == 0) {
        is_inside = 1;
        while (!is_loaded) {
        }
        kept = library.plugged;
    }
    for (int i = 0; i < 64 && strcmp(call->step, "grow") == 0; i++) grown = memset(malloc(4000), 9, 4000);
    if (strcmp(call->step, "fill") == 0) memset(library.start, 7, library.end - library.start);
    count++;
}

static int find_span(struct dl_phdr_info *info, size_t bytes, void *ctx) {
    (void)bytes, (void)ctx;
    if (strcmp(info->dlpi_name, library.path) != 0) return 0;
    library.start = (char *)UINTPTR_MAX, library.end = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        unsigned long from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        char *start = (char *)(from & ~4095UL);
        char *end = (char *)((from + info->dlpi_phdr[i].p_memsz + 4095) & ~4095UL);
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        if (start < library.start) library.start = start;
        if (end > library.end) library.end = end;
    }
    return 1;
}

static void load(const char *path) {
    library.path = path;
    library.handle = dlopen(path, RTLD_NOW);
    if (library.handle == NULL) exit(8);
    *(void **)&library.plugged = dlsym(library.handle, "plugged");
    dl_iterate_phdr(find_span, NULL);
    printf("loaded at %p\n", (void *)library.start);
}

static void *load_meanwhile(void *path) {
    while (!is_inside) usleep(100);
    load(path);
    is_loaded = 1;
    return NULL;
}

static void map_over(void) {
    void *wanted = library.start;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(wanted, library.end - library.start, PROT_READ | PROT_WRITE, flags, -1, 0) != wanted) exit(7);
}

static void fine(mangrove_app_status status) {
    if (status == MANGROVE_APP_OK) return;
    fprintf(stderr, "%s\n", mangrove_app_last_error());
    exit(2);
}

static void grow_last(void) {
    struct call call = {"grow", 0};
    if (mangrove_app_cmd(last_client, &call) != MANGROVE_APP_OK) _Exit(5);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app, *app_b;
    mangrove_app_client *client, *client_b;
    for (int i = 2; i < argc; i++) {
        struct call call = {argv[i], 0};
        if (strncmp(call.step, "load:", 5) == 0) {
            load(call.step + 5);
        } else if (strcmp(call.step, "unload") == 0) {
            dlclose(library.handle);
        } else if (strcmp(call.step, "over") == 0) {
            map_over();
        } else if (strcmp(call.step, "open") == 0) {
            fine(mangrove_app_open(argv[1], NULL, &callbacks, &app));
            fine(mangrove_app_client_new(app, &client));
            last_client = client;
        } else if (strcmp(call.step, "last") == 0) {
            if (atexit(grow_last) != 0) exit(6);
        } else if (strcmp(call.step, "openB") == 0) {
            char path[4096];
            snprintf(path, sizeof path, "%s.b", argv[1]);
            fine(mangrove_app_open(path, NULL, &callbacks, &app_b));
            fine(mangrove_app_client_new(app_b, &client_b));
        } else if (strcmp(call.step, "callB") == 0) {
            fine(mangrove_app_cmd(client_b, &call));
            printf("callB %d\n", call.answer);
        } else if (strcmp(call.step, "read") == 0 || strcmp(call.step, "kept") == 0) {
            fine(mangrove_app_read(client, look, &call));
            printf("%s %d\n", call.step, call.answer);
        } else if (strcmp(call.step, "wait") == 0) {
            usleep(20000);
        } else if (strcmp(call.step, "kill") == 0) {
            fflush(stdout);
            raise(SIGKILL);
        } else {
            pthread_t loader;
            const int meets = strncmp(call.step, "meet:", 5) == 0;
            if (meets && pthread_create(&loader, NULL, load_meanwhile, argv[i] + 5) != 0) exit(6);
            fine(mangrove_app_cmd(client, &call));
            if (meets) pthread_join(loader, NULL);
            printf("%s %d\n", call.step, call.answer);
        }
    }
    return 0;
}
