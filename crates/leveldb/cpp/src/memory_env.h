// memory_env.h: the environment of NewMemEnv(), as databases see it.
#ifndef MANGROVE_LEVELDB_MEMORY_ENV_H
#define MANGROVE_LEVELDB_MEMORY_ENV_H

#include <memory>
#include <string>

#include "leveldb/c.h"
#include "leveldb/comparator.h"
#include "leveldb/env.h"
#include "leveldb/options.h"

namespace leveldb {

// A database of an environment. It stays when it is closed, as files would.
struct MemoryDatabase {
    MemoryDatabase(const Comparator *comparator, const std::string &comparator_name)
        : comparator(comparator), comparator_name(comparator_name) {}
    ~MemoryDatabase() { leveldb_close(engine); }

    MemoryDatabase(const MemoryDatabase &) = delete;
    MemoryDatabase &operator=(const MemoryDatabase &) = delete;

    leveldb_t *engine = nullptr;
    // The comparator that the database was last opened with, and the name of all of them.
    const Comparator *comparator;
    const std::string comparator_name;
    bool is_open = false;
};

// The databases of the environments that NewMemEnv() made. An environment that may be a program's own is never
// followed, only compared.
bool is_memory_env(const Env *env);
// Opens the database `name` of the options' environment.
Status open_in_memory(const Options &options, const std::string &name, std::shared_ptr<MemoryDatabase> *database);
// Marks a database as closed.
void close_in_memory(MemoryDatabase *database);
// Removes the database `name`, unless it is open.
Status destroy_in_memory(const Options &options, const std::string &name);

} // namespace leveldb

#endif
