// bank: threads transfer money between accounts of a durable heap, and can be killed at any moment.
//
//     c++ -std=c++17 -O2 bank.cpp $(pkg-config --cflags --libs mangrove) -pthread -o bank
//     ./bank HEAP run COUNT [THREADS]   each thread makes COUNT transfers (0: for ever); "< T N" says that the
//                                       N-th transfer of thread T is durable
//     ./bank HEAP check                 says how many transfers there were, and whether any money is missing
//
// This is the way with explicit transactions (mangrove_heap.hpp). `main.cc` is the other one: ordinary containers,
// made durable as they are.
#include <mangrove_heap.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kAccounts = 50, kEach = 1000;
constexpr unsigned kThreadsMax = 16;

struct Account {
    std::uint64_t number, balance;
    Account *next;
};

struct Bank {
    Account *first;
    std::uint64_t transfers[kThreadsMax]; // of each thread
};

struct NotCovered : std::runtime_error {
    NotCovered() : std::runtime_error("the account has less") {}
};

void make(mangrove::tx &tx)
{
    if (tx.root<Bank>("bank") != nullptr) return;
    Bank bank{};
    for (std::uint64_t number = kAccounts; number-- > 0;)
        bank.first = tx.make(Account{number, kEach, bank.first});
    tx.set_root("bank", tx.make(bank));
}

Account *find(mangrove::tx &tx, Bank *bank, std::uint64_t number)
{
    for (Account *at = tx.load(&bank->first); at != nullptr; at = tx.load(&at->next))
        if (tx.load(&at->number) == number) return at;
    throw std::out_of_range("there is no account " + std::to_string(number));
}

// Moves money; the number of the thread's transfer.
std::uint64_t transfer(mangrove::tx &tx, unsigned thread, std::uint64_t from, std::uint64_t to, std::uint64_t amount)
{
    Bank *bank = tx.root<Bank>("bank");
    Account *giver = find(tx, bank, from), *taker = find(tx, bank, to);
    const auto has = tx.load(&giver->balance);
    tx.store(&giver->balance, has - amount);
    if (has < amount) throw NotCovered(); // undoes the store above, too
    tx.store(&taker->balance, tx.load(&taker->balance) + amount);
    const auto count = tx.load(&bank->transfers[thread]) + 1;
    tx.store(&bank->transfers[thread], count);
    return count;
}

void work(const mangrove::heap &heap, unsigned thread, long count)
{
    std::mt19937 random(thread);
    for (long i = 0; count == 0 || i < count; i++) {
        const std::uint64_t from = random() % kAccounts, to = (from + 1 + random() % (kAccounts - 1)) % kAccounts;
        const std::uint64_t amount = random() % 300;
        try {
            const auto done =
                heap.transaction([&](mangrove::tx &tx) { return transfer(tx, thread, from, to, amount); });
            std::printf("< %u %llu\n", thread, static_cast<unsigned long long>(done));
            std::fflush(stdout);
        } catch (const NotCovered &) {
        }
    }
}

int run(int argc, char **argv)
{
    mangrove::heap heap(argv[1]);
    heap.transaction(make);
    if (std::strcmp(argv[2], "run") == 0) {
        const long count = argc > 3 ? std::atol(argv[3]) : 1000;
        const unsigned wanted = argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 4;
        std::vector<std::thread> threads;
        for (unsigned thread = 0; thread < wanted && thread < kThreadsMax; thread++) {
            threads.emplace_back([&heap, thread, count] {
                try {
                    work(heap, thread, count);
                } catch (const std::exception &error) {
                    std::fprintf(stderr, "bank: %s\n", error.what());
                    std::_Exit(1);
                }
            });
        }
        for (auto &thread : threads) thread.join();
    }
    std::uint64_t transfers = 0;
    const auto sum = heap.read([&](mangrove::tx &tx) {
        Bank *bank = tx.root<Bank>("bank");
        std::uint64_t sum = 0;
        for (Account *at = tx.load(&bank->first); at != nullptr; at = tx.load(&at->next)) sum += tx.load(&at->balance);
        transfers = 0; // a body may run again
        for (auto &of_thread : bank->transfers) transfers += tx.load(&of_thread);
        return sum;
    });
    const bool well = sum == kAccounts * kEach;
    std::printf("%llu transfers between %llu accounts: %s\n", static_cast<unsigned long long>(transfers),
                static_cast<unsigned long long>(kAccounts), well ? "all is well" : "money is missing");
    heap.close();
    return well ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: bank HEAP run COUNT [THREADS] | bank HEAP check\n");
        return 2;
    }
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "bank: %s\n", error.what());
        return 1;
    }
}
