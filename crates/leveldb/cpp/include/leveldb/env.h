// env.h: files, threads and time.
//
// A database uses the operating system itself, and calls no environment. Env::Default() is a whole one for programs
// that use it by itself; with an environment of a program's own a database is refused (docs/leveldb.md).
#ifndef MANGROVE_LEVELDB_ENV_H
#define MANGROVE_LEVELDB_ENV_H

#include <cstdarg>
#include <cstdint>
#include <string>
#include <vector>

#include "leveldb/export.h"
#include "leveldb/status.h"

namespace leveldb {

class FileLock;
class Logger;
class RandomAccessFile;
class SequentialFile;
class WritableFile;

// Any number of threads may use an environment at a time. Functions that return a status also set their result to
// null, false or nothing when they fail; a file that does not exist is NotFound.
class LEVELDB_EXPORT Env {
public:
    Env();

    Env(const Env &) = delete;
    Env &operator=(const Env &) = delete;

    virtual ~Env();

    // The operating system. It is never deleted.
    static Env *Default();

    // Open a file to read it from front to back, to read it anywhere, to write it anew, or to continue it. The caller
    // deletes it.
    virtual Status NewSequentialFile(const std::string &fname, SequentialFile **result) = 0;
    virtual Status NewRandomAccessFile(const std::string &fname, RandomAccessFile **result) = 0;
    virtual Status NewWritableFile(const std::string &fname, WritableFile **result) = 0;
    // Not supported, unless a class says how.
    virtual Status NewAppendableFile(const std::string &fname, WritableFile **result);

    virtual bool FileExists(const std::string &fname) = 0;

    // Stores the names in a directory, without the directory's own name before them.
    virtual Status GetChildren(const std::string &dir, std::vector<std::string> *result) = 0;

    // Removes a file. A class overrides this function or the next, its older name: each calls the other.
    virtual Status RemoveFile(const std::string &fname);
    virtual Status DeleteFile(const std::string &fname);

    virtual Status CreateDir(const std::string &dirname) = 0;

    // Removes a directory. A class overrides this function or the next, its older name: each calls the other.
    virtual Status RemoveDir(const std::string &dirname);
    virtual Status DeleteDir(const std::string &dirname);

    virtual Status GetFileSize(const std::string &fname, uint64_t *file_size) = 0;

    virtual Status RenameFile(const std::string &src, const std::string &target) = 0;

    // Locks a file, which is created when it is missing, against other processes and other callers in this one. Fails
    // at once when the file is locked. The end of the process unlocks it.
    virtual Status LockFile(const std::string &fname, FileLock **lock) = 0;

    // Lets go of a lock, and deletes it.
    virtual Status UnlockFile(FileLock *lock) = 0;

    // Has `function(arg)` called once, in a background thread.
    virtual void Schedule(void (*function)(void *arg), void *arg) = 0;

    // Starts a thread that calls `function(arg)` and ends.
    virtual void StartThread(void (*function)(void *arg), void *arg) = 0;

    // Stores the name of a directory for tests, the same each time.
    virtual Status GetTestDirectory(std::string *path) = 0;

    // Opens a file for messages. The caller deletes it.
    virtual Status NewLogger(const std::string &fname, Logger **result) = 0;

    // Microseconds since an instant that does not change.
    virtual uint64_t NowMicros() = 0;

    virtual void SleepForMicroseconds(int micros) = 0;
};

// A file that is read from front to back, by one thread at a time.
class LEVELDB_EXPORT SequentialFile {
public:
    SequentialFile() = default;

    SequentialFile(const SequentialFile &) = delete;
    SequentialFile &operator=(const SequentialFile &) = delete;

    virtual ~SequentialFile();

    // Reads up to `n` bytes; fewer only at the end. `*result` is what was read, perhaps in `scratch`, which has space
    // for `n` bytes.
    virtual Status Read(size_t n, Slice *result, char *scratch) = 0;

    // Goes `n` bytes on, at most to the end.
    virtual Status Skip(uint64_t n) = 0;
};

// A file that is read anywhere, by any number of threads at a time.
class LEVELDB_EXPORT RandomAccessFile {
public:
    RandomAccessFile() = default;

    RandomAccessFile(const RandomAccessFile &) = delete;
    RandomAccessFile &operator=(const RandomAccessFile &) = delete;

