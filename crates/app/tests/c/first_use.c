/* first_use STATE convert|key|early|taken|tss: a command has libc load a module and give memory back, or makes a key
 * for thread-specific data. With "early" the key is there before the state is opened, with "taken" another key has its
 * number, with "tss" a command makes the key by a function that this library does not see. */
#include <iconv.h>
#include <malloc.h>
#include <mangrove_app.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <unistd.h>

static int converted;
static bool wants_key, wants_tss;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void drop(void *value) {
    if (value != &key) abort();
    write(1, "dropped\n", 8);
}

static void make_key(void) {
    pthread_key_t unused;
    if (pthread_key_create(&unused, NULL) != 0 || pthread_key_create(&key, drop) != 0) abort();
    if (pthread_key_delete(unused) != 0) abort();
}

/* A thread that has a value when it ends. */
static void *with_value(void *unused) {
    (void)unused;
    if (pthread_getspecific(key) != NULL || pthread_setspecific(key, &key) != 0) abort();
    return NULL;
}

static void convert(void) {
    char in[] = "\xe2\x82\xac", out[4] = {0}, *from = in, *to = out;
    size_t in_left = 3, out_left = sizeof out;
    iconv_t how = iconv_open("ISO-8859-15", "UTF-8");
    if (how == (iconv_t)-1) return; /* a system without that module */
    if (iconv(how, &from, &in_left, &to, &out_left) == (size_t)-1 || (unsigned char)out[0] != 0xa4) abort();
    iconv_close(how);
}

static void process(void *ctx) {
    (void)ctx;
    if (wants_key) pthread_once(&once, make_key);
    if (wants_key && pthread_setspecific(key, &key) != 0) abort();
    if (wants_tss) {
        tss_t other;
        if (tss_create(&other, NULL) != thrd_success) abort();
    }
    convert();
    malloc_trim(0);
    converted++;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
    mangrove_app *app;
    mangrove_app_client *client;
    if (argc != 3) return 9;
    bool early = strcmp(argv[2], "early") == 0;
    if (early) pthread_once(&once, make_key);
    if (strcmp(argv[2], "taken") == 0) {
        /* Which number the state's key has depends on the keys of other threads; it is one of the first. */
        pthread_key_t other;
        for (int n = 0; n < 32; n++)
            if (pthread_key_create(&other, NULL) != 0) return 9;
    }
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK ||
        mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    wants_key = early || strcmp(argv[2], "key") == 0;
    wants_tss = strcmp(argv[2], "tss") == 0;
    if (mangrove_app_cmd(client, NULL) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 3;
    }
    if (wants_key) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, with_value, NULL) != 0 || pthread_join(thread, NULL) != 0) return 9;
    }
    free(malloc(100000));
    malloc_trim(0);
    printf("%d converted\n", converted);
    mangrove_app_client_free(client);
    return mangrove_app_close(app) == MANGROVE_APP_OK ? 0 : 4;
}
