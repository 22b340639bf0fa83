/* first_use STATE convert|key|early: a command has libc load a module and give memory back, or makes a key for thread-specific data; with
 * "early" the key is there before the state is opened. */
#include <iconv.h>
#include <malloc.h>
#include <mangrove_app.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int converted;
static bool wants_key;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void) {
    if (pthread_key_create(&key, NULL) != 0) abort();
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
    if (mangrove_app_open(argv[1], NULL, &callbacks, &app) != MANGROVE_APP_OK ||
        mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    wants_key = early || strcmp(argv[2], "key") == 0;
    if (mangrove_app_cmd(client, NULL) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 3;
    }
    free(malloc(100000));
    malloc_trim(0);
    printf("%d converted\n", converted);
    mangrove_app_client_free(client);
    return mangrove_app_close(app) == MANGROVE_APP_OK ? 0 : 4;
}
