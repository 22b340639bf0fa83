// memory.cc DIRECTORY: databases and files of NewMemEnv(). With LevelDB and with this library it prints the same, and
// leaves nothing in the directory.

#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/helpers/memenv.h>
#include <leveldb/write_batch.h>

#include <memory>
#include <thread>
#include <vector>

#include "said.h"

using namespace leveldb;

namespace {

void files(Env *env) {
    WritableFile *file;
    must("new", env->NewWritableFile("/dir/f", &file));
    must("append", file->Append("hello "));
    must("append", file->Append("world"));
    delete file;
    uint64_t size;
    must("size", env->GetFileSize("/dir/f", &size));
    say("size", size);
    RandomAccessFile *anywhere;
    must("open", env->NewRandomAccessFile("/dir/f", &anywhere));
    char scratch[20];
    Slice part;
    must("read", anywhere->Read(6, 20, &part, scratch));
    say("part", part.ToString());
    say("beyond", anywhere->Read(1000, 5, &part, scratch));
    delete anywhere;
    SequentialFile *sequential;
    must("open", env->NewSequentialFile("/dir/f", &sequential));
    must("skip", sequential->Skip(6));
    must("read", sequential->Read(20, &part, scratch));
    say("part", part.ToString());
    must("skip", sequential->Skip(1000));
    must("read", sequential->Read(20, &part, scratch));
    say("end", part.ToString());
    delete sequential;
    must("append", env->NewAppendableFile("/dir/f", &file));
    must("append", file->Append("!"));
    delete file;
    must("rename", env->RenameFile("/dir/f", "/dir/g"));
    std::string text;
    must("read", ReadFileToString(env, "/dir/g", &text));
    say("text", text);
    std::vector<std::string> names;
    must("children", env->GetChildren("/dir", &names));
    for (const std::string &name : names) say("child", name);
    say("absent", env->RemoveFile("/dir/f"));
    must("remove", env->RemoveFile("/dir/g"));
    say("there", env->FileExists("/dir/g"));
    say("absent", env->NewSequentialFile("/dir/g", &sequential));
    FileLock *lock;
    must("lock", env->LockFile("some lock", &lock));
    must("unlock", env->UnlockFile(lock));
    must("create", env->CreateDir("/dir"));
    must("remove", env->RemoveDir("/dir"));
}

void databases(Env *env, const std::string &name) {
    Options o;
    o.env = env;
    DB *db;
    say("missing", DB::Open(o, name, &db));
    o.create_if_missing = true;
    must("create", DB::Open(o, name, &db));
    for (int i = 0; i < 2000; i++) must("put", db->Put(WriteOptions(), std::to_string(i), std::string(i % 50, 'v')));
    const Snapshot *before = db->GetSnapshot();
    WriteBatch batch;
    for (int i = 0; i < 2000; i += 2) batch.Delete(std::to_string(i));
    must("write", db->Write(WriteOptions(), &batch));
    for (int round = 0; round < 2; round++) {
        ReadOptions reads;
        reads.snapshot = round == 0 ? before : nullptr;
        std::unique_ptr<Iterator> it(db->NewIterator(reads));
        uint64_t records = 0, bytes = 0;
        for (it->SeekToFirst(); it->Valid(); it->Next(), records++) bytes += it->key().size() + it->value().size();
        say("records", records);
        say("bytes", bytes);
    }
    db->ReleaseSnapshot(before);
    db->CompactRange(nullptr, nullptr);
    // Readers and writers at a time.
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([db, t] {
            for (int i = 0; i < 500; i++) {
                const std::string key = "t" + std::to_string(t) + " " + std::to_string(i);
                must("put", db->Put(WriteOptions(), key, key));
                std::string value;
                must("get", db->Get(ReadOptions(), key, &value));
                if (value != key) exit(1);
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    delete db;
    must("again", DB::Open(o, name, &db));
    std::string value;
    say("kept", db->Get(ReadOptions(), "t3 499", &value));
    delete db;
    o.error_if_exists = true;
    say("exists", DB::Open(o, name, &db));
    o.error_if_exists = false;
    must("destroy", DestroyDB(name, o));
    o.create_if_missing = false;
    say("gone", DB::Open(o, name, &db));
}

} // namespace

int main(int, char **arguments) {
    const std::string name = std::string(arguments[1]) + "/in-memory";
    std::unique_ptr<Env> env(NewMemEnv(Env::Default()));
    files(env.get());
    databases(env.get(), name);
    // One that is there when its environment goes.
    Options o;
    o.env = env.get();
    o.create_if_missing = true;
    DB *db;
    must("create", DB::Open(o, name, &db));
    must("put", db->Put(WriteOptions(), "a", "b"));
    delete db;
    env.reset();
    std::vector<std::string> names;
    must("children", Env::Default()->GetChildren(arguments[1], &names));
    say("left on disk", static_cast<uint64_t>(names.size() - 2));
}
