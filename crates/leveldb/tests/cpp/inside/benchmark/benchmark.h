// benchmark.h: stands in for the library of that name where LevelDB's own tests are compiled: it compiles benchmarks
// away.
#ifndef INSIDE_BENCHMARK_H
#define INSIDE_BENCHMARK_H

#include <cstdint>

namespace benchmark {

class State {
public:
    int range(int) const { return 0; }
    uint64_t iterations() const { return 0; }
    const int *begin() const { return nullptr; }
    const int *end() const { return nullptr; }
};

inline void RunSpecifiedBenchmarks() {}

struct Registered {
    Registered *Arg(int) { return this; }
};

} // namespace benchmark

#define BENCHMARK(function) [[maybe_unused]] static benchmark::Registered *registered = (new benchmark::Registered)

#endif
