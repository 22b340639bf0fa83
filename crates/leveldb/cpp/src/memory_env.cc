// memory_env.cc: an environment whose files and databases are in memory.
//
// A file's bytes belong to everything that has it open, so a file that was removed is there until it is closed. One
// lock protects the names and the bytes of all files of all environments, and the databases.

#include "memory_env.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "engine.h"
#include "engine_options.h"
#include "leveldb/helpers/memenv.h"

namespace leveldb {

namespace {

using Bytes = std::shared_ptr<std::string>;

std::mutex &lock() {
    // Never destroyed: environments may be used while the process ends.
    static std::mutex *const all = new std::mutex;
    return *all;
}

// Reads up to `n` bytes at `offset`.
Status read_at(const Bytes &bytes, uint64_t offset, size_t n, Slice *result, char *scratch) {
    std::lock_guard<std::mutex> guard(lock());
    *result = Slice(scratch, 0);
    if (offset > bytes->size()) return Status::IOError("an offset beyond the end of the file");
    *result = Slice(scratch, bytes->copy(scratch, n, offset));
    return Status();
}

class MemorySequentialFile final : public SequentialFile {
public:
    explicit MemorySequentialFile(const Bytes &bytes) : bytes_(bytes) {}

    Status Read(size_t n, Slice *result, char *scratch) override {
        const Status status = read_at(bytes_, at_, n, result, scratch);
        at_ += result->size();
        return status;
    }

    Status Skip(uint64_t n) override {
        std::lock_guard<std::mutex> guard(lock());
        if (at_ > bytes_->size()) return Status::IOError("a place beyond the end of the file");
        at_ += std::min<uint64_t>(n, bytes_->size() - at_);
        return Status();
    }

private:
    const Bytes bytes_;
    uint64_t at_ = 0;
};

class MemoryRandomAccessFile final : public RandomAccessFile {
public:
    explicit MemoryRandomAccessFile(const Bytes &bytes) : bytes_(bytes) {}

    Status Read(uint64_t offset, size_t n, Slice *result, char *scratch) const override {
        return read_at(bytes_, offset, n, result, scratch);
    }

private:
    const Bytes bytes_;
};

class MemoryWritableFile final : public WritableFile {
public:
    explicit MemoryWritableFile(const Bytes &bytes) : bytes_(bytes) {}

    Status Append(const Slice &data) override {
        std::lock_guard<std::mutex> guard(lock());
        bytes_->append(data.data(), data.size());
        return Status();
    }

    Status Close() override { return Status(); }
    Status Flush() override { return Status(); }
    Status Sync() override { return Status(); }

private:
    const Bytes bytes_;
};

class MemoryFileLock final : public FileLock {};

class NoLogger final : public Logger {
public:
    void Logv(const char *, std::va_list) override {}
};

class MemoryEnv final : public EnvWrapper {
public:
    explicit MemoryEnv(Env *base) : EnvWrapper(base) {}
    ~MemoryEnv() override;

    Status NewSequentialFile(const std::string &fname, SequentialFile **result) override {
        return open<MemorySequentialFile>(fname, result);
    }

    Status NewRandomAccessFile(const std::string &fname, RandomAccessFile **result) override {
        return open<MemoryRandomAccessFile>(fname, result);
    }

    Status NewWritableFile(const std::string &fname, WritableFile **result) override {
        std::lock_guard<std::mutex> guard(lock());
        Bytes &file = files_[fname];
        if (file == nullptr) file = std::make_shared<std::string>();
        file->clear();
        *result = new MemoryWritableFile(file);
        return Status();
    }

    Status NewAppendableFile(const std::string &fname, WritableFile **result) override {
        std::lock_guard<std::mutex> guard(lock());
        Bytes &file = files_[fname];
        if (file == nullptr) file = std::make_shared<std::string>();
        *result = new MemoryWritableFile(file);
        return Status();
    }

    bool FileExists(const std::string &fname) override {
        std::lock_guard<std::mutex> guard(lock());
        return files_.count(fname) != 0;
    }

    Status GetChildren(const std::string &dir, std::vector<std::string> *result) override {
        std::lock_guard<std::mutex> guard(lock());
        result->clear();
        const std::string within = dir + "/";
        for (auto named = files_.lower_bound(within); named != files_.end(); ++named) {
            if (named->first.compare(0, within.size(), within) != 0) break;
            result->push_back(named->first.substr(within.size()));
        }
        return Status();
    }

    Status RemoveFile(const std::string &fname) override {
        std::lock_guard<std::mutex> guard(lock());
        return files_.erase(fname) != 0 ? Status() : missing(fname);
    }