    virtual ~RandomAccessFile();

    // Reads up to `n` bytes from `offset` on; fewer only at the end. `*result` is what was read, perhaps in `scratch`,
    // which has space for `n` bytes.
    virtual Status Read(uint64_t offset, size_t n, Slice *result, char *scratch) const = 0;
};

// A file that is written from front to back, by one thread at a time.
class LEVELDB_EXPORT WritableFile {
public:
    WritableFile() = default;

    WritableFile(const WritableFile &) = delete;
    WritableFile &operator=(const WritableFile &) = delete;

    virtual ~WritableFile();

    // Adds bytes at the end, perhaps to a buffer.
    virtual Status Append(const Slice &data) = 0;
    virtual Status Close() = 0;
    // Gives what is buffered to the operating system.
    virtual Status Flush() = 0;
    // Makes everything so far durable.
    virtual Status Sync() = 0;
};

// Takes messages.
class LEVELDB_EXPORT Logger {
public:
    Logger() = default;

    Logger(const Logger &) = delete;
    Logger &operator=(const Logger &) = delete;

    virtual ~Logger();

    // Writes a message, in the form of printf().
    virtual void Logv(const char *format, std::va_list ap) = 0;
};

// A file that is locked.
class LEVELDB_EXPORT FileLock {
public:
    FileLock() = default;

    FileLock(const FileLock &) = delete;
    FileLock &operator=(const FileLock &) = delete;

    virtual ~FileLock();
};

// Writes a message, in the form of printf(), unless `info_log` is null.
LEVELDB_EXPORT void Log(Logger *info_log, const char *format, ...) __attribute__((__format__(__printf__, 2, 3)));

// Writes a file that has these bytes, in place of one that may be there.
LEVELDB_EXPORT Status WriteStringToFile(Env *env, const Slice &data, const std::string &fname);

// Reads a whole file into `*data`.
LEVELDB_EXPORT Status ReadFileToString(Env *env, const std::string &fname, std::string *data);

// An environment that passes every call on to another one. A class of a program overrides those that it is about.
class LEVELDB_EXPORT EnvWrapper : public Env {
public:
    // Passes calls on to `*t`, which must live as long.
    explicit EnvWrapper(Env *t) : target_(t) {}
    virtual ~EnvWrapper();

    Env *target() const { return target_; }

    Status NewSequentialFile(const std::string &f, SequentialFile **r) override {
        return target_->NewSequentialFile(f, r);
    }
    Status NewRandomAccessFile(const std::string &f, RandomAccessFile **r) override {
        return target_->NewRandomAccessFile(f, r);
    }
    Status NewWritableFile(const std::string &f, WritableFile **r) override { return target_->NewWritableFile(f, r); }
    Status NewAppendableFile(const std::string &f, WritableFile **r) override {
        return target_->NewAppendableFile(f, r);
    }
    bool FileExists(const std::string &f) override { return target_->FileExists(f); }
    Status GetChildren(const std::string &dir, std::vector<std::string> *r) override {
        return target_->GetChildren(dir, r);
    }
    Status RemoveFile(const std::string &f) override { return target_->RemoveFile(f); }
    Status CreateDir(const std::string &d) override { return target_->CreateDir(d); }
    Status RemoveDir(const std::string &d) override { return target_->RemoveDir(d); }
    Status GetFileSize(const std::string &f, uint64_t *s) override { return target_->GetFileSize(f, s); }
    Status RenameFile(const std::string &s, const std::string &t) override { return target_->RenameFile(s, t); }
    Status LockFile(const std::string &f, FileLock **l) override { return target_->LockFile(f, l); }
    Status UnlockFile(FileLock *l) override { return target_->UnlockFile(l); }
    void Schedule(void (*f)(void *), void *a) override { target_->Schedule(f, a); }
    void StartThread(void (*f)(void *), void *a) override { target_->StartThread(f, a); }
    Status GetTestDirectory(std::string *path) override { return target_->GetTestDirectory(path); }
    Status NewLogger(const std::string &fname, Logger **result) override {
        return target_->NewLogger(fname, result);
    }
    uint64_t NowMicros() override { return target_->NowMicros(); }
    void SleepForMicroseconds(int micros) override { target_->SleepForMicroseconds(micros); }

private:
    Env *target_;
};

} // namespace leveldb

#endif
