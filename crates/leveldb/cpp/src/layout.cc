// layout.cc: what programs have compiled into them, and may never move. Each line is LevelDB 1.23's on 64-bit
// machines. The order of virtual functions is not visible here: tests/cpp/classes.cc calls each one through LevelDB's
// own headers.

#include <cstddef>

#include "leveldb/cache.h"
#include "leveldb/comparator.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

namespace leveldb {

// A friend of the classes whose members it looks at.
struct Layout {
    static_assert(sizeof(Slice) == 16);
    static_assert(offsetof(Slice, data_) == 0 && offsetof(Slice, size_) == 8);
    static_assert(sizeof(Range) == 32);

    static_assert(sizeof(Status) == 8);
    static_assert(Status::kOk == 0 && Status::kNotFound == 1 && Status::kCorruption == 2);
    static_assert(Status::kNotSupported == 3 && Status::kInvalidArgument == 4 && Status::kIOError == 5);

    static_assert(sizeof(Options) == 96);
    static_assert(offsetof(Options, comparator) == 0);
    static_assert(offsetof(Options, create_if_missing) == 8);
    static_assert(offsetof(Options, error_if_exists) == 9);
    static_assert(offsetof(Options, paranoid_checks) == 10);
    static_assert(offsetof(Options, env) == 16);
    static_assert(offsetof(Options, info_log) == 24);
    static_assert(offsetof(Options, write_buffer_size) == 32);
    static_assert(offsetof(Options, max_open_files) == 40);
    static_assert(offsetof(Options, block_cache) == 48);
    static_assert(offsetof(Options, block_size) == 56);
    static_assert(offsetof(Options, block_restart_interval) == 64);
    static_assert(offsetof(Options, max_file_size) == 72);
    static_assert(offsetof(Options, compression) == 80);
    static_assert(offsetof(Options, reuse_logs) == 84);
    static_assert(offsetof(Options, filter_policy) == 88);
    static_assert(kNoCompression == 0 && kSnappyCompression == 1);

    static_assert(sizeof(ReadOptions) == 16);
    static_assert(offsetof(ReadOptions, verify_checksums) == 0);
    static_assert(offsetof(ReadOptions, fill_cache) == 1);
    static_assert(offsetof(ReadOptions, snapshot) == 8);
    static_assert(sizeof(WriteOptions) == 1);

    static_assert(sizeof(WriteBatch) == sizeof(std::string));

    // A pointer to the virtual functions, and what each class adds.
    static_assert(sizeof(Iterator) == 8 + 4 * 8);
    static_assert(sizeof(Iterator::CleanupNode) == 4 * 8);
    static_assert(offsetof(Iterator::CleanupNode, next) == 24);
    static_assert(sizeof(Cache) == 8 + 8);
    static_assert(sizeof(EnvWrapper) == 8 + 8);
    static_assert(sizeof(DB) == 8 && sizeof(Snapshot) == 8 && sizeof(WriteBatch::Handler) == 8);
    static_assert(sizeof(Comparator) == 8 && sizeof(FilterPolicy) == 8 && sizeof(Env) == 8);
    static_assert(sizeof(SequentialFile) == 8 && sizeof(RandomAccessFile) == 8 && sizeof(WritableFile) == 8);
    static_assert(sizeof(Logger) == 8 && sizeof(FileLock) == 8);
};

} // namespace leveldb
