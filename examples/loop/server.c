/*
 * A server of accounts with an event loop of its own, durable. One round of the loop is one batch: what its requests
 * changed is committed as one atomic group, and the loop goes on. A reply leaves when its batch is durable.
 *
 *     server STATE SOCKET
 *
 * A request is a line: "add NAME AMOUNT", "move FROM TO AMOUNT", "get NAME", "sum". The reply is a number.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mangrove_app.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BUCKETS 4096
#define NAME_BYTES 24
#define IN_BYTES 65536
#define OUT_BYTES 65536
/* A request is executed only while the longest reply has room. */
#define REPLY_BYTES 32

/* ---- The state: ordinary structures that know nothing of durability. ---- */

typedef struct account {
    struct account *next;
    int64_t balance;
    char name[NAME_BYTES];
} account;

typedef struct {
    account *buckets[BUCKETS];
} bank;

static bank *the_bank;

static account **place_of(const char *name) {
    uint64_t hash = 1469598103934665603u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    account **at = &the_bank->buckets[hash % BUCKETS];
    while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
    return at;
}

static int64_t add(const char *name, int64_t amount) {
    account **at = place_of(name);
    if (*at == NULL) {
        *at = calloc(1, sizeof **at);
        snprintf((*at)->name, NAME_BYTES, "%s", name);
    }
    return (*at)->balance += amount;
}

static int64_t sum(void) {
    int64_t all = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (account *a = the_bank->buckets[i]; a; a = a->next) all += a->balance;
    return all;
}

/* ---- Requests. ---- */

typedef struct {
    char from[NAME_BYTES], to[NAME_BYTES];
    int64_t amount, reply;
} request;

static void run_add(void *ctx) {
    request *r = ctx;
    r->reply = add(r->to, r->amount);
}

static void run_move(void *ctx) {
    request *r = ctx;
    add(r->from, -r->amount);
    r->reply = add(r->to, r->amount);
}

typedef struct client {
    struct client *next, **before;
    int fd;
    bool gone;        /* the client takes no replies */
    bool ended;       /* it sends no more requests, and is closed when all are answered */
    bool has_more;    /* requests have come that are not executed */
    bool is_blocked;  /* its socket takes no more */
    uint32_t watched; /* the events that epoll reports */
    uint64_t ticket;  /* what the unsent replies wait for */
    size_t in_len, out_len;
    char in[IN_BYTES], out[OUT_BYTES];
} client;

static mangrove_app *app;
static client *clients;
static int poller, listener, notified, ending;
static bool wrote;      /* a batch is open */
static bool executable; /* a request is there and has room for its reply */
static uint64_t newest; /* the ticket of the last commit */
static bool stopped;    /* SIGTERM has come */

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, mangrove_app_last_error());
    exit(1);
}

#define OK_OR_DIE(call)                         \
    do {                                        \
        if ((call) != MANGROVE_APP_OK) die(#call); \
    } while (0)

static void tracked(void (*f)(void *), request *r) {
    OK_OR_DIE(mangrove_app_batch_call(app, f, r));
    wrote = true;
}

static int64_t execute(const char *line) {
    request r = {.reply = -1};
    if (sscanf(line, "add %23s %" SCNd64, r.to, &r.amount) == 2) {
        tracked(run_add, &r);
    } else if (sscanf(line, "move %23s %23s %" SCNd64, r.from, r.to, &r.amount) == 3) {
        tracked(run_move, &r);
    } else if (sscanf(line, "get %23s", r.to) == 1) {
        account *found = *place_of(r.to); /* reads need no call */
        r.reply = found ? found->balance : 0;
    } else if (strcmp(line, "sum") == 0) {
        r.reply = sum();
    }
    return r.reply;
}

static bool has_room(const client *c) {
    return OUT_BYTES - c->out_len >= REPLY_BYTES;
}

static void execute_all(client *c) {
    size_t from = 0, before = c->out_len;
    char *end;
    while ((end = memchr(c->in + from, '\n', c->in_len - from)) && has_room(c)) {
        *end = 0;
        c->out_len += (size_t)snprintf(c->out + c->out_len, REPLY_BYTES, "%" PRId64 "\n", execute(c->in + from));
        from = (size_t)(end + 1 - c->in);
    }
    memmove(c->in, c->in + from, c->in_len -= from);
    c->has_more = end != NULL;
    if (c->in_len == IN_BYTES && !end) c->ended = true; /* no request is so long */
    /* What it wrote or read waits for the commit that ends this round. */
    if (c->out_len > before) c->ticket = UINT64_MAX;
}

/* ---- The loop. ---- */

static void watch(int fd, void *who) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0) perror("epoll_ctl"), exit(1);
}

