// posix_files.cc: files of the operating system, by its own calls; those that are written have a buffer.

#include "posix_files.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>

namespace leveldb {

Status posix_error(const std::string &name, int number) {
    const char *text = strerror(number);
    return number == ENOENT ? Status::NotFound(name, text) : Status::IOError(name, text);
}

namespace {

// Small appends become one write of this many bytes.
constexpr size_t kBufferBytes = 64 << 10;

class PosixSequentialFile final : public SequentialFile {
public:
    PosixSequentialFile(const std::string &name, int fd) : name_(name), fd_(fd) {}
    ~PosixSequentialFile() override { close(fd_); }

    Status Read(size_t n, Slice *result, char *scratch) override {
        ssize_t got;
        do got = read(fd_, scratch, n);
        while (got < 0 && errno == EINTR);
        *result = Slice(scratch, got < 0 ? 0 : static_cast<size_t>(got));
        return got < 0 ? posix_error(name_, errno) : Status();
    }

    Status Skip(uint64_t n) override {
        return lseek(fd_, static_cast<off_t>(n), SEEK_CUR) < 0 ? posix_error(name_, errno) : Status();
    }

private:
    const std::string name_;
    const int fd_;
};

class PosixRandomAccessFile final : public RandomAccessFile {
public:
    PosixRandomAccessFile(const std::string &name, int fd) : name_(name), fd_(fd) {}
    ~PosixRandomAccessFile() override { close(fd_); }

    Status Read(uint64_t offset, size_t n, Slice *result, char *scratch) const override {
        ssize_t got;
        do got = pread(fd_, scratch, n, static_cast<off_t>(offset));
        while (got < 0 && errno == EINTR);
        *result = Slice(scratch, got < 0 ? 0 : static_cast<size_t>(got));
        return got < 0 ? posix_error(name_, errno) : Status();
    }

private:
    const std::string name_;
    const int fd_;
};

class PosixWritableFile final : public WritableFile {
public:
    PosixWritableFile(const std::string &name, int fd) : name_(name), fd_(fd) { buffer_.reserve(kBufferBytes); }

    ~PosixWritableFile() override {
        if (fd_ >= 0) Close();
    }

    Status Append(const Slice &data) override {
        if (buffer_.size() + data.size() > kBufferBytes) {
            Status status = Flush();
            if (!status.ok()) return status;
            if (data.size() > kBufferBytes) return write_all(data);
        }
        buffer_.append(data.data(), data.size());
        return Status();
    }

    Status Close() override {
        Status status = Flush();
        if (close(fd_) != 0 && status.ok()) status = posix_error(name_, errno);
        fd_ = -1;
        return status;
    }

    Status Flush() override {
        Status status = write_all(buffer_);
        buffer_.clear();
        return status;
    }

    Status Sync() override {
        Status status = Flush();
        if (status.ok() && fdatasync(fd_) != 0) return posix_error(name_, errno);
        return status.ok() ? sync_name() : status;
    }

private:
    Status write_all(Slice data) {
        while (!data.empty()) {
            const ssize_t put = write(fd_, data.data(), data.size());
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return posix_error(name_, errno);
            data.remove_prefix(static_cast<size_t>(put));
        }
        return Status();
    }

    // A file is durable when its directory has its name; once is enough.
    Status sync_name() {
        if (name_is_durable_) return Status();
        const size_t slash = name_.rfind('/');
        const std::string above = slash == std::string::npos ? "." : name_.substr(0, slash + 1);
        const int fd = open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) return posix_error(above, errno);
        const int failed = fsync(fd) == 0 ? 0 : errno;
        close(fd);
        // Some file systems cannot sync a directory.
        if (failed != 0 && failed != EINVAL) return posix_error(above, failed);
        name_is_durable_ = true;
        return Status();
    }

    const std::string name_;
    int fd_;
    std::string buffer_;
    bool name_is_durable_ = false;
};

// Each message is a line: when, which thread, what.
class PosixLogger final : public Logger {
public:
    explicit PosixLogger(FILE *file) : file_(file) {}
    ~PosixLogger() override { fclose(file_); }

    void Logv(const char *format, std::va_list ap) override {
        std::va_list again;
        va_copy(again, ap);
        const int length = vsnprintf(nullptr, 0, format, again);
        va_end(again);
        if (length < 0) return;
        std::string text(static_cast<size_t>(length) + 1, '\0');
        vsnprintf(&text[0], text.size(), format, ap);
        text.pop_back();
        if (text.empty() || text.back() != '\n') text.push_back('\n');
        timeval now;
        gettimeofday(&now, nullptr);
        tm parts;
        localtime_r(&now.tv_sec, &parts);
        char when[32];
        strftime(when, sizeof when, "%Y/%m/%d-%H:%M:%S", &parts);
        // One call a message, so that those of several threads do not mix.
        fprintf(file_, "%s.%06ld %ld %s", when, static_cast<long>(now.tv_usec), syscall(SYS_gettid), text.c_str());
        fflush(file_);
    }

private:
    FILE *const file_;
};

template <typename File, typename Base>
Status open_file(const std::string &fname, int flags, Base **result) {
    const int fd = open(fname.c_str(), flags | O_CLOEXEC, 0644);
    *result = fd < 0 ? nullptr : new File(fname, fd);
    return fd < 0 ? posix_error(fname, errno) : Status();
}

} // namespace

Status open_sequential(const std::string &fname, SequentialFile **result) {
    return open_file<PosixSequentialFile>(fname, O_RDONLY, result);
}

Status open_random_access(const std::string &fname, RandomAccessFile **result) {
    return open_file<PosixRandomAccessFile>(fname, O_RDONLY, result);
}

Status open_writable(const std::string &fname, int flags, WritableFile **result) {
    return open_file<PosixWritableFile>(fname, O_WRONLY | O_CREAT | flags, result);
}

Status open_logger(const std::string &fname, Logger **result) {
    // A log that is there is continued, as LevelDB does.
    FILE *file = fopen(fname.c_str(), "ae");
    *result = file == nullptr ? nullptr : new PosixLogger(file);
    return file == nullptr ? posix_error(fname, errno) : Status();
}

} // namespace leveldb
