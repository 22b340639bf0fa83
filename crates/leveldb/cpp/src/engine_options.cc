// engine_options.cc: options in the engine's form, with the program's comparator behind the engine's.

#include "engine_options.h"

#include "engine.h"
#include "leveldb/comparator.h"
#include "leveldb/env.h"
#include "leveldb/slice.h"

namespace leveldb {

Options::Options() : comparator(BytewiseComparator()), env(Env::Default()) {}

namespace {

const Comparator &itself(void *state) { return *static_cast<const Comparator *>(state); }
const Comparator &referred(void *state) { return **static_cast<const Comparator *const *>(state); }

// No exception may pass the engine: it learns that there was one, and refuses what it was about to do.
template <const Comparator &(*comparator)(void *)>
int compare(void *state, const char *a, size_t a_len, const char *b, size_t b_len) {
    try {
        return comparator(state).Compare(Slice(a, a_len), Slice(b, b_len));
    } catch (...) {
        mangrove_leveldb_comparator_threw();
        return Slice(a, a_len).compare(Slice(b, b_len));
    }
}

// The engine refuses a comparator without a name.
template <const Comparator &(*comparator)(void *)>
const char *name(void *state) {
    try {
        return comparator(state).Name();
    } catch (...) {
        return nullptr;
    }
}

void nothing(void *) {}

} // namespace

EngineOptions::EngineOptions(const Options &options, const Comparator *const *through)
    : options_(leveldb_options_create()) {
    leveldb_options_set_create_if_missing(options_, options.create_if_missing);
    leveldb_options_set_error_if_exists(options_, options.error_if_exists);
    leveldb_options_set_paranoid_checks(options_, options.paranoid_checks);
    if (options.comparator == BytewiseComparator()) return;
    comparator_ = through == nullptr
                      ? leveldb_comparator_create(const_cast<Comparator *>(options.comparator), nothing,
                                                  compare<itself>, name<itself>)
                      : leveldb_comparator_create(const_cast<const Comparator **>(through), nothing,
                                                  compare<referred>, name<referred>);
    leveldb_options_set_comparator(options_, comparator_);
}

EngineOptions::~EngineOptions() {
    // The engine keeps the function and its state, and not this object.
    if (comparator_ != nullptr) leveldb_comparator_destroy(comparator_);
    leveldb_options_destroy(options_);
}

} // namespace leveldb
