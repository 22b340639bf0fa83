/* A program whose surroundings change for the worse after it has opened its state: surroundings STATE
 * breakpoint|descriptors. breakpoint: a debugger's breakpoint lies on the first instruction of a function that commands
 * reach. descriptors: the process has no descriptor left when a thread writes for the first time, in a library that no
 * command has reached yet. */
#include <errno.h>
#include <fcntl.h>
#include <mangrove_app.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

static long balance;
static mangrove_app_client *client;

__attribute__((noinline)) static void credit(long cents) {
    balance += cents;
    __asm__ volatile("");
}

static void process(void *wants_zlib) {
    if (wants_zlib != NULL) balance += crc32(0, (const unsigned char *)"a", 1) != 0;
    credit(10000000000);
}

static void *write_once(void *wants_zlib) {
    return mangrove_app_cmd(client, wants_zlib) == MANGROVE_APP_OK ? NULL : (void *)mangrove_app_last_error();
}

/* What ptrace does: the page becomes the process's own, whatever its protection. */
static void put(void *at, const void *bytes, size_t len) {
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory < 0 || pwrite(memory, bytes, len, (off_t)(size_t)at) != (ssize_t)len) abort();
    close(memory);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app;
    if (argc != 3) return 9;
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK ||
        mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    long before = balance;
    int fds[4096], count = 0;
    unsigned char first = *(const unsigned char *)(size_t)credit, breakpoint = 0xcc;
    if (strcmp(argv[2], "breakpoint") == 0) put((void *)(size_t)credit, &breakpoint, 1);
    if (strcmp(argv[2], "descriptors") == 0) {
        struct rlimit limit = {.rlim_cur = 256, .rlim_max = 256};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 9;
        while ((fds[count] = dup(1)) >= 0) count++;
        if (errno != EMFILE || count == 0) return 9;
    }
    const char *error = write_once(NULL);
    pthread_t thread;
    if (error == NULL && pthread_create(&thread, NULL, write_once, &balance) == 0) {
        pthread_join(thread, (void **)&error);
    }
    while (count > 0) close(fds[--count]);
    put((void *)(size_t)credit, &first, 1);
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        return 3;
    }
    printf("added %ld\n", balance - before);
    mangrove_app_client_free(client);
    return mangrove_app_close(app) == MANGROVE_APP_OK ? 0 : 4;
}
