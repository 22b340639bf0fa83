// A global whose constructor allocates before the state is opened: what commands put there is lost, and the audit
// says so.
#include <mangrove_app.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>

static std::deque<int> early;            // its constructor allocates, outside commands
static std::map<int, int> fine;          // its constructor does not
static std::deque<int> *made_in_time;    // made by init_state
static std::uintptr_t *number;           // looks like an address after the state, where nothing lies yet

static int init_state(void *) {
    made_in_time = new std::deque<int>();
    number = new std::uintptr_t(reinterpret_cast<std::uintptr_t>(made_in_time) + (std::uintptr_t(1) << 30));
    return 0;
}

static void process(void *ctx) {
    if (ctx != nullptr) early.push_back(1);
    made_in_time->push_back(int(made_in_time->size()));
    fine[int(fine.size())] = 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return 9;
    mangrove_app_callbacks callbacks{};
    callbacks.bytes = sizeof callbacks;
    callbacks.process = process;
    callbacks.init_state = init_state;
    mangrove_app *app;
    mangrove_app_client *client;
    if (mangrove_app_open(argv[1], nullptr, &callbacks, &app) != MANGROVE_APP_OK ||
        mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) {
        fprintf(stderr, "%s\n", mangrove_app_last_error());
        return 2;
    }
    for (int i = 0; i < 300; i++) {
        if (mangrove_app_cmd(client, argc > 2 ? argv[2] : nullptr) != MANGROVE_APP_OK) return 3;
    }
    for (size_t i = 0; i < made_in_time->size(); i++) {
        if ((*made_in_time)[i] != int(i) || fine.at(int(i)) != 1) return 4;
    }
    printf("%zu\n", made_in_time->size());
    mangrove_app_client_free(client);
    return mangrove_app_close(app) == MANGROVE_APP_OK ? 0 : 5;
}
