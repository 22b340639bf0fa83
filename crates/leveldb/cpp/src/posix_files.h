// posix_files.h: files of the operating system, as environments hand them out.
#ifndef MANGROVE_LEVELDB_POSIX_FILES_H
#define MANGROVE_LEVELDB_POSIX_FILES_H

#include <string>

#include "leveldb/env.h"

namespace leveldb {

// The error `number` of the operating system, about `name`.
Status posix_error(const std::string &name, int number);

Status open_sequential(const std::string &fname, SequentialFile **result);
Status open_random_access(const std::string &fname, RandomAccessFile **result);
// With `flags` beyond O_WRONLY: O_TRUNC to write the file anew, O_APPEND to continue it.
Status open_writable(const std::string &fname, int flags, WritableFile **result);
Status open_logger(const std::string &fname, Logger **result);

} // namespace leveldb

#endif
