/* Batches that the program fills itself: batches STATE use|misuse|fence|...: see main. */
#include "check.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct node {
    struct node *next;
    uint64_t number;
    char text[100];
} node;

typedef struct {
    node *list;
    uint64_t count, sum;
} root;

static mangrove_app *app;
static root *state;
static mangrove_app_status inner[8];

/* The handle is there while init_state runs. */
static int init_state(void *user) {
    (void)user;
    root *made = calloc(1, sizeof *made);
    CHECK(mangrove_app_is_inside() && mangrove_app_is_persistent(made));
    CHECK(app != NULL && mangrove_app_is_new(app));
    *mangrove_app_root(app, 0) = made;
    inner[0] = mangrove_app_sync(app);
    inner[1] = mangrove_app_close(app);
    return 0;
}

static int on_recover(void *user) {
    (void)user;
    CHECK(*mangrove_app_root(app, 0) != NULL);
    inner[0] = mangrove_app_close(app);
    CHECK(inner[0] == MANGROVE_APP_ERR_NESTED);
    return 0;
}

static void push(void *ctx) {
    node *one = malloc(sizeof *one);
    one->next = state->list;
    one->number = *(uint64_t *)ctx;
    snprintf(one->text, sizeof one->text, "%llu", (unsigned long long)one->number);
    state->list = one;
    state->count++;
    state->sum += one->number;
}

/* The caller frees the node. */
static void pop(void *ctx) {
    node *one = state->list;
    state->list = one->next;
    state->count--;
    state->sum -= one->number;
    *(node **)ctx = one;
}

static void process(void *ctx) {
    push(ctx);
}

static volatile int *volatile nowhere;

/* Writes to the state outside of commands. */
__attribute__((noinline)) static void write_secretly(uint64_t number) {
    *(volatile uint64_t *)&state->sum = number;
}

static volatile struct {
    int count;
    const void *address, *frame;
} reported;

static void report(const void *address, void *const *frames, size_t count, void *user) {
    CHECK(user == (void *)&reported && count > 1);
    reported.count++;
    reported.address = address;
    reported.frame = frames[0];
}

static void sound(void) {
    uint64_t count = 0, sum = 0;
    for (node *n = state->list; n != NULL; n = n->next) {
        count++;
        sum += n->number;
        CHECK(strtoull(n->text, NULL, 10) == n->number);
    }
    CHECK(count == state->count && sum == state->sum);
}

static void push_all(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; n++) OK(mangrove_app_batch_call(app, push, &n));
}

static bool is_readable(int fd, int milliseconds) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, milliseconds) == 1;
}

static void open_state(const char *path, mangrove_app_options *options) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .process = process, .init_state = init_state, .on_recover = on_recover};
    OK(mangrove_app_open(path, options, &callbacks, &app));
    state = *mangrove_app_root(app, 0);
    CHECK(mangrove_app_is_persistent(state) && !mangrove_app_is_persistent(&app) && !mangrove_app_is_inside());
}

