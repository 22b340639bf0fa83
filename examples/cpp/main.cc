// The bank, durable: the page of glue between `bank.h` and Mangrove.
//
//     bank DIR run COUNT [SEED]   makes COUNT random transfers (0: for ever); "< N" says that N is durable
//     bank DIR check              says what is there, and whether it is whole
#include "bank.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>

#include <mangrove_app.h>

// What is persistent hangs on this pointer. It is a variable that a command writes (make_bank), so it is part of
// the state as well, and leads to the same bank after each start.
static Bank *bank;

namespace {

constexpr int kAccounts = 50;
constexpr std::size_t kJournal = 2000;

std::string account(unsigned number)
{
    return "account number " + std::to_string(number % kAccounts);
}

int make_bank(void *) noexcept
{
    try {
        bank = new Bank;
        for (unsigned i = 0; i < kAccounts; i++)
            bank->open_account(account(i), 1000);
        return 0;
    } catch (const std::exception &) {
        return 1;
    }
}

struct Command {
    unsigned from, to;
    std::int64_t amount;
    std::uint64_t number; // the answer: 0 when the bank said no
};

// An exception that the bank throws to say no is caught in the command: none may leave it. Any other, such as
// bad_alloc, ends the process here, and so nothing of the command is committed.
void process(void *context) noexcept
{
    auto *command = static_cast<Command *>(context);
    command->number = 0;
    try {
        command->number = bank->transfer(account(command->from), account(command->to), command->amount);
    } catch (const std::logic_error &) {
    } catch (const std::runtime_error &) {
    }
    bank->forget(kJournal);
}

void audit(void *context) noexcept
{
    *static_cast<std::string *>(context) = bank->audit();
}

[[noreturn]] void fail(const char *doing)
{
    std::fprintf(stderr, "cannot %s: %s\n", doing, mangrove_app_last_error());
    std::exit(1);
}

void run(mangrove_app_client *client, long count, unsigned seed)
{
    std::mt19937 random(seed);
    for (long i = 0; count == 0 || i < count; i++) {
        Command command{static_cast<unsigned>(random()), static_cast<unsigned>(random()),
                        static_cast<std::int64_t>(random() % 300), 0};
        if (mangrove_app_cmd(client, &command) != MANGROVE_APP_OK)
            fail("transfer");
        if (command.number != 0) {
            std::printf("< %llu\n", static_cast<unsigned long long>(command.number));
            std::fflush(stdout);
        }
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: bank DIR run COUNT [SEED] | bank DIR check\n");
        return 2;
    }
    mangrove_app_callbacks callbacks{};
    callbacks.bytes = sizeof callbacks;
    callbacks.process = process;
    callbacks.init_state = make_bank;
    mangrove_app *app;
    mangrove_app_client *client;
    if (mangrove_app_open(argv[1], nullptr, &callbacks, &app) != MANGROVE_APP_OK)
        fail("open the bank");
    if (mangrove_app_client_new(app, &client) != MANGROVE_APP_OK)
        fail("make a client");
    if (std::strcmp(argv[2], "run") == 0)
        run(client, argc > 3 ? std::atol(argv[3]) : 1000, argc > 4 ? std::atoi(argv[4]) : 1);
    std::string complaint;
    if (mangrove_app_read(client, audit, &complaint) != MANGROVE_APP_OK)
        fail("read");
    std::printf("%llu transfers between %zu accounts: %s\n",
                static_cast<unsigned long long>(bank->last_transfer()), bank->account_count(),
                complaint.empty() ? "all is well" : complaint.c_str());
    mangrove_app_client_free(client);
    if (mangrove_app_close(app) != MANGROVE_APP_OK)
        fail("close the bank");
    return complaint.empty() ? 0 : 1;
}
