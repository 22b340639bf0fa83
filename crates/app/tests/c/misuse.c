/* Wrong calls return a status and leave a message. */
#include "check.h"

static int answer;
static mangrove_app *app;
static long counter;

static int init_state(void *user) {
    CHECK(user == &answer);
    CHECK(counter == 0);
    counter = 40;
    return answer;
}

static void process(void *ctx) {
    counter += *(long *)ctx;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .user = &answer, .process = process, .init_state = init_state};
    CHECK(argc == 2);
    const char *state = argv[1];

    /* Options. */
    mangrove_app_options *options = mangrove_app_options_new();
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_options_set_medium(options, 77));
    SAYS("77 is no mangrove_app_medium");
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_options_set_start(options, 2));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_options_set_tracker(options, -1));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_options_set_durability_interval(options, 0));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_options_set_create(NULL, true));
    OK(mangrove_app_options_set_create(options, false));
    OK(mangrove_app_options_set_workers(options, 1));

    /* Opening. */
    ANSWERS(MANGROVE_APP_ERR_POOL, mangrove_app_open(state, options, &callbacks, &app));
    CHECK(app == NULL);
    SAYS("there is no pool at");
    OK(mangrove_app_options_set_create(options, true));
    OK(mangrove_app_options_set_block_bytes(options, 33));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_open(state, options, &callbacks, &app));
    OK(mangrove_app_options_set_block_bytes(options, 64));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_open(NULL, options, &callbacks, &app));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_open(state, options, NULL, &app));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_open(state, options, &callbacks, NULL));
    callbacks.bytes = 3;
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_open(state, options, &callbacks, &app));
    SAYS("sizeof(mangrove_app_callbacks)");
    callbacks.bytes = sizeof callbacks;
    callbacks.process = NULL;
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_open(state, options, &callbacks, &app));
    callbacks.process = process;

    /* An initialisation that fails leaves nothing durable: the next run makes the state anew. */
    answer = 5;
    ANSWERS(MANGROVE_APP_ERR_REFUSED, mangrove_app_open(state, options, &callbacks, &app));
    SAYS("returned 5");
    CHECK(app == NULL);
    mangrove_app_options_free(options);
    mangrove_app_options_free(NULL);
    return 0;
}
