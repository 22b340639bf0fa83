// mangrove_heap.hpp: answers, exceptions, types, threads.
#include "check.h"
#include <mangrove_heap.hpp>

#include <memory>
#include <string>
#include <thread>
#include <vector>

struct node {
    std::uint64_t value;
    node *next;
};

struct odd {
    char bytes[13];
};

struct not_covered {
    int by;
};

static node *first;

static void answers(const std::string &path)
{
    mangrove::heap heap(path);
    first = heap.transaction([](mangrove::tx &tx) {
        CHECK(tx.root<node>("first") == nullptr);
        node *second = tx.make(node{2, nullptr});
        node *one = tx.make(node{1, second});
        tx.set_root("first", one);
        return one;
    });
    heap.transaction([](mangrove::tx &tx) { // of no answer
        const node now = tx.load(first);
        tx.store(&now.next->value, tx.load(&now.next->value) + 40);
        tx.set_root("odd", tx.make(odd{"twelve bytes"}));
        bool *flags = tx.make_array<bool>(3);
        CHECK(!tx.load(&flags[2]));
        tx.store(&flags[2], true);
        CHECK(tx.load(&flags[2]) && !tx.load(&flags[1]));
        tx.free(flags);
    });
    // An answer without a default constructor, that moves only.
    struct answer {
        std::unique_ptr<std::uint64_t> value;
        explicit answer(std::uint64_t of) : value(new std::uint64_t(of)) {}
    };
    const answer got = heap.read([](mangrove::tx &tx) { return answer(tx.load(&tx.load(&first->next)->value)); });
    CHECK(*got.value == 42);
    heap.close();
    mangrove::heap again(path);
    const node now = mangrove::transaction(again, [](mangrove::tx &tx) { return tx.load(tx.root<node>("first")); });
    CHECK(now.value == 1);
    const odd text = again.read([](mangrove::tx &tx) { return tx.load(tx.root<odd>("odd")); });
    CHECK(std::string(text.bytes) == "twelve bytes");
    mangrove::heap moved(std::move(again));
    CHECK(again.handle() == nullptr);
    CHECK(moved.transaction([](mangrove::tx &tx) { return tx.remove_root("odd") && !tx.remove_root("odd"); }));
}

template <class Call> static mangrove_status error_of(Call call, const char *words)
{
    try {
        call();
    } catch (const mangrove::error &error) {
        CHECK(std::string(error.what()).find(words) != std::string::npos);
        return error.status();
    }
    return MANGROVE_OK;
}