static void use(void) {
    uint64_t first, second, third, bytes;
    CHECK(inner[0] == MANGROVE_APP_ERR_NESTED && inner[1] == MANGROVE_APP_ERR_NESTED);
    push_all(0, 50);
    /* Between the calls it reads, and allocates on its own heap. */
    sound();
    void *transient = malloc(100);
    CHECK(state->count == 50 && !mangrove_app_is_persistent(transient));
    free(transient);
    OK(mangrove_app_batch_commit(app, &first));
    CHECK(first > 0);
    OK(mangrove_app_wait(app, first));
    CHECK(mangrove_app_durable(app) >= first);
    OK(mangrove_app_wait(app, first));

    /* Tickets grow, whoever writes. */
    push_all(50, 60);
    OK(mangrove_app_batch_commit(app, &second));
    mangrove_app_client *client;
    OK(mangrove_app_client_new(app, &client));
    uint64_t number = 60;
    OK(mangrove_app_cmd(client, &number));
    push_all(61, 62);
    OK(mangrove_app_batch_commit(app, &third));
    CHECK(first < second && second < third);
    OK(mangrove_app_wait(app, third));
    CHECK(mangrove_app_durable(app) >= third);
    mangrove_app_client_free(client);

    /* The descriptor tells. */
    int fd = mangrove_app_notify_fd(app);
    CHECK(fd >= 0 && mangrove_app_notify_fd(app) == fd && !is_readable(fd, 20));
    for (uint64_t n = 62; n < 72; n++) {
        push_all(n, n + 1);
        OK(mangrove_app_batch_commit(app, &third));
        while (mangrove_app_durable(app) < third) {
            CHECK(is_readable(fd, 60000));
            CHECK(read(fd, &bytes, sizeof bytes) == sizeof bytes);
        }
    }
    bool more = read(fd, &bytes, sizeof bytes) == sizeof bytes;
    CHECK(more || errno == EAGAIN);
    CHECK(!is_readable(fd, 20));

    /* What is freed outside becomes free with the commit, also alone. */
    mangrove_app_counters counters;
    OK(mangrove_app_stat(app, &counters, sizeof counters));
    uint64_t batches = counters.batches, commands = counters.commands, used_bytes = counters.used_bytes;
    CHECK(used_bytes > 72 * sizeof(node) && counters.waiting_frees == 0 && counters.failed == 0);
    CHECK(counters.ranges > batches && counters.bytes > 72 * sizeof(node) && counters.log_used <= counters.log_bytes);
    node *popped;
    OK(mangrove_app_batch_call(app, pop, &popped));
    free(popped);
    OK(mangrove_app_stat(app, &counters, sizeof counters));
    CHECK(counters.waiting_frees == 1 && counters.used_bytes == used_bytes);
    OK(mangrove_app_batch_commit(app, &second));
    CHECK(second > third);
    OK(mangrove_app_batch_call(app, pop, &popped));
    OK(mangrove_app_batch_commit(app, &second));
    free(popped);
    OK(mangrove_app_batch_commit(app, &third));
    CHECK(third > second);
    OK(mangrove_app_stat(app, &counters, sizeof counters));
    CHECK(counters.waiting_frees == 0 && used_bytes >= counters.used_bytes + 2 * sizeof(node));
    CHECK(counters.batches == batches + 3 && counters.commands == commands + 2 && counters.committed == third);
    OK(mangrove_app_close(app));
}

static void nest(void *ctx) {
    uint64_t ticket = 9;
    inner[0] = mangrove_app_batch_call(app, push, ctx);
    inner[1] = mangrove_app_batch_commit(app, &ticket);
    inner[2] = mangrove_app_wait(app, 1);
    inner[3] = mangrove_app_notify_fd(app);
    inner[4] = (int)ticket;
    push(ctx);
}

static void in_read(void *ctx) {
    inner[0] = mangrove_app_batch_call(app, push, ctx);
}

static void *from_another_thread(void *ctx) {
    uint64_t ticket = 9;
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_batch_call(app, push, ctx));
    SAYS("another thread has a batch open");
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_batch_commit(app, &ticket));
    SAYS("another thread has a batch open");
    CHECK(ticket == 0);
    return NULL;
}

static pthread_barrier_t is_open, has_ended;

static void *hold_a_batch(void *ctx) {
    uint64_t ticket;
    OK(mangrove_app_batch_call(app, push, ctx));
    pthread_barrier_wait(&is_open);
    pthread_barrier_wait(&has_ended);
    OK(mangrove_app_batch_commit(app, &ticket));
    return NULL;
}

static void *leave_a_batch(void *ctx) {
    OK(mangrove_app_batch_call(app, push, ctx));
    return NULL;
}

static void left_by_a_thread(void) {
    uint64_t number = 7;
    mangrove_app_client *client;
    pthread_t thread;
    /* Without an end of the batch the calls wait. */
    alarm(300);
    OK(mangrove_app_client_new(app, &client));
    CHECK(pthread_create(&thread, NULL, leave_a_batch, &number) == 0 && pthread_join(thread, NULL) == 0);
    ANSWERS(MANGROVE_APP_ERR_BROKEN, mangrove_app_cmd(client, &number));
    SAYS("without committing it");
    ANSWERS(MANGROVE_APP_ERR_BROKEN, mangrove_app_read(client, in_read, &number));
}

