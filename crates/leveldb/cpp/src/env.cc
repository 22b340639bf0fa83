// env.cc: what all environments share.

#include "leveldb/env.h"

#include <memory>

namespace leveldb {

Env::Env() = default;
Env::~Env() = default;
SequentialFile::~SequentialFile() = default;
RandomAccessFile::~RandomAccessFile() = default;
WritableFile::~WritableFile() = default;
Logger::~Logger() = default;
FileLock::~FileLock() = default;
EnvWrapper::~EnvWrapper() = default;

Status Env::NewAppendableFile(const std::string &fname, WritableFile **result) {
    *result = nullptr;
    return Status::NotSupported("this environment cannot continue files", fname);
}

Status Env::RemoveFile(const std::string &fname) { return DeleteFile(fname); }
Status Env::DeleteFile(const std::string &fname) { return RemoveFile(fname); }
Status Env::RemoveDir(const std::string &dirname) { return DeleteDir(dirname); }
Status Env::DeleteDir(const std::string &dirname) { return RemoveDir(dirname); }

void Log(Logger *info_log, const char *format, ...) {
    if (info_log == nullptr) return;
    std::va_list arguments;
    va_start(arguments, format);
    info_log->Logv(format, arguments);
    va_end(arguments);
}

Status WriteStringToFile(Env *env, const Slice &data, const std::string &fname) {
    WritableFile *opened;
    Status status = env->NewWritableFile(fname, &opened);
    if (!status.ok()) return status;
    const std::unique_ptr<WritableFile> file(opened);
    status = file->Append(data);
    if (status.ok()) status = file->Close();
    if (!status.ok()) env->RemoveFile(fname);
    return status;
}

Status ReadFileToString(Env *env, const std::string &fname, std::string *data) {
    constexpr size_t kBufferBytes = 64 << 10;
    data->clear();
    SequentialFile *opened;
    Status status = env->NewSequentialFile(fname, &opened);
    if (!status.ok()) return status;
    const std::unique_ptr<SequentialFile> file(opened);
    const std::unique_ptr<char[]> buffer(new char[kBufferBytes]);
    for (;;) {
        Slice read;
        status = file->Read(kBufferBytes, &read, buffer.get());
        if (!status.ok() || read.empty()) return status;
        data->append(read.data(), read.size());
    }
}

} // namespace leveldb
