// options.h: how to open a database, how to read, how to write.
//
// Programs make these structures themselves and read and write their fields, so no field ever moves.
#ifndef MANGROVE_LEVELDB_OPTIONS_H
#define MANGROVE_LEVELDB_OPTIONS_H

#include <cstddef>

#include "leveldb/export.h"

namespace leveldb {

class Cache;
class Comparator;
class Env;
class FilterPolicy;
class Logger;
class Snapshot;

// How LevelDB compresses its files.
enum CompressionType { kNoCompression = 0x0, kSnappyCompression = 0x1 };

// How to open a database. Those that control LevelDB's files and caches are accepted and not read.
struct LEVELDB_EXPORT Options {
    // The default of every field.
    Options();

    // The order of the keys, BytewiseComparator() at first. It must live as long as the database is open, and a
    // database is opened with the comparator that it was created with.
    const Comparator *comparator;

    // Create the database when there is none; refuse one that is there.
    bool create_if_missing = false;
    bool error_if_exists = false;

    // Read every record against its checksums when the database is opened.
    bool paranoid_checks = false;

    // Env::Default(), or an environment of NewMemEnv(); a database is refused with any other.
    Env *env;

    // Not read: this library logs nothing.
    Logger *info_log = nullptr;

    // Not read: nothing is buffered before it is sorted.
    size_t write_buffer_size = 4 << 20;

    // Not read: a database has few files.
    int max_open_files = 1000;

    // Not read: all records are in memory.
    Cache *block_cache = nullptr;

    // Not read: there are no blocks, no tables, and nothing is compressed.
    size_t block_size = 4 << 10;
    int block_restart_interval = 16;
    size_t max_file_size = 2 << 20;
    CompressionType compression = kSnappyCompression;

    // Not read: the log is always continued.
    bool reuse_logs = false;

    // Not read: no read searches a disk.
    const FilterPolicy *filter_policy = nullptr;
};

// How to read.
struct LEVELDB_EXPORT ReadOptions {
    ReadOptions() = default;

    // Not read: checksums are always verified, and there is no cache.
    bool verify_checksums = false;
    bool fill_cache = true;

    // The instant to read from; null is now.
    const Snapshot *snapshot = nullptr;
};

// How to write.
struct LEVELDB_EXPORT WriteOptions {
    WriteOptions() = default;

    // True: a write is durable when it returns. False: it survives the end of the process, and is durable soon.
    bool sync = false;
};

} // namespace leveldb

#endif