static void misuse(void) {
    uint64_t ticket = 9, number = 7;
    mangrove_app_client *client;
    pthread_t thread;
    OK(mangrove_app_client_new(app, &client));
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_batch_commit(app, &ticket));
    SAYS("no batch is open");
    CHECK(ticket == 0);
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_batch_call(app, NULL, &number));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_batch_call(NULL, push, &number));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_batch_commit(app, NULL));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_wait(NULL, 1));
    CHECK(mangrove_app_durable(NULL) == 0 && mangrove_app_notify_fd(NULL) == -1);
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_wait(app, UINT64_MAX));
    SAYS("no batch has the ticket");

    OK(mangrove_app_batch_call(app, nest, &number));
    CHECK(inner[0] == MANGROVE_APP_ERR_NESTED && inner[1] == MANGROVE_APP_ERR_NESTED);
    CHECK(inner[2] == MANGROVE_APP_ERR_NESTED && inner[3] == -1 && inner[4] == 0);
    /* The batch is open. */
    CHECK(pthread_create(&thread, NULL, from_another_thread, &number) == 0 && pthread_join(thread, NULL) == 0);
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_cmd(client, &number));
    SAYS("commit it first");
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_read(client, in_read, &number));
    ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_close(app));
    SAYS("commit it before closing");
    pid_t child = fork();
    if (child == 0) {
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_batch_call(app, push, &number));
        SAYS("forked");
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_batch_commit(app, &ticket));
        SAYS("forked");
        CHECK(mangrove_app_notify_fd(app) == -1);
        _exit(5);
    }
    int ended = 0;
    CHECK(child > 0 && waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 5);
    OK(mangrove_app_batch_commit(app, &ticket));
    OK(mangrove_app_wait(app, ticket));
    OK(mangrove_app_read(client, in_read, &number));
    CHECK(inner[0] == MANGROVE_APP_ERR_NESTED && state->count == 1);
    /* A thread that the child does not have has a batch open. */
    CHECK(pthread_barrier_init(&is_open, NULL, 2) == 0 && pthread_barrier_init(&has_ended, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, hold_a_batch, &number) == 0);
    pthread_barrier_wait(&is_open);
    child = fork();
    if (child == 0) {
        mangrove_app_counters counters;
        alarm(300);
        ANSWERS(MANGROVE_APP_ERR_BATCH, mangrove_app_stat(app, &counters, sizeof counters));
        SAYS("forked");
        OK(mangrove_app_stat(app, &counters, offsetof(mangrove_app_counters, used_bytes)));
        CHECK(counters.commands > 0 && counters.bytes == 0);
        _exit(5);
    }
    CHECK(child > 0 && waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 5);
    pthread_barrier_wait(&has_ended);
    CHECK(pthread_join(thread, NULL) == 0);
    ANSWERS(MANGROVE_APP_ERR_IN_USE, mangrove_app_close(app));
    mangrove_app_client_free(client);
    OK(mangrove_app_close(app));
}

