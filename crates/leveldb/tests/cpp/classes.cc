// classes.cc DIRECTORY: calls every function of LevelDB's public classes, each virtual one through its base class, and
// prints what comes back. With LevelDB and with this library it must be the same.

#include <leveldb/cache.h>
#include <leveldb/comparator.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "said.h"

using namespace leveldb;

namespace {

void statuses() {
    const Status all[] = {Status::OK(),
                          Status::NotFound("a", "b"),
                          Status::Corruption("c"),
                          Status::NotSupported("d", ""),
                          Status::InvalidArgument("e", "f"),
                          Status::IOError(Slice("g\0h", 3))};
    for (const Status &status : all) {
        printf("%s: %d%d%d%d%d%d\n", status.ToString().c_str(), status.ok(), status.IsNotFound(),
               status.IsCorruption(), status.IsNotSupportedError(), status.IsInvalidArgument(), status.IsIOError());
        Status copy = status, moved = std::move(copy);
        copy = moved;
        moved = all[1];
        say("assigned", copy.ToString() == status.ToString() && moved.IsNotFound());
    }
}

void options() {
    const Options o;
    say("comparator", o.comparator == BytewiseComparator());
    say("env", o.env == Env::Default());
    printf("%d %d %d %p %zu %d %p %zu %d %zu %d %d %p\n", o.create_if_missing, o.error_if_exists, o.paranoid_checks,
           static_cast<void *>(o.info_log), o.write_buffer_size, o.max_open_files,
           static_cast<void *>(o.block_cache), o.block_size, o.block_restart_interval, o.max_file_size, o.compression,
           o.reuse_logs, static_cast<const void *>(o.filter_policy));
    const ReadOptions r;
    printf("%d %d %d\n", r.verify_checksums, r.fill_cache, r.snapshot == nullptr);
    say("sync", WriteOptions().sync);
}

class Teller : public WriteBatch::Handler {
public:
    void Put(const Slice &key, const Slice &value) override {
        printf("  put %s=%s\n", key.ToString().c_str(), value.ToString().c_str());
    }
    void Delete(const Slice &key) override { printf("  delete %s\n", key.ToString().c_str()); }
};

// The one member of a batch.
std::string &bytes_of(WriteBatch &batch) { return reinterpret_cast<std::string &>(batch); }

void batches() {
    Teller teller;
    WriteBatch batch;
    say("empty", batch.Iterate(&teller));
    batch.Put("key", "value");
    batch.Delete("gone");
    batch.Put("", std::string(300, 'v'));
    say("bytes", batch.ApproximateSize());
    WriteBatch copy = batch;
    copy.Append(batch);
    copy.Append(copy);
    say("appended", copy.Iterate(&teller));
    say("bytes", copy.ApproximateSize());
    copy.Clear();
    say("cleared", copy.Iterate(&teller));
    say("bytes", copy.ApproximateSize());
    for (size_t at : {size_t(8), size_t(12), size_t(13), bytes_of(batch).size() - 302}) {
        WriteBatch changed = batch;
        bytes_of(changed)[at] ^= 0x44;
        say("changed", changed.Iterate(&teller));
    }
    WriteBatch cut = batch;
    bytes_of(cut).resize(20);
    say("cut", cut.Iterate(&teller));
    bytes_of(cut).resize(11);
    say("cut short", cut.Iterate(&teller));
}

void walk(DB *db, const ReadOptions &reads) {
    std::unique_ptr<Iterator> it(db->NewIterator(reads));
    say("valid at first", it->Valid());
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
        printf("  %s=%s\n", it->key().ToString().c_str(), it->value().ToString().c_str());
    }
    for (it->SeekToLast(); it->Valid(); it->Prev()) printf("  %s\n", it->key().ToString().c_str());
    it->Seek("b");
    if (it->Valid()) say("sought", it->key().ToString());
    it->Seek("zz");
    say("beyond", it->Valid());
    say("status", it->status());
    it->RegisterCleanup([](void *a, void *) { printf("cleanup %s\n", static_cast<char *>(a)); },
                        const_cast<char *>("one"), nullptr);
    const auto both = [](void *a, void *b) {
        printf("cleanup %s %s\n", static_cast<char *>(a), static_cast<char *>(b));
    };
    it->RegisterCleanup(both, const_cast<char *>("two"), const_cast<char *>("2"));
    it->RegisterCleanup([](void *, void *b) { printf("cleanup %s\n", static_cast<char *>(b)); }, nullptr,
                        const_cast<char *>("three"));
}

void get(DB *db, const char *key, const ReadOptions &reads = ReadOptions()) {
    std::string value = "as it was";
    const Status status = db->Get(reads, key, &value);
    say(key, status);
    say("value", value);
}

