// rules.cc DIRECTORY: what this library refuses or allows beyond LevelDB's interface. It ends with 0 when all of it
// is so.

#include <leveldb/cache.h>
#include <leveldb/comparator.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/helpers/memenv.h>
#include <leveldb/write_batch.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "said.h"

using namespace leveldb;

namespace {

void expect(const char *what, bool is_so) {
    if (is_so) return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

void expect_text(const Status &status, const char *text) {
    if (status.ToString().find(text) != std::string::npos) return;
    fprintf(stderr, "'%s' does not say '%s'\n", status.ToString().c_str(), text);
    exit(1);
}

// An environment that passes everything on.
class Own : public EnvWrapper {
public:
    using EnvWrapper::EnvWrapper;
};

void environments(const std::string &directory) {
    Options o;
    o.create_if_missing = true;
    Own own(Env::Default());
    o.env = &own;
    DB *db;
    unsetenv("MANGROVE_LEVELDB_ENV");
    Status status = DB::Open(o, directory + "/own", &db);
    expect("refused", status.IsNotSupportedError() && db == nullptr);
    expect_text(status, "MANGROVE_LEVELDB_ENV=ignore");
    expect("nothing was made", !Env::Default()->FileExists(directory + "/own"));
    expect("refused", DestroyDB(directory + "/own", o).IsNotSupportedError());
    expect("refused", RepairDB(directory + "/own", o).IsNotSupportedError());
    setenv("MANGROVE_LEVELDB_ENV", "ignroe", 1);
    expect_text(DB::Open(o, directory + "/own", &db), "MANGROVE_LEVELDB_ENV=ignroe: the only value is 'ignore'");
    setenv("MANGROVE_LEVELDB_ENV", "ignore", 1);
    // It says so once, on standard error: the test counts.
    for (int i = 0; i < 2; i++) {
        must("ignored", DB::Open(o, directory + "/own", &db));
        delete db;
    }
    unsetenv("MANGROVE_LEVELDB_ENV");
    // An address where nothing is: it is compared, and not followed.
    o.env = reinterpret_cast<Env *>(0x10);
    expect("not followed", DB::Open(o, directory + "/own", &db).IsNotSupportedError());
    o.env = nullptr;
    expect("null", DB::Open(o, directory + "/own", &db).IsInvalidArgument());
    std::unique_ptr<Env> memory(NewMemEnv(Env::Default()));
    o.env = memory.get();
    must("memory", DB::Open(o, directory + "/memory", &db));
    delete db;
    expect("in no file system", !Env::Default()->FileExists(directory + "/memory"));
}

// Pointers that are not looked at may be anything.
void unread_options(const std::string &directory) {
    Options o;
    o.create_if_missing = true;
    o.info_log = reinterpret_cast<Logger *>(0x11);
    o.block_cache = reinterpret_cast<Cache *>(0x22);
    o.filter_policy = reinterpret_cast<const FilterPolicy *>(0x33);
    o.max_open_files = -7;
    o.compression = static_cast<CompressionType>(99);
    DB *db;
    must("open", DB::Open(o, directory + "/unread", &db));
    must("put", db->Put(WriteOptions(), "a", "b"));
    delete db;
    o.comparator = nullptr;
    expect("null comparator", DB::Open(o, directory + "/unread", &db).IsInvalidArgument());
    expect_text(DB::Open(Options(), std::string("a\0b", 3), &db), "byte of 0");
}

// Throws when it is told to.
class Moody : public Comparator {
public:
    int Compare(const Slice &a, const Slice &b) const override {
        if (throws) throw std::runtime_error("not today");
        return b.compare(a);
    }
    const char *Name() const override {
        if (is_nameless) throw std::runtime_error("no name today");
        return "tests.Moody";
    }
    void FindShortestSeparator(std::string *, const Slice &) const override {}
    void FindShortSuccessor(std::string *) const override {}

    bool throws = false, is_nameless = false;
};

std::string all(DB *db) {
    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
    std::string text;
    for (it->SeekToFirst(); it->Valid(); it->Next()) text += it->key().ToString() + "=" + it->value().ToString() + " ";
    must("walk", it->status());
    return text;
}

void exceptions(Env *env, const std::string &name) {
    Moody moody;
    Options o;
    o.env = env;
    o.create_if_missing = true;
    o.comparator = &moody;
    DB *db;
    moody.is_nameless = true;
    Status status = DB::Open(o, name, &db);
    expect("no name, no database", status.IsInvalidArgument() && db == nullptr);
    expect_text(status, "Name() threw an exception");
    if (env == Env::Default()) expect_text(RepairDB(name, o), "Name() threw an exception");
    moody.is_nameless = false;
    must("open", DB::Open(o, name, &db));
    for (int i = 0; i < 100; i++) must("put", db->Put(WriteOptions(), std::to_string(i), "v"));
    const std::string before = all(db);
    moody.throws = true;
    WriteBatch batch;
    batch.Put("new", "n");
    batch.Delete("5");
    batch.Put("7", "n");
    std::string value;
    for (int i = 0; i < 3; i++) {
        expect_text(db->Put(WriteOptions(), "5", "w"), "threw an exception");
        expect_text(db->Delete(WriteOptions(), "5"), "threw an exception");
        expect_text(db->Write(WriteOptions(), &batch), "threw an exception");
        expect_text(db->Get(ReadOptions(), "5", &value), "threw an exception");
        std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
        it->Seek("5");
        expect("on nothing", !it->Valid());
        expect_text(it->status(), "threw an exception");
    }
    moody.throws = false;
    // Nothing is left of it.
    must("get", db->Get(ReadOptions(), "5", &value));
    expect("as before", value == "v" && all(db) == before);
    must("write", db->Write(WriteOptions(), &batch));
    delete db;
}

// Parts of a database that live longer than it.
void afterwards(const std::string &directory) {
    Options o;
    o.create_if_missing = true;
    DB *db;
    must("open", DB::Open(o, directory + "/after", &db));
    must("put", db->Put(WriteOptions(), "a", "b"));
    Iterator *it = db->NewIterator(ReadOptions());
    delete db;
    it->SeekToFirst();
    expect("still there", it->Valid() && it->value() == "b");
    delete it;
    must("reopen", DB::Open(o, directory + "/after", &db));
    delete db;
}

// An iterator of a database in memory: the database is gone, and with its environment what kept the comparator.
void afterwards_in_memory() {
    Moody moody;
    std::unique_ptr<Env> env(NewMemEnv(Env::Default()));
    Options o;
    o.env = env.get();
    o.create_if_missing = true;
    o.comparator = &moody;
    DB *db;
    must("open", DB::Open(o, "after", &db));
    for (int i = 0; i < 100; i++) must("put", db->Put(WriteOptions(), std::to_string(i), "v"));
    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
    delete db;
    env.reset();
    it->Seek("5");
    expect("found", it->Valid() && it->key() == "5" && it->value() == "v");
    it->Next();
    expect("the next", it->Valid() && it->key() == "49");
    must("walk", it->status());
}

// The key lies in the string that gets the value, which moves it: a look at the key after that reads freed memory.
// Reads look at it once more while synced writes are on their way.
void key_in_the_value(Env *env, const std::string &name) {
    Options o;
    o.env = env;
    o.create_if_missing = true;
    DB *db;
    must("open", DB::Open(o, name, &db));
    const std::string key(100, 'k'), value(1000, 'v');
    must("put", db->Put(WriteOptions(), key, value));
    std::atomic<bool> over(false);
    std::thread writer([db, &over] {
        WriteOptions synced;
        synced.sync = true;
        while (!over) must("put synced", db->Put(synced, "other", "w"));
    });
    for (int i = 0; i < 300; i++) {
        std::string text = key;
        must("get", db->Get(ReadOptions(), text, &text));
        expect("its value", text == value);
    }
    over = true;
    writer.join();
    delete db;
}

} // namespace

int main(int, char **arguments) {
    const std::string directory = arguments[1];
    environments(directory);
    unread_options(directory);
    exceptions(Env::Default(), directory + "/throws");
    std::unique_ptr<Env> memory(NewMemEnv(Env::Default()));
    exceptions(memory.get(), "throws");
    afterwards(directory);
    afterwards_in_memory();
    key_in_the_value(Env::Default(), directory + "/key");
    key_in_the_value(memory.get(), "key");
    printf("done\n");
}
