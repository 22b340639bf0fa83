/* Limits of a server, each by its effect: limits STATE clients|request|backlog|idle|stalled|shutdown. The clients are
 * sockets of this process. A request is a line, and each gets the same answer. */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Longer than any limit that is set here, and than a slow machine takes to act on one. */
#define PATIENCE_SECONDS 40
#define ANSWER_BYTES_MAX (4 << 20)

static mangrove_app_options *options;
static mangrove_app *app;
static pthread_t server;
static struct sockaddr_un place = {.sun_family = AF_UNIX};
static atomic_int processed, gone;
static char answer[ANSWER_BYTES_MAX];
static size_t answer_bytes = 1;

static ptrdiff_t deserialize(void *ctx, const void *input, size_t len) {
    (void)ctx;
    const char *end = memchr(input, '\n', len);
    return end == NULL ? 0 : end - (const char *)input + 1;
}

static bool is_read_only(void *ctx) {
    return ctx == NULL;
}

static void process(void *ctx) {
    (void)ctx;
    atomic_fetch_add(&processed, 1);
}

static void get_response(void *ctx, mangrove_app_response *response) {
    (void)ctx;
    response->data = answer;
    response->len = answer_bytes;
}

static void destroy_client(void *ctx) {
    (void)ctx;
    atomic_fetch_add(&gone, 1);
}

static void *serve(void *user) {
    (void)user;
    OK(mangrove_app_serve(app));
    return NULL;
}

static void start(const char *state) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .process = process, .is_read_only = is_read_only, .deserialize = deserialize,
        .get_response = get_response, .destroy_client = destroy_client};
    OK(mangrove_app_options_set_workers(options, 1));
    OK(mangrove_app_open(state, options, &callbacks, &app));
    char address[sizeof place.sun_path];
    CHECK((size_t)snprintf(place.sun_path, sizeof place.sun_path, "%s.socket", state) < sizeof place.sun_path);
    CHECK((size_t)snprintf(address, sizeof address, "unix:%s.socket", state) < sizeof address);
    OK(mangrove_app_listen(app, address));
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
}

static void stop(void) {
    mangrove_app_stop(app);
    CHECK(pthread_join(server, NULL) == 0);
    OK(mangrove_app_close(app));
}

static int join(void) {
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(client >= 0 && connect(client, (struct sockaddr *)&place, sizeof place) == 0);
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    return client;
}

static void ask(int client, const char *request) {
    CHECK(send(client, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request));
}

static void take_answers(int client, size_t count) {
    static char taken[1 << 16];
    for (size_t left = count * answer_bytes; left > 0;) {
        ssize_t got = recv(client, taken, left < sizeof taken ? left : sizeof taken, 0);
        CHECK(got > 0);
        left -= (size_t)got;
    }
}

/* Waits until the server has ended the connection; it sends nothing before. */
static bool is_cut_off(int client) {
    char byte;
    ssize_t got = recv(client, &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

static void nap(long milliseconds) {
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

static bool becomes(atomic_int *number, int wanted) {
    for (int i = 0; i < PATIENCE_SECONDS * 100 && atomic_load(number) != wanted; i++) nap(10);
    return atomic_load(number) == wanted;
}

static void clients(const char *state) {
    OK(mangrove_app_options_set_clients_max(options, 1));
    start(state);
    int first = join();
    ask(first, "?\n");
    take_answers(first, 1);
    int second = join();
    CHECK(is_cut_off(second));
    ask(first, "?\n");
    take_answers(first, 1);
    close(first), close(second);
    stop();
}

static void request(const char *state) {
    OK(mangrove_app_options_set_request_bytes_max(options, 8));
    start(state);
    int client = join();
    ask(client, "1234567\n");
    take_answers(client, 1);
    ask(client, "12345678\n");
    CHECK(is_cut_off(client) && atomic_load(&processed) == 1);
    int endless = join();
    ask(endless, "123456789");
    CHECK(is_cut_off(endless) && atomic_load(&processed) == 1);
    close(client), close(endless);
    stop();
}

/* Of a client that takes no answer only as many requests are processed as its socket has space for answers. */
static void backlog(const char *state) {
    enum { REQUESTS = 1000 };
    static char requests[2 * REQUESTS + 1];
    for (int i = 0; i < REQUESTS; i++) memcpy(requests + 2 * i, "?\n", 2);
    answer_bytes = 4096;
    OK(mangrove_app_options_set_backlog_bytes_max(options, 1));
    start(state);
    int client = join(), space = 0;
    socklen_t len = sizeof space;
    CHECK(getsockopt(client, SOL_SOCKET, SO_SNDBUF, &space, &len) == 0);
    ask(client, requests);
    CHECK(space / (int)answer_bytes + 100 < REQUESTS);
    for (int before = -1, now = 0; now != before; now = atomic_load(&processed)) {
        before = now;
        nap(300);
    }
    /* The default of 1 MiB would hold 256 answers more. */
    CHECK(atomic_load(&processed) < space / (int)answer_bytes + 100);
    take_answers(client, REQUESTS);
    CHECK(atomic_load(&processed) == REQUESTS);
    close(client);
    stop();
}

static void idle(const char *state) {
    /* Longer than a busy machine takes from the connection to the question. */
    OK(mangrove_app_options_set_idle_max(options, 2000));
    start(state);
    int client = join();
    ask(client, "?\n");
    take_answers(client, 1);
    CHECK(is_cut_off(client));
    close(client);
    stop();
}

static void stalled(const char *state) {
    answer_bytes = ANSWER_BYTES_MAX;
    OK(mangrove_app_options_set_stalled_max(options, 100));
    start(state);
    int client = join();
    ask(client, "?\n");
    /* The default is a minute, which is longer than this waits. */
    CHECK(becomes(&gone, 1));
    close(client);
    stop();
}

static void shutting_down(const char *state) {
    struct timespec from, to;
    answer_bytes = ANSWER_BYTES_MAX;
    OK(mangrove_app_options_set_shutdown_max(options, 0));
    start(state);
    int client = join();
    ask(client, "?\n");
    CHECK(becomes(&processed, 1));
    clock_gettime(CLOCK_MONOTONIC, &from);
    stop();
    clock_gettime(CLOCK_MONOTONIC, &to);
    /* The default is 10 seconds. */
    CHECK(to.tv_sec - from.tv_sec < 9);
    close(client);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    options = mangrove_app_options_new();
    if (strcmp(argv[2], "clients") == 0) clients(argv[1]);
    else if (strcmp(argv[2], "request") == 0) request(argv[1]);
    else if (strcmp(argv[2], "backlog") == 0) backlog(argv[1]);
    else if (strcmp(argv[2], "idle") == 0) idle(argv[1]);
    else if (strcmp(argv[2], "stalled") == 0) stalled(argv[1]);
    else if (strcmp(argv[2], "shutdown") == 0) shutting_down(argv[1]);
    else return 9;
    mangrove_app_options_free(options);
    return 0;
}
