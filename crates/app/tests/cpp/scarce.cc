// `operator new` for the tests of the C++ example: memory ends after so many allocations.
#include <mangrove_app.h>

#include "scarce.h"

#include <cstdlib>
#include <new>

// Thread-local, and so no part of the state: commands count it down.
thread_local long allocations_left = -1;

static long allocations_of_commands()
{
    const char *text = std::getenv("ALLOCATIONS");
    return text == nullptr ? -1 : std::atol(text);
}

static thread_local long left_to_commands = allocations_of_commands();

static bool takes_the_last(long &left)
{
    return left >= 0 && left-- == 0;
}

void *operator new(std::size_t bytes)
{
    if (takes_the_last(allocations_left) || (mangrove_app_is_inside() && takes_the_last(left_to_commands)))
        throw std::bad_alloc();
    if (void *block = std::malloc(bytes))
        return block;
    throw std::bad_alloc();
}

void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }
