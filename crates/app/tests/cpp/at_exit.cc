// The process ends while the state is open: a container of the state is destroyed, and a command still comes after
// that. The next run finds the container whole, and may fill what is free.
//
//   at_exit STATE    checks the container, adds to it, prints how much there is, and ends by a return from main
#include <mangrove_app.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>

static mangrove_app *app;
static mangrove_app_client *client;
static unsigned long late; // commands after the end of main, ever

static void require(bool well, int code) {
    if (well) return;
    fprintf(stderr, "not so (%d): %s\n", code, mangrove_app_last_error());
    _Exit(code);
}

static void count(void *) { late++; }

// Made before the table, so destroyed after it.
struct Last {
    ~Last() {
        if (client == nullptr) return;
        mangrove_app_counters counters{};
        require(mangrove_app_stat(app, &counters, sizeof counters) == MANGROVE_APP_OK, 11);
        require(counters.waiting_frees == 0, 12);
        require(mangrove_app_write(client, count, nullptr) == MANGROVE_APP_OK, 13);
    }
};
static Last last;
static std::map<unsigned long, std::string> table;

static std::string text(unsigned long n) { return std::string(100 + n % 50, char('a' + n % 26)); }

static void process(void *) {
    for (int i = 0; i < 200; i++) {
        unsigned long n = table.size();
        table[n] = text(n);
    }
}

static void check(void *ctx) {
    unsigned long n = 0;
    bool well = true;
    for (const auto &entry : table) {
        well = well && entry.first == n && entry.second == text(n);
        n++;
    }
    *static_cast<bool *>(ctx) = well && n == table.size();
}

int main(int argc, char **argv) {
    if (argc != 2) return 9;
    // A tree that is damaged may have no end.
    alarm(300);
    mangrove_app_callbacks callbacks{};
    callbacks.bytes = sizeof callbacks;
    callbacks.process = process;
    require(mangrove_app_open(argv[1], nullptr, &callbacks, &app) == MANGROVE_APP_OK, 2);
    require(mangrove_app_client_new(app, &client) == MANGROVE_APP_OK, 3);
    for (int round = 0; round < 2; round++) {
        bool well = false;
        require(mangrove_app_read(client, check, &well) == MANGROVE_APP_OK && well, 4);
        require(mangrove_app_cmd(client, nullptr) == MANGROVE_APP_OK, 5);
    }
    printf("%zu entries, %lu late\n", table.size(), late);
    return 0;
}