static void exceptions(const std::string &path)
{
    mangrove::heap heap(path);
    const auto value = [&] { return heap.read([](mangrove::tx &tx) { return tx.load(&first->value); }); };
    mangrove_tx *ended = nullptr;
    int thrown = 0;
    try {
        heap.transaction([&](mangrove::tx &tx) {
            ended = tx.handle();
            tx.store(&first->value, 99);
            if (tx.load(&first->value) == 99) throw not_covered{7};
        });
    } catch (const not_covered &caught) {
        thrown = caught.by;
    }
    CHECK(thrown == 7 && value() == 1);

    // An error in the body undoes all, and reaches the caller; also where the body hides it.
    CHECK(error_of([&] { heap.transaction([](mangrove::tx &tx) { tx.store(&first->value, 99), tx.free(&tx); }); },
                   "no block") == MANGROVE_ERR_INVALID_ARGUMENT);
    CHECK(value() == 1);
    const auto hidden = [](mangrove::tx &tx) {
        tx.store(&first->value, 99);
        try {
            tx.load(static_cast<node *>(nullptr));
            CHECK(!"reached");
        } catch (const std::exception &) {
        }
    };
    CHECK(error_of([&] { heap.transaction(hidden); }, "not in the heap") == MANGROVE_ERR_INVALID_ARGUMENT);
    CHECK(value() == 1);
    const auto late = [&] { mangrove::tx(ended).store(&first->value, 3); };
    CHECK(error_of(late, "has ended") == MANGROVE_ERR_TX_MISPLACED);
    CHECK(value() == 1);
    // So do sizes and names that the library cannot be given as they are.
    const auto refused = [&](mangrove_status status, const char *words, auto access) {
        const auto passed = [&](mangrove::tx &tx) { tx.store(&first->value, 99), access(tx); };
        CHECK(error_of([&] { heap.transaction(passed); }, words) == status);
        const auto hidden = [&](mangrove::tx &tx) { CHECK(error_of([&] { passed(tx); }, words) == status); };
        CHECK(error_of([&] { heap.transaction(hidden); }, words) == status);
        CHECK(value() == 1);
    };
    refused(MANGROVE_ERR_FULL, "no room", [](mangrove::tx &tx) { tx.alloc(SIZE_MAX); });
    refused(MANGROVE_ERR_FULL, "no room", [](mangrove::tx &tx) { tx.make_array<node>(SIZE_MAX); });
    refused(MANGROVE_ERR_FULL, "no room", [](mangrove::tx &tx) { tx.make_array<node>(SIZE_MAX / 2); });
    refused(MANGROVE_ERR_FULL, "no room", [](mangrove::tx &tx) { tx.make_array<char>(SIZE_MAX - 1); });
    refused(MANGROVE_ERR_FULL, "no room", [](mangrove::tx &tx) { tx.make_array<node>(SIZE_MAX / 16 + 2); });
    for (const std::string &name : {std::string("first\0", 6), std::string("\0first", 6), std::string("fi\0rst", 6)}) {
        refused(MANGROVE_ERR_INVALID_ARGUMENT, "NUL", [&](mangrove::tx &tx) { tx.root<node>(name); });
        refused(MANGROVE_ERR_INVALID_ARGUMENT, "NUL", [&](mangrove::tx &tx) { tx.set_root(name, first); });
        refused(MANGROVE_ERR_INVALID_ARGUMENT, "NUL", [&](mangrove::tx &tx) { tx.remove_root(name); });
        CHECK(error_of([&] { mangrove::heap other(path + name); }, "NUL") == MANGROVE_ERR_INVALID_ARGUMENT);
    }
    const node *kept = heap.read([](mangrove::tx &tx) { return tx.root<node>("first"); });
    CHECK(kept == first);
    const auto nested = [&](mangrove::tx &) { value(); };
    CHECK(error_of([&] { heap.transaction(nested); }, "use its `tx`") == MANGROVE_ERR_TX_MISPLACED);
    const auto closes = [&](mangrove::tx &) { heap.close(); };
    CHECK(error_of([&] { heap.transaction(closes); }, "inside") == MANGROVE_ERR_IN_USE);
    CHECK(error_of([&] { mangrove::heap other(path); }, "in use") == MANGROVE_ERR_POOL_BUSY);
    CHECK(value() == 1);
}

// Counters of threads that meet all the time; some catch everything that passes, as careless programs do. A thread
// waits by retry for the last of them.
static void threads(const std::string &path)
{
    constexpr std::uint64_t kThreads = 4, kRounds = 200;
    mangrove::heap heap(path);
    heap.transaction([](mangrove::tx &tx) { tx.store(&first->value, 0); });
    std::vector<std::thread> all;
    for (std::uint64_t thread = 0; thread < kThreads; thread++) {
        all.emplace_back([&, thread] {
            for (std::uint64_t i = 0; i < kRounds; i++) {
                heap.transaction([&](mangrove::tx &tx) {
                    if (thread % 2 == 0) return tx.store(&first->value, tx.load(&first->value) + 1);
                    try {
                        tx.store(&first->value, tx.load(&first->value) + 1);
                    } catch (...) {
                    }
                });
            }
        });
    }
    const auto last = heap.transaction([&](mangrove::tx &tx) {
        const auto now = tx.load(&first->value);
        if (now < kThreads * kRounds) tx.retry();
        return now;
    });
    CHECK(last == kThreads * kRounds);
    for (auto &thread : all) thread.join();
    heap.close();
}

int main(int argc, char **argv)
{
    const std::string path = below(scratch_of(argc, argv), "heap");
    answers(path);
    exceptions(path);
    threads(path);
    return 0;
}
