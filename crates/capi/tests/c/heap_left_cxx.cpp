// C++ exceptions out of a body that was given to the C function, and the end of a thread in a C++ body. With each
// executor whose threads wait for others that are in a transaction.
#include "heap.h"
#include <mangrove_heap.hpp>

#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <thread>

static mangrove_heap *heap;
static std::uint64_t *cell;

static int make(mangrove_tx *tx, void *)
{
    return mangrove_tx_alloc_zeroed(tx, sizeof *cell, 0, reinterpret_cast<void **>(&cell));
}

static std::uint64_t value()
{
    return mangrove::read(heap, [](mangrove::tx &tx) { return tx.load(cell); });
}

static std::uint64_t expected;

static void undone_and_free()
{
    CHECK(value() == expected);
    expected++;
    const auto add = [](mangrove::tx &tx) { tx.store(cell, tx.load(cell) + 1); };
    std::thread([&] { mangrove::transaction(heap, add); }).join();
    CHECK(value() == expected);
}

static int destroyed;

struct witness {
    ~witness() { destroyed++; }
};

static int write_and_throw(mangrove_tx *tx, void *what)
{
    const witness here;
    CHECK(mangrove_tx_store(tx, cell, 999) == MANGROVE_OK);
    throw *static_cast<int *>(what);
}

static void exceptions()
{
    destroyed = 0;
    for (int round = 0; round < 20; round++) {
        int caught = -1;
        try {
            const witness caller;
            mangrove_transaction(heap, write_and_throw, &round, nullptr);
            CHECK(!"returned");
        } catch (int what) {
            caught = what;
        }
        CHECK(caught == round && destroyed == 2 * (round + 1));
        undone_and_free();
    }
    // Inside of a catch, and with a transaction on the way of another exception.
    struct ends {
        ~ends() { undone_and_free(); }
    };
    try {
        const ends here;
        int seven = 7;
        mangrove_transaction(heap, write_and_throw, &seven, nullptr);
    } catch (int what) {
        CHECK(what == 7);
        undone_and_free();
    }
}

static void *end_inside(void *arg)
{
    const witness here;
    mangrove::transaction(heap, [arg](mangrove::tx &tx) {
        const witness inside;
        tx.store(cell, std::uint64_t{999});
        pthread_exit(arg);
    });
    return nullptr;
}

static void ends_of_threads()
{
    destroyed = 0;
    for (int round = 0; round < 10; round++) {
        pthread_t thread;
        void *answer;
        CHECK(pthread_create(&thread, nullptr, end_inside, &destroyed) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == &destroyed);
        CHECK(destroyed == 2 * (round + 1));
        undone_and_free();
    }
}

static int add(mangrove_tx *tx, void *)
{
    std::uint64_t now;
    const int loaded = mangrove_tx_load(tx, cell, &now);
    return loaded == MANGROVE_OK ? mangrove_tx_store(tx, cell, now + 1) : loaded;
}

static int refused_at_the_end;

static void add_at_the_end(void *)
{
    ANSWERS(MANGROVE_ERR_TX_MISPLACED, mangrove_transaction(heap, add, nullptr, nullptr));
    CHECK(std::strstr(mangrove_last_error(), "thread is ending") != nullptr);
    refused_at_the_end++;
}

struct session {
    bool begun = false;
    ~session()
    {
        if (begun) add_at_the_end(nullptr);
    }
};

static thread_local session of_thread;

// What destroys a thread's variables may come when the heap's own of that thread have gone.
static void destructors_of_threads()
{
    pthread_key_t key;
    const std::uint64_t before = value();
    refused_at_the_end = 0;
    CHECK(pthread_key_create(&key, add_at_the_end) == 0);
    for (const bool by_key : {true, false}) {
        std::thread([&] {
            if (by_key) CHECK(pthread_setspecific(key, &key) == 0);
            else of_thread.begun = true;
            ANSWERS(MANGROVE_OK, mangrove_transaction(heap, add, nullptr, nullptr));
        }).join();
    }
    CHECK(refused_at_the_end == 2 && value() == before + 2);
    CHECK(pthread_key_delete(key) == 0);
}

static void by(const heap_way &way, const char *folder)
{
    std::fprintf(stderr, "with %s\n", way.name);
    heap = open_heap_by(&way, below(folder, way.name));
    if (heap == nullptr) {
        std::fprintf(stderr, "not here: %s\n", mangrove_last_error());
        return;
    }
    expected = 0;
    ANSWERS(MANGROVE_OK, mangrove_transaction(heap, make, nullptr, nullptr));
    exceptions();
    ends_of_threads();
    destructors_of_threads();
    ANSWERS(MANGROVE_OK, mangrove_heap_close(heap));
}

int main(int argc, char **argv)
{
    const char *folder = scratch_of(argc, argv);
    for (const heap_way &way : heap_ways) by(way, folder);
    return 0;
}
