// engine_options.h: options in the engine's form.
#ifndef MANGROVE_LEVELDB_ENGINE_OPTIONS_H
#define MANGROVE_LEVELDB_ENGINE_OPTIONS_H

#include "leveldb/c.h"
#include "leveldb/options.h"

namespace leveldb {

// The options that the engine reads. Nothing else of `Options` is ever looked at.
class EngineOptions {
public:
    // The engine calls the options' comparator; or, if `through` is not null, the one that it refers to at the time.
    explicit EngineOptions(const Options &options, const Comparator *const *through = nullptr);
    ~EngineOptions();

    EngineOptions(const EngineOptions &) = delete;
    EngineOptions &operator=(const EngineOptions &) = delete;

    const leveldb_options_t *get() const { return options_; }

private:
    leveldb_options_t *options_;
    // Null for the order byte by byte.
    leveldb_comparator_t *comparator_ = nullptr;
};

} // namespace leveldb

#endif
