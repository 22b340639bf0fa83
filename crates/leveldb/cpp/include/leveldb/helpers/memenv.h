// memenv.h: an environment whose files and databases are in memory.
#ifndef MANGROVE_LEVELDB_HELPERS_MEMENV_H
#define MANGROVE_LEVELDB_HELPERS_MEMENV_H

#include "leveldb/export.h"

namespace leveldb {

class Env;

// An environment in whose files and databases nothing is durable: they are in this process's memory, in no file
// system, and gone when the environment is deleted. Threads and time are those of `base_env`, which must live as
// long.
LEVELDB_EXPORT Env *NewMemEnv(Env *base_env);

} // namespace leveldb

#endif