// Uses an open database through its base class alone.
void use(DB *db) {
    WriteOptions synced;
    synced.sync = true;
    say("put", db->Put(WriteOptions(), "a", "1"));
    say("put synced", db->Put(synced, "b", "2"));
    say("put empty", db->Put(WriteOptions(), "", ""));
    const Snapshot *before = db->GetSnapshot();
    say("delete", db->Delete(WriteOptions(), "a"));
    say("delete absent", db->Delete(synced, "absent"));
    WriteBatch batch;
    batch.Put("c", "3");
    batch.Put("b", "changed");
    batch.Delete("");
    say("write", db->Write(synced, &batch));
    WriteBatch wrong;
    wrong.Put("never", "seen");
    bytes_of(wrong)[12] = 7;
    say("write changed bytes", db->Write(WriteOptions(), &wrong));
    for (const char *key : {"a", "b", "c", ""}) get(db, key);
    ReadOptions then;
    then.snapshot = before;
    for (const char *key : {"a", "b", "c", ""}) get(db, key, then);
    walk(db, ReadOptions());
    walk(db, then);
    db->ReleaseSnapshot(before);
    std::string text = "as it was";
    say("files", db->GetProperty("leveldb.num-files-at-level1", &text));
    say("text", text);
    say("level 9", db->GetProperty("leveldb.num-files-at-level9", &text));
    say("stats", db->GetProperty("leveldb.stats", &text));
    say("no such", db->GetProperty("leveldb.nothing", &text));
    say("with a zero", db->GetProperty(Slice("leveldb.stats\0", 14), &text));
    say("not ours", db->GetProperty("stats", &text));
    const Range ranges[] = {Range("a", "z"), Range("x", "y")};
    uint64_t sizes[3] = {7, 7, 7};
    db->GetApproximateSizes(ranges, 2, sizes);
    say("empty range", sizes[1]);
    say("behind it", sizes[2]);
    const Slice from("a"), to("c");
    db->CompactRange(&from, &to);
    db->CompactRange(nullptr, nullptr);
    get(db, "c");
}

void databases(const std::string &directory) {
    const std::string name = directory + "/db";
    Options o;
    DB *db = reinterpret_cast<DB *>(8);
    say("missing", DB::Open(o, name, &db));
    say("no database", db == nullptr);
    o.create_if_missing = true;
    must("create", DB::Open(o, name, &db));
    DB *second;
    say("twice", DB::Open(o, name, &second));
    use(db);
    delete db;
    o.error_if_exists = true;
    say("exists", DB::Open(o, name, &db));
    o.error_if_exists = false;
    o.paranoid_checks = true;
    must("reopen", DB::Open(o, name, &db));
    get(db, "c");
    delete db;
    say("repair", RepairDB(name, o));
    say("destroy", DestroyDB(name, o));
    say("destroy again", DestroyDB(name, o));
    o.create_if_missing = false;
    say("gone", DB::Open(o, name, &db));
}

class Backwards : public Comparator {
public:
    int Compare(const Slice &a, const Slice &b) const override { return b.compare(a); }
    const char *Name() const override { return "tests.Backwards"; }
    void FindShortestSeparator(std::string *, const Slice &) const override {}
    void FindShortSuccessor(std::string *) const override {}
};

void comparators(const std::string &directory) {
    const Comparator *bytewise = BytewiseComparator();
    say("name", std::string(bytewise->Name()));
    const std::string keys[] = {"", "a", "ab", "abc", "abd", "b", "\xff",
                                "\xff\xff", "\xff\xff" "a", "a\xff", "x\x01y", "x\x03z"};
    for (const std::string &a : keys) {
        std::string successor = a;
        bytewise->FindShortSuccessor(&successor);
        printf("  successor %zu %d\n", successor.size(), bytewise->Compare(a, successor) <= 0);
        for (const std::string &b : keys) {
            std::string separator = a;
            bytewise->FindShortestSeparator(&separator, b);
            const int order = bytewise->Compare(a, b);
            printf("%c%zu ", order < 0 ? '<' : order > 0 ? '>' : '=', separator.size());
        }
        printf("\n");
    }
    Backwards backwards;
    Options o;
    o.create_if_missing = true;
    o.comparator = &backwards;
    const std::string name = directory + "/backwards";
    DB *db;
    must("create", DB::Open(o, name, &db));
    for (const char *key : {"b", "a", "c"}) must("put", db->Put(WriteOptions(), key, key));
    walk(db, ReadOptions());
    delete db;
    o.comparator = BytewiseComparator();
    say("another order", DB::Open(o, name, &db));
}

// A database of the program's own, over another one: its base class writes batches of one.
class Counting : public DB {
public:
    explicit Counting(DB *below) : below_(below) {}