    // Directories are in the names of files.
    Status CreateDir(const std::string &) override { return Status(); }
    Status RemoveDir(const std::string &) override { return Status(); }

    Status GetFileSize(const std::string &fname, uint64_t *file_size) override {
        std::lock_guard<std::mutex> guard(lock());
        const auto named = files_.find(fname);
        *file_size = named == files_.end() ? 0 : named->second->size();
        return named == files_.end() ? missing(fname) : Status();
    }

    Status RenameFile(const std::string &src, const std::string &target) override {
        std::lock_guard<std::mutex> guard(lock());
        const auto named = files_.find(src);
        if (named == files_.end()) return missing(src);
        const Bytes file = named->second;
        files_.erase(named);
        files_[target] = file;
        return Status();
    }

    // One process has these files.
    Status LockFile(const std::string &, FileLock **result) override {
        *result = new MemoryFileLock;
        return Status();
    }

    Status UnlockFile(FileLock *held) override {
        delete held;
        return Status();
    }

    Status GetTestDirectory(std::string *path) override {
        *path = "/test";
        return Status();
    }

    Status NewLogger(const std::string &, Logger **result) override {
        *result = new NoLogger;
        return Status();
    }

    // By name, under the lock.
    std::map<std::string, std::shared_ptr<MemoryDatabase>> databases;

private:
    static Status missing(const std::string &fname) { return Status::IOError(fname, "File not found"); }

    template <typename File, typename Base>
    Status open(const std::string &fname, Base **result) {
        std::lock_guard<std::mutex> guard(lock());
        const auto named = files_.find(fname);
        *result = named == files_.end() ? nullptr : new File(named->second);
        return *result == nullptr ? missing(fname) : Status();
    }

    std::map<std::string, Bytes> files_;
};

// The environments that live.
std::set<const Env *> &environments() {
    static std::set<const Env *> *const all = new std::set<const Env *>;
    return *all;
}

MemoryEnv::~MemoryEnv() {
    std::lock_guard<std::mutex> guard(lock());
    environments().erase(this);
}

} // namespace

bool is_memory_env(const Env *env) {
    std::lock_guard<std::mutex> guard(lock());
    return environments().count(env) != 0;
}

Status open_in_memory(const Options &options, const std::string &name, std::shared_ptr<MemoryDatabase> *database) {
    std::string order;
    try {
        order = options.comparator->Name();
    } catch (...) {
        return Status::InvalidArgument(name, "the comparator has no name: Name() threw an exception");
    }
    std::lock_guard<std::mutex> guard(lock());
    auto &databases = static_cast<MemoryEnv *>(options.env)->databases;
    const auto named = databases.find(name);
    if (named == databases.end()) {
        if (!options.create_if_missing) {
            return Status::InvalidArgument(name, "does not exist (create_if_missing is false)");
        }
        auto fresh = std::make_shared<MemoryDatabase>(options.comparator, order);
        const EngineOptions settings(options, &fresh->comparator);
        char *error = nullptr;
        fresh->engine = mangrove_leveldb_open_memory(settings.get(), &error);
        if (fresh->engine == nullptr) return status_of(error);
        databases.emplace(name, fresh);
        *database = fresh;
    } else if (named->second->is_open) {
        return Status::IOError("lock " + name, "already held by this process");
    } else if (options.error_if_exists) {
        return Status::InvalidArgument(name, "exists (error_if_exists is true)");
    } else if (named->second->comparator_name != order) {
        return Status::InvalidArgument(named->second->comparator_name + " does not match existing comparator ", order);
    } else {
        *database = named->second;
        (*database)->comparator = options.comparator;
    }
    (*database)->is_open = true;
    return Status();
}

void close_in_memory(MemoryDatabase *database) {
    std::lock_guard<std::mutex> guard(lock());
    database->is_open = false;
}

Status destroy_in_memory(const Options &options, const std::string &name) {
    std::lock_guard<std::mutex> guard(lock());
    auto &databases = static_cast<MemoryEnv *>(options.env)->databases;
    const auto named = databases.find(name);
    if (named == databases.end()) return Status();
    if (named->second->is_open) return Status::IOError("lock " + name, "already held by this process");
    databases.erase(named);
    return Status();
}

Env *NewMemEnv(Env *base_env) {
    Env *const env = new MemoryEnv(base_env);
    std::lock_guard<std::mutex> guard(lock());
    environments().insert(env);
    return env;
}

} // namespace leveldb