/* A client is not read from while there is no room, nor after its end: epoll would report it in every round. */
static void watch_again(client *c) {
    struct epoll_event event = {.data.ptr = c};
    if (!c->ended && c->in_len < IN_BYTES) event.events |= EPOLLIN;
    if (c->is_blocked) event.events |= EPOLLOUT;
    if (event.events == c->watched) return;
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event) != 0) perror("epoll_ctl"), exit(1);
    c->watched = event.events;
}

static void accept_one(void) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    client *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->next = clients;
    c->before = &clients;
    if (clients) clients->before = &c->next;
    clients = c;
    watch(fd, c);
    c->watched = EPOLLIN;
}

static void receive(client *c, uint32_t events) {
    if (!(c->watched & EPOLLIN)) {
        /* The other end is closed, not only for writing. While requests may come, they are read first. */
        if (events & (EPOLLHUP | EPOLLERR)) c->gone = true;
        return;
    }
    ssize_t got = read(c->fd, c->in + c->in_len, IN_BYTES - c->in_len);
    if (got > 0) c->in_len += (size_t)got;
    else if (got == 0) c->ended = true;
    else if (errno != EAGAIN && errno != EINTR) c->gone = true;
}

static void send_what_is_durable(client *c, uint64_t durable) {
    c->is_blocked = false;
    if (c->out_len == 0 || c->ticket > durable) return;
    ssize_t sent = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (sent > 0) memmove(c->out, c->out + sent, c->out_len -= (size_t)sent);
    else if (errno != EAGAIN && errno != EINTR) c->gone = true;
    c->is_blocked = c->out_len > 0;
}

static bool is_answered(const client *c) {
    return !c->has_more && c->out_len == 0;
}

static void end(client *c) {
    *c->before = c->next;
    if (c->next) c->next->before = c->before;
    close(c->fd);
    free(c);
}

/* After the medium's first error nothing becomes durable any more. */
static void look_for_an_error(void) {
    mangrove_app_counters counters;
    /* The first of the counters, which cost nothing. */
    OK_OR_DIE(mangrove_app_stat(app, &counters, offsetof(mangrove_app_counters, ranges)));
    if (counters.failed) OK_OR_DIE(mangrove_app_wait(app, newest));
}

static void one_round(void) {
    struct epoll_event events[64];
    int count = epoll_wait(poller, events, 64, executable ? 0 : -1);
    for (int i = 0; i < count; i++) {
        uint64_t told;
        if (events[i].data.ptr == &listener) accept_one();
        else if (events[i].data.ptr == &ending) stopped = true;
        else if (events[i].data.ptr != &notified) receive(events[i].data.ptr, events[i].events);
        else if (read(notified, &told, sizeof told) == sizeof told) look_for_an_error();
    }
    for (client *c = clients; c; c = c->next) execute_all(c);
    if (wrote) OK_OR_DIE(mangrove_app_batch_commit(app, &newest));
    wrote = executable = false;
    uint64_t durable = mangrove_app_durable(app);
    for (client *c = clients, *next; c; c = next) {
        next = c->next;
        if (c->ticket == UINT64_MAX) c->ticket = newest;
        send_what_is_durable(c, durable);
        if (c->gone || (c->ended && is_answered(c))) {
            end(c);
            continue;
        }
        watch_again(c);
        if (c->has_more && has_room(c)) executable = true;
    }
}

static void listen_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    unlink(path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 64) != 0) {
        perror(path);
        exit(1);
    }
    watch(listener, &listener);
}

/* ---- The durable part. ---- */

static int init_state(void *user) {
    (void)user;
    *mangrove_app_root(app, 0) = calloc(1, sizeof(bank));
    return 0;
}

static void no_clients(void *ctx) {
    (void)ctx; /* every write is a call of a batch */
}

/* From now on SIGTERM is an event of the loop: a handler could run just before the loop waits. */
static void watch_for_the_end(void) {
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    ending = signalfd(-1, &term, SFD_NONBLOCK | SFD_CLOEXEC);
    if (ending < 0) perror("signalfd"), exit(1);
    watch(ending, &ending);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s STATE SOCKET\n", argv[0]);
        return 2;
    }
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = no_clients, .init_state = init_state};
    mangrove_app_options *options = mangrove_app_options_new();
    /* What is persistent is what root 0 leads to, and no variable. */
    mangrove_app_options_set_variables(options, false);
    OK_OR_DIE(mangrove_app_open(argv[1], options, &callbacks, &app));
    mangrove_app_options_free(options);
    the_bank = *mangrove_app_root(app, 0);

    poller = epoll_create1(EPOLL_CLOEXEC);
    watch_for_the_end();
    listen_at(argv[2]);
    notified = mangrove_app_notify_fd(app);
    if (notified < 0) die("mangrove_app_notify_fd");
    watch(notified, &notified);
    printf("serving\n");
    fflush(stdout);
    while (!stopped) one_round();
    OK_OR_DIE(mangrove_app_close(app));
    return 0;
}