    Status Put(const WriteOptions &o, const Slice &k, const Slice &v) override { return DB::Put(o, k, v); }
    Status Delete(const WriteOptions &o, const Slice &k) override { return DB::Delete(o, k); }
    Status Write(const WriteOptions &o, WriteBatch *b) override {
        writes++;
        return below_->Write(o, b);
    }
    Status Get(const ReadOptions &o, const Slice &k, std::string *v) override { return below_->Get(o, k, v); }
    Iterator *NewIterator(const ReadOptions &o) override { return below_->NewIterator(o); }
    const Snapshot *GetSnapshot() override { return below_->GetSnapshot(); }
    void ReleaseSnapshot(const Snapshot *s) override { below_->ReleaseSnapshot(s); }
    bool GetProperty(const Slice &p, std::string *v) override { return below_->GetProperty(p, v); }
    void GetApproximateSizes(const Range *r, int n, uint64_t *s) override { below_->GetApproximateSizes(r, n, s); }
    void CompactRange(const Slice *b, const Slice *e) override { below_->CompactRange(b, e); }

    int writes = 0;

private:
    std::unique_ptr<DB> below_;
};

void derived(const std::string &directory) {
    Options o;
    o.create_if_missing = true;
    DB *below;
    must("create", DB::Open(o, directory + "/derived", &below));
    Counting counting(below);
    use(&counting);
    say("writes", static_cast<uint64_t>(counting.writes));
}

void empty_iterators() {
    for (const Status &status : {Status(), Status::Corruption("told")}) {
        std::unique_ptr<Iterator> it(status.ok() ? NewEmptyIterator() : NewErrorIterator(status));
        it->SeekToFirst();
        it->SeekToLast();
        it->Seek("a");
        say("valid", it->Valid());
        say("status", it->status());
        it->RegisterCleanup([](void *, void *) { printf("cleanup\n"); }, nullptr, nullptr);
    }
}

void deleted(const Slice &key, void *value) {
    printf("  deleted %s %d\n", key.ToString().c_str(), static_cast<int>(reinterpret_cast<intptr_t>(value)));
}

void look_up(Cache *cache, const char *key) {
    Cache::Handle *handle = cache->Lookup(key);
    printf("  %s: %d\n", key, handle ? static_cast<int>(reinterpret_cast<intptr_t>(cache->Value(handle))) : -1);
    if (handle != nullptr) cache->Release(handle);
}

void caches() {
    std::unique_ptr<Cache> cache(NewLRUCache(1000));
    const auto insert = [&cache](const char *key, intptr_t value) {
        return cache->Insert(key, reinterpret_cast<void *>(value), 1, deleted);
    };
    cache->Release(insert("a", 1));
    cache->Release(insert("b", 2));
    look_up(cache.get(), "a");
    cache->Release(insert("a", 3));
    look_up(cache.get(), "a");
    look_up(cache.get(), "c");
    say("charge", cache->TotalCharge());
    Cache::Handle *held = cache->Lookup("a");
    cache->Erase("a");
    cache->Erase("absent");
    look_up(cache.get(), "a");
    cache->Release(held);
    held = insert("held", 4);
    cache->Prune();
    look_up(cache.get(), "b");
    look_up(cache.get(), "held");
    cache->Release(held);
    say("charge", cache->TotalCharge());
    const uint64_t id = cache->NewId();
    say("another id", cache->NewId() != id);
    cache.reset();
    std::unique_ptr<Cache> none(NewLRUCache(0));
    held = none->Insert("x", nullptr, 1, deleted);
    say("kept", none->Lookup("x") != nullptr);
    none->Release(held);
}

void filters() {
    std::unique_ptr<const FilterPolicy> policy(NewBloomFilterPolicy(10));
    say("named", strlen(policy->Name()) > 0);
    std::vector<std::string> keys;
    for (int i = 0; i < 10000; i++) keys.push_back("key " + std::to_string(i));
    const std::vector<Slice> slices(keys.begin(), keys.end());
    std::string filter = "before";
    policy->CreateFilter(slices.data(), static_cast<int>(slices.size()), &filter);
    say("appended", filter.compare(0, 6, "before") == 0 && filter.size() > 12000 && filter.size() < 13000);
    const Slice mine(filter.data() + 6, filter.size() - 6);
    int found = 0, others = 0;
    for (const Slice &key : slices) found += policy->KeyMayMatch(key, mine);
    for (int i = 0; i < 10000; i++) others += policy->KeyMayMatch("other " + std::to_string(i), mine);
    say("found", static_cast<uint64_t>(found));
    say("few others", others < 300);
}

std::string all_of(SequentialFile *file) {
    std::string text;
    char scratch[7];
    for (Slice part;; text.append(part.data(), part.size())) {
        must("read", file->Read(sizeof scratch, &part, scratch));
        if (part.empty()) return text;
    }
}

