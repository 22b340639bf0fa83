/* What the library says about itself and about errors, in words and numbers. */
#include "check.h"
#include <errno.h>

static void process(void *ctx) {
    (void)ctx;
}

static ptrdiff_t deserialize(void *ctx, const void *input, size_t len) {
    (void)ctx, (void)input;
    return (ptrdiff_t)len;
}

static void get_response(void *ctx, mangrove_app_response *response) {
    (void)ctx, (void)response;
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .process = process, .deserialize = deserialize, .get_response = get_response};
    CHECK(argc == 2);

    CHECK(strcmp(mangrove_app_version(), MANGROVE_APP_VERSION) == 0);

    /* Each status has a text of its own; every other number has one and the same. */
    const char *unknown = mangrove_app_status_text(1);
    CHECK(strcmp(unknown, mangrove_app_status_text(-1000)) == 0 && strlen(unknown) > 0);
    for (int a = 0; a >= MANGROVE_APP_ERR_INTERNAL; a--) {
        CHECK(strcmp(mangrove_app_status_text(a), unknown) != 0);
        for (int b = 0; b > a; b--) CHECK(strcmp(mangrove_app_status_text(a), mangrove_app_status_text(b)) != 0);
    }
    CHECK(strcmp(mangrove_app_status_text(MANGROVE_APP_ERR_BROKEN), "a command ended halfway") == 0);

    /* The number of the operating system's error, until the next error. */
    mangrove_app *app;
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    CHECK(mangrove_app_last_os_error() == 0);
    ANSWERS(MANGROVE_APP_ERR_IO, mangrove_app_listen(app, "unix:/there/is/no/such/directory/socket"));
    CHECK(mangrove_app_last_os_error() == ENOENT);
    OK(mangrove_app_sync(app));
    CHECK(mangrove_app_last_os_error() == ENOENT);
    /* Nothing was served, so the next address may be a right one. */
    ANSWERS(MANGROVE_APP_ERR_SERVER, mangrove_app_serve(app));
    SAYS("listens nowhere");
    char address[108];
    CHECK((size_t)snprintf(address, sizeof address, "unix:%s.socket", argv[1]) < sizeof address);
    OK(mangrove_app_listen(app, address));
    ANSWERS(MANGROVE_APP_ERR_INVALID_ARGUMENT, mangrove_app_sync(NULL));
    CHECK(mangrove_app_last_os_error() == 0);
    OK(mangrove_app_close(app));
    return 0;
}
