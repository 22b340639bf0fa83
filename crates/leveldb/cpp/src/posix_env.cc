// posix_env.cc: the operating system as an environment.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "leveldb/env.h"
#include "posix_files.h"

namespace leveldb {

namespace {

Status outcome(const std::string &name, int returned) { return returned == 0 ? Status() : posix_error(name, errno); }

class PosixFileLock final : public FileLock {
public:
    PosixFileLock(const std::string &name, int fd) : name(name), fd(fd) {}

    const std::string name;
    const int fd;
};

// Locks or unlocks a whole file for this process.
int set_lock(int fd, short type) {
    struct flock all = {};
    all.l_type = type;
    all.l_whence = SEEK_SET;
    return fcntl(fd, F_SETLK, &all);
}

class PosixEnv final : public Env {
public:
    Status NewSequentialFile(const std::string &fname, SequentialFile **result) override {
        return open_sequential(fname, result);
    }

    Status NewRandomAccessFile(const std::string &fname, RandomAccessFile **result) override {
        return open_random_access(fname, result);
    }

    Status NewWritableFile(const std::string &fname, WritableFile **result) override {
        return open_writable(fname, O_TRUNC, result);
    }

    Status NewAppendableFile(const std::string &fname, WritableFile **result) override {
        return open_writable(fname, O_APPEND, result);
    }

    bool FileExists(const std::string &fname) override { return access(fname.c_str(), F_OK) == 0; }

    Status GetChildren(const std::string &dir, std::vector<std::string> *result) override {
        result->clear();
        DIR *open = opendir(dir.c_str());
        if (open == nullptr) return posix_error(dir, errno);
        while (const dirent *entry = readdir(open)) result->emplace_back(entry->d_name);
        closedir(open);
        return Status();
    }

    Status RemoveFile(const std::string &fname) override { return outcome(fname, unlink(fname.c_str())); }

    Status CreateDir(const std::string &dirname) override { return outcome(dirname, mkdir(dirname.c_str(), 0755)); }

    Status RemoveDir(const std::string &dirname) override { return outcome(dirname, rmdir(dirname.c_str())); }

    Status GetFileSize(const std::string &fname, uint64_t *file_size) override {
        struct stat found;
        const Status status = outcome(fname, stat(fname.c_str(), &found));
        *file_size = status.ok() ? static_cast<uint64_t>(found.st_size) : 0;
        return status;
    }

    Status RenameFile(const std::string &src, const std::string &target) override {
        return outcome(src, rename(src.c_str(), target.c_str()));
    }

    Status LockFile(const std::string &fname, FileLock **lock) override {
        *lock = nullptr;
        // The operating system's lock is the process's: it does not keep out a second caller here. And closing a
        // second descriptor of the file would let go of the lock, so the names come first.
        {
            std::lock_guard<std::mutex> guard(lock_);
            if (!locked_.insert(fname).second) {
                return Status::IOError("lock " + fname, "already held by this process");
            }
        }
        const int fd = open(fname.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd >= 0 && set_lock(fd, F_WRLCK) == 0) {
            *lock = new PosixFileLock(fname, fd);
            return Status();
        }
        const int failed = errno;
        if (fd >= 0) close(fd);
        std::lock_guard<std::mutex> guard(lock_);
        locked_.erase(fname);
        return posix_error("lock " + fname, failed);
    }

    Status UnlockFile(FileLock *lock) override {
        PosixFileLock *ours = static_cast<PosixFileLock *>(lock);
        if (set_lock(ours->fd, F_UNLCK) != 0) return posix_error("unlock " + ours->name, errno);
        close(ours->fd);
        {
            std::lock_guard<std::mutex> guard(lock_);
            locked_.erase(ours->name);
        }
        delete ours;
        return Status();
    }

    void Schedule(void (*function)(void *), void *arg) override {
        std::lock_guard<std::mutex> guard(lock_);
        if (!works_) {
            works_ = true;
            std::thread([this] { work(); }).detach();
        }
        waiting_.push_back({function, arg});
        more_.notify_one();
    }

    void StartThread(void (*function)(void *), void *arg) override { std::thread(function, arg).detach(); }

    Status GetTestDirectory(std::string *path) override {
        const char *asked = getenv("TEST_TMPDIR");
        *path = asked != nullptr && *asked != '\0' ? asked : "/tmp/leveldbtest-" + std::to_string(geteuid());
        // It may be there.
        CreateDir(*path);
        return Status();
    }

    Status NewLogger(const std::string &fname, Logger **result) override { return open_logger(fname, result); }

    uint64_t NowMicros() override {
        timeval now;
        gettimeofday(&now, nullptr);
        return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_usec);
    }

    void SleepForMicroseconds(int micros) override {
        std::this_thread::sleep_for(std::chrono::microseconds(micros));
    }

private:
    struct Work {
        void (*function)(void *);
        void *arg;
    };

    [[noreturn]] void work() {
        for (;;) {
            std::unique_lock<std::mutex> guard(lock_);
            more_.wait(guard, [this] { return !waiting_.empty(); });
            const Work next = waiting_.front();
            waiting_.pop_front();
            guard.unlock();
            next.function(next.arg);
        }
    }

    std::mutex lock_;
    // Files that LockFile() has locked.
    std::set<std::string> locked_;
    std::condition_variable more_;
    std::deque<Work> waiting_;
    // The background thread has been started. It never ends.
    bool works_ = false;
};

} // namespace

Env *Env::Default() {
    // Never destroyed: its thread, and those of the program, may use it while the process ends.
    static Env *const system = new PosixEnv;
    return system;
}

} // namespace leveldb