static void fence(void) {
    uint64_t ticket;
    node *popped;
    push_all(0, 10);
    sound();
    CHECK(reported.count == 0);
    write_secretly(77);
    CHECK(state->sum == 77 && reported.count == 1 && reported.address == &state->sum);
    CHECK((uintptr_t)reported.frame - (uintptr_t)write_secretly < 100);
    write_secretly(45);
    CHECK(state->sum == 45 && reported.count == 1);
    /* Another way there is another report. */
    push_all(10, 11);
    void (*volatile again)(uint64_t) = write_secretly;
    again(55);
    CHECK(state->sum == 55 && reported.count == 2);
    OK(mangrove_app_batch_commit(app, &ticket));
    /* What the library itself does is none. */
    OK(mangrove_app_batch_call(app, pop, &popped));
    free(popped);
    OK(mangrove_app_batch_commit(app, &ticket));
    OK(mangrove_app_checkpoint(app));
    sound();
    CHECK(reported.count == 2);
    /* Other faults are none either. */
    pid_t child = fork();
    if (child == 0) {
        *nowhere = 1;
        _exit(5);
    }
    int ended = 0;
    CHECK(child > 0 && waitpid(child, &ended, 0) == child && WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
    OK(mangrove_app_close(app));
    write_secretly(1);
    CHECK(reported.count == 2);
}

static void give_up(void *ctx) {
    push(ctx);
    _exit(fork() == -1 && errno == ENOTSUP ? 3 : 4);
}

static char *answer;

__attribute__((noinline)) static void make_answer(const char *text, size_t a, size_t b, size_t c, size_t d,
                                                  size_t e, size_t on_the_stack) {
    CHECK(!mangrove_app_is_inside());
    answer = malloc(strlen(text) + a + b + c + d + e + on_the_stack);
    strcpy(answer, text);
}

static void push_and_answer(void *ctx) {
    void (*volatile make)(const char *, size_t, size_t, size_t, size_t, size_t, size_t) = make_answer;
    push(ctx);
    make_answer(state->list->text, 1, 2, 3, 4, 5, 6);
    CHECK(!mangrove_app_is_persistent(answer) && strcmp(answer, "7") == 0 && mangrove_app_is_inside());
    free(answer);
    make(state->list->text, 1, 2, 3, 4, 5, 6);
    CHECK(!mangrove_app_is_persistent(answer) && strcmp(answer, "7") == 0 && mangrove_app_is_inside());
}

/* Ends without closing, with a block freed natively before the commit, or after it. */
static void end_after_a_free(bool before) {
    uint64_t ticket;
    node *popped;
    push_all(0, 10);
    OK(mangrove_app_batch_commit(app, &ticket));
    OK(mangrove_app_batch_call(app, pop, &popped));
    if (before) free(popped);
    OK(mangrove_app_batch_commit(app, &ticket));
    if (!before) free(popped);
    OK(mangrove_app_wait(app, ticket));
    _exit(0);
}

static void print_bytes(void) {
    mangrove_app_counters counters;
    OK(mangrove_app_stat(app, &counters, sizeof counters));
    printf("%llu\n", (unsigned long long)counters.used_bytes);
    sound();
    OK(mangrove_app_close(app));
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *how = argv[2];
    uint64_t ticket, number = 7;
    mangrove_app_options *options = mangrove_app_options_new();
    if (strcmp(how, "native") == 0) OK(mangrove_app_native(options, (const void *)(uintptr_t)make_answer));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_native(options, NULL));
    if (strcmp(how, "fence") == 0) OK(mangrove_app_options_set_write_fence(options, report, (void *)&reported));
    if (strcmp(how, "standard error") == 0) OK(mangrove_app_options_set_write_fence(options, NULL, NULL));
    OK(mangrove_app_options_set_variables(options, false));
    open_state(argv[1], options);
    if (strcmp(how, "use") == 0) {
        use();
    } else if (strcmp(how, "free, commit") == 0) {
        end_after_a_free(true);
    } else if (strcmp(how, "commit, free") == 0) {
        end_after_a_free(false);
    } else if (strcmp(how, "nine") == 0) {
        push_all(0, 9);
        OK(mangrove_app_batch_commit(app, &ticket));
        OK(mangrove_app_close(app));
    } else if (strcmp(how, "bytes") == 0) {
        print_bytes();
    } else if (strcmp(how, "fence") == 0) {
        fence();
    } else if (strcmp(how, "standard error") == 0) {
        write_secretly(77);
        CHECK(state->sum == 77);
        OK(mangrove_app_close(app));
    } else if (strcmp(how, "misuse") == 0) {
        misuse();
    } else if (strcmp(how, "left") == 0) {
        left_by_a_thread();
    } else if (strcmp(how, "native") == 0) {
        OK(mangrove_app_batch_call(app, push_and_answer, &number));
        OK(mangrove_app_batch_commit(app, &ticket));
        CHECK(strcmp(answer, "7") == 0);
        free(answer);
        OK(mangrove_app_close(app));
        /* Another tracker cannot do that. */
        OK(mangrove_app_options_set_tracker(options, MANGROVE_APP_TRACKER_EXPLICIT));
        mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process};
        ANSWERS(MANGROVE_APP_ERR_TRACKER, mangrove_app_open(argv[1], options, &callbacks, &app));
        SAYS("need the recompiler");
        CHECK(app == NULL);
    } else if (strcmp(how, "crash") == 0) {
        /* One batch is durable, one has no commit, and its last command does not end. */
        push_all(0, 10);
        OK(mangrove_app_batch_commit(app, &ticket));
        OK(mangrove_app_wait(app, ticket));
        push_all(10, 20);
        mangrove_app_batch_call(app, give_up, &number);
        return 9;
    } else {
        CHECK(strcmp(how, "check") == 0);
        sound();
        CHECK(state->count == 10 && state->sum == 45);
        push_all(10, 20);
        OK(mangrove_app_batch_commit(app, &ticket));
        CHECK(state->count == 20);
        OK(mangrove_app_close(app));
    }
    mangrove_app_options_free(options);
    return 0;
}
