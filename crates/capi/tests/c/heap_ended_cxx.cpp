// Threads that end inside of a C++ body, by pthread_exit and by a cancellation.
#include "heap.h"
#include <mangrove_heap.hpp>

#include <pthread.h>
#include <semaphore.h>

static mangrove::heap *heap;
static std::uint64_t *cell;
static sem_t inside;

static void *end_inside(void *is_cancelled)
{
    heap->transaction([is_cancelled](mangrove::tx &tx) {
        tx.store(cell, std::uint64_t{999});
        if (is_cancelled == nullptr) pthread_exit(nullptr);
        sem_post(&inside);
        for (;;) pthread_testcancel();
    });
    return nullptr;
}

int main(int argc, char **argv)
{
    mangrove::heap opened(below(scratch_of(argc, argv), "heap"));
    heap = &opened;
    cell = heap->transaction([](mangrove::tx &tx) { return tx.make<std::uint64_t>(7); });
    CHECK(sem_init(&inside, 0, 0) == 0);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        const bool is_cancelled = round % 2 == 1;
        CHECK(pthread_create(&thread, nullptr, end_inside, is_cancelled ? &inside : nullptr) == 0);
        if (is_cancelled) {
            while (sem_wait(&inside) != 0) continue;
            CHECK(pthread_cancel(thread) == 0);
        }
        CHECK(pthread_join(thread, nullptr) == 0);
        CHECK(heap->read([](mangrove::tx &tx) { return tx.load(cell); }) == 7);
    }
    return 0;
}