void log(Logger *logger, const char *format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    logger->Logv(format, arguments);
    va_end(arguments);
}

void files(Env *env, const std::string &directory) {
    const std::string name = directory + "/file";
    SequentialFile *sequential = reinterpret_cast<SequentialFile *>(8);
    say("absent", env->NewSequentialFile(name, &sequential));
    say("null", sequential == nullptr);
    RandomAccessFile *anywhere;
    say("absent", env->NewRandomAccessFile(name, &anywhere));
    uint64_t size;
    say("absent", env->GetFileSize(name, &size));
    say("absent", env->RemoveFile(name));
    say("absent", env->RenameFile(name, name + "2"));
    say("there", env->FileExists(name));
    WritableFile *file;
    must("new", env->NewWritableFile(name, &file));
    must("append", file->Append("hello "));
    must("append", file->Append(std::string(100000, 'x')));
    must("flush", file->Flush());
    must("sync", file->Sync());
    must("append", file->Append("end"));
    must("close", file->Close());
    delete file;
    must("append", env->NewAppendableFile(name, &file));
    must("append", file->Append("more"));
    delete file;
    must("size", env->GetFileSize(name, &size));
    say("size", size);
    must("open", env->NewSequentialFile(name, &sequential));
    must("skip", sequential->Skip(6 + 99998));
    say("rest", all_of(sequential));
    delete sequential;
    must("open", env->NewRandomAccessFile(name, &anywhere));
    char scratch[10];
    Slice part;
    must("read", anywhere->Read(2, 10, &part, scratch));
    say("part", part.ToString());
    must("read", anywhere->Read(100009, 4, &part, scratch));
    say("end", part.ToString());
    delete anywhere;
    must("rename", env->RenameFile(name, name + "2"));
    say("there", env->FileExists(name));
    must("write", WriteStringToFile(env, "text", name));
    std::string text = "before";
    must("read", ReadFileToString(env, name, &text));
    say("text", text);
    std::vector<std::string> names;
    must("children", env->GetChildren(directory, &names));
    std::sort(names.begin(), names.end());
    for (const std::string &child : names) {
        if (child != "." && child != ".." && child.compare(0, 4, "file") == 0) say("child", child);
    }
    FileLock *lock;
    must("lock", env->LockFile(directory + "/lock", &lock));
    must("unlock", env->UnlockFile(lock));
    must("create", env->CreateDir(directory + "/sub"));
    must("remove", env->RemoveDir(directory + "/sub"));
    must("create", env->CreateDir(directory + "/sub"));
    must("delete", env->DeleteDir(directory + "/sub"));
    must("delete", env->DeleteFile(name));
    must("remove", env->RemoveFile(name + "2"));
    say("there", env->FileExists(name) || env->FileExists(name + "2"));
    say("absent", ReadFileToString(env, name, &text));
    Logger *logger;
    for (const char *number : {"seven", "eight"}) {
        must("logger", env->NewLogger(directory + "/log", &logger));
        log(logger, "%d %s", 7, number);
        delete logger;
    }
}

void threads(Env *env) {
    static std::atomic<int> done;
    static int one = 1, two = 2;
    done = 0;
    env->Schedule([](void *arg) { done += *static_cast<int *>(arg); }, &one);
    env->StartThread([](void *arg) { done += *static_cast<int *>(arg); }, &two);
    const uint64_t begun = env->NowMicros();
    do env->SleepForMicroseconds(100);
    while (done != 3);
    say("time goes by", env->NowMicros() > begun);
}

void environments(const std::string &directory) {
    Env *system = Env::Default();
    say("one", system == Env::Default());
    files(system, directory);
    threads(system);
    FileLock *lock, *second = nullptr;
    must("lock", system->LockFile(directory + "/lock", &lock));
    say("locked twice", system->LockFile(directory + "/lock", &second));
    must("unlock", system->UnlockFile(lock));
    std::string text;
    must("log", ReadFileToString(system, directory + "/log", &text));
    say("told", text.find(" 7 eight\n") != std::string::npos);
    say("kept", text.find(" 7 seven\n") != std::string::npos);
    std::vector<std::string> names;
    say("no directory", system->GetChildren(directory + "/absent", &names));
    must("directory", system->GetTestDirectory(&text));
    say("a directory", !text.empty());
    EnvWrapper wrapper(system);
    say("target", wrapper.target() == system);
    files(&wrapper, directory);
    threads(&wrapper);
}

} // namespace

int main(int, char **arguments) {
    setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
    const std::string directory = arguments[1];
    statuses();
    options();
    batches();
    databases(directory);
    comparators(directory);
    derived(directory);
    empty_iterators();
    caches();
    filters();
    environments(directory);
}
