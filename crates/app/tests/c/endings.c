/*
 * Commands that do not end. The first run (argv: STATE HOW) makes a state, acknowledges two
 * writes, and then issues a command that ends in the middle; the second (argv: STATE check) must find what
 * was acknowledged and nothing of the last command.
 */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

typedef struct node {
    struct node *next;
    char text[200];
} node;

static node *list;
static long long count, sum;
/* Freed by the command that ends halfway. */
static char *large;
enum { LARGE_BYTES = 1 << 20 };
static const char *how;
static mangrove_app *app;

static int init_state(void *user) {
    (void)user;
    count = sum = 0;
    list = NULL;
    large = malloc(LARGE_BYTES);
    memset(large, 'L', LARGE_BYTES);
    return 0;
}

static void push(const char *text) {
    node *one = malloc(sizeof *one);
    one->next = list;
    snprintf(one->text, sizeof one->text, "%s", text);
    list = one;
    count++;
    sum += (long long)strlen(text);
}

static void process(void *ctx) {
    push(ctx);
}

static volatile int *nowhere;

static void *body(void *arg) {
    return arg;
}

static void end(void *ctx) {
    push(ctx);
    free(large);
    large = NULL;
    if (strcmp(how, "segv") == 0) *nowhere = 1;
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "exit") == 0) exit(7);
    if (strcmp(how, "_exit") == 0) _exit(7);
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    /* Calls that make processes and threads fail, as if the kernel had none, and the command continues. */
    if (strcmp(how, "fork") == 0) CHECK(vfork() == -1 && errno == ENOSYS);
    if (strcmp(how, "process") == 0) {
        char *arguments[] = {"true", NULL};
        pid_t child;
        CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, arguments) == ENOSYS);
        CHECK(system("true") != 0);
    }
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, body, NULL) != 0);
    }
    free(malloc(100000));
    push("and more");
}

static void check(void) {
    long long nodes = 0, bytes = 0;
    for (node *n = list; n != NULL; n = n->next) {
        nodes++;
        bytes += (long long)strlen(n->text);
    }
    CHECK(nodes == count && bytes == sum);
    CHECK(large != NULL);
    for (size_t at = 0; at < LARGE_BYTES; at++) CHECK(large[at] == 'L');
    CHECK(count == 2);
    CHECK(strcmp(list->text, "second") == 0 && strcmp(list->next->text, "first") == 0);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process, .init_state = init_state};
    mangrove_app_client *client, *other;
    CHECK(argc == 3);
    how = argv[2];
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    if (strcmp(how, "check") == 0) {
        CHECK(!mangrove_app_is_new(app));
        check();
        /* And it continues: this time the command ends. */
        OK(mangrove_app_cmd(client, "third"));
        CHECK(count == 3);
        mangrove_app_client_free(client);
        OK(mangrove_app_close(app));
        return 0;
    }
    CHECK(mangrove_app_is_new(app));
    OK(mangrove_app_cmd(client, "first"));
    OK(mangrove_app_cmd(client, "second"));
    OK(mangrove_app_client_new(app, &other));
    if (strcmp(how, "kill beside a child") == 0) {
        if (fork() == 0) { /* It lives while the next run opens the state. */
            close(1);
            close(2);
            alarm(120);
            pause();
            _exit(0);
        }
        kill(getpid(), SIGKILL);
    }
    mangrove_app_status status = mangrove_app_write(client, end, "half");
    /* Only ways that do not end the process arrive here. */
    CHECK(status == MANGROVE_APP_ERR_BROKEN);
    SAYS(how);
    SAYS("restart");
    ANSWERS(MANGROVE_APP_ERR_BROKEN, mangrove_app_cmd(other, "never"));
    ANSWERS(MANGROVE_APP_ERR_BROKEN, mangrove_app_read(other, end, "never"));
    /* In memory the block is free, but not durably. */
    ANSWERS(MANGROVE_APP_ERR_BROKEN, mangrove_app_compact(app));
    mangrove_app_client_free(client);
    mangrove_app_client_free(other);
    ANSWERS(MANGROVE_APP_ERR_BROKEN, mangrove_app_close(app));
    return 3;
}
