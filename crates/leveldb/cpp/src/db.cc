// db.cc: databases. Each call goes to the engine, and its error string becomes a status.

#include "leveldb/db.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "db_iterator.h"
#include "engine.h"
#include "engine_options.h"
#include "leveldb/env.h"
#include "leveldb/write_batch.h"
#include "memory_env.h"

namespace leveldb {

Snapshot::~Snapshot() = default;

DB::~DB() = default;

Status DB::Put(const WriteOptions &options, const Slice &key, const Slice &value) {
    WriteBatch batch;
    batch.Put(key, value);
    return Write(options, &batch);
}

Status DB::Delete(const WriteOptions &options, const Slice &key) {
    WriteBatch batch;
    batch.Delete(key);
    return Write(options, &batch);
}

// Reaches a batch's bytes, as a friend of its class.
class WriteBatchInternal {
public:
    static Slice bytes(const WriteBatch &batch) { return batch.rep_; }
};

namespace {

// Lets databases be opened with environments that are not called.
constexpr char kEnvVariable[] = "MANGROVE_LEVELDB_ENV";

// An instant of the engine. When the database had failed, every read from it fails.
class EngineSnapshot final : public Snapshot {
public:
    explicit EngineSnapshot(const leveldb_snapshot_t *engine) : engine(engine) {}
    ~EngineSnapshot() override = default;

    const leveldb_snapshot_t *const engine;
};

// The instant that read options ask for: null is now.
const leveldb_snapshot_t *instant_of(const ReadOptions &options) {
    if (options.snapshot == nullptr) return nullptr;
    return static_cast<const EngineSnapshot *>(options.snapshot)->engine;
}

// The engine's form of write options.
const leveldb_writeoptions_t *engine_form(const WriteOptions &options) {
    // Never freed: databases may be used while the process ends.
    static const leveldb_writeoptions_t *const forms[] = {[] { return leveldb_writeoptions_create(); }(), [] {
        leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
        leveldb_writeoptions_set_sync(synced, 1);
        return synced;
    }()};
    return forms[options.sync];
}

class Database final : public DB {
public:
    explicit Database(leveldb_t *engine) : engine_(engine) {}
    explicit Database(std::shared_ptr<MemoryDatabase> memory) : engine_(memory->engine), memory_(std::move(memory)) {}

    ~Database() override {
        if (memory_ != nullptr) close_in_memory(memory_.get());
        else leveldb_close(engine_);
    }

    Status Put(const WriteOptions &options, const Slice &key, const Slice &value) override {
        char *error = nullptr;
        leveldb_put(engine_, engine_form(options), key.data(), key.size(), value.data(), value.size(), &error);
        return status_of(error);
    }

    Status Delete(const WriteOptions &options, const Slice &key) override {
        char *error = nullptr;
        leveldb_delete(engine_, engine_form(options), key.data(), key.size(), &error);
        return status_of(error);
    }

    Status Write(const WriteOptions &options, WriteBatch *updates) override {
        // As in LevelDB, no batch is an empty one.
        const WriteBatch none;
        const Slice bytes = WriteBatchInternal::bytes(updates == nullptr ? none : *updates);
        char *error = nullptr;
        mangrove_leveldb_write(engine_, options.sync, bytes.data(), bytes.size(), &error);
        return status_of(error);
    }

    Status Get(const ReadOptions &options, const Slice &key, std::string *value) override {
        const leveldb_snapshot_t *const instant = instant_of(options);
        Found found = {value, false, false};
        char *error = nullptr;
        const bool there =
            mangrove_leveldb_get(engine_, instant, key.data(), key.size(), store, &found, &error) != 0;
        if (error == nullptr && there && !found.failed) return Status();
        // A value that the caller must not get, or a part of one.
        if (found.called) value->clear();
        if (error != nullptr) return status_of(error);
        return there ? Status::IOError("no memory for the value") : Status::NotFound(Slice());
    }

    Iterator *NewIterator(const ReadOptions &options) override {
        leveldb_readoptions_t *reads = leveldb_readoptions_create();
        leveldb_readoptions_set_snapshot(reads, instant_of(options));
        Iterator *iterator = new DbIterator(leveldb_create_iterator(engine_, reads), memory_);
        leveldb_readoptions_destroy(reads);
        return iterator;
    }

    const Snapshot *GetSnapshot() override { return new EngineSnapshot(leveldb_create_snapshot(engine_)); }

    void ReleaseSnapshot(const Snapshot *snapshot) override {
        const EngineSnapshot *ours = static_cast<const EngineSnapshot *>(snapshot);
        leveldb_release_snapshot(engine_, ours->engine);
        delete ours;
    }

    bool GetProperty(const Slice &property, std::string *value) override {
        value->clear();
        const std::string name = property.ToString();
        // No name has a byte of 0; the engine would read up to it.
        if (name.find('\0') != std::string::npos) return false;
        char *text = leveldb_property_value(engine_, name.c_str());
        if (text == nullptr) return false;
        *value = text;
        leveldb_free(text);
        return true;
    }

    void GetApproximateSizes(const Range *range, int n, uint64_t *sizes) override {
        for (int i = 0; i < n; i++) {
            const char *start = range[i].start.data(), *limit = range[i].limit.data();
            const size_t start_len = range[i].start.size(), limit_len = range[i].limit.size();
            leveldb_approximate_sizes(engine_, 1, &start, &start_len, &limit, &limit_len, &sizes[i]);
        }
    }

    void CompactRange(const Slice *, const Slice *) override {
        leveldb_compact_range(engine_, nullptr, 0, nullptr, 0);
    }

private:
    // Where a value goes.
    struct Found {
        std::string *value;
        bool called, failed;
    };

    // Gets the value from the engine, which no exception may pass.
    static void store(void *state, const char *value, size_t value_len) noexcept {
        Found *found = static_cast<Found *>(state);
        found->called = true;
        try {
            found->value->assign(value, value_len);
        } catch (...) {
            found->failed = true;
        }
    }

    leveldb_t *const engine_;
    // Holds the engine of a database in memory.
    const std::shared_ptr<MemoryDatabase> memory_;
};

// Whether a database may be opened with these options, before the engine sees them.
Status acceptable(const std::string &name, const Options &options) {
    if (name.find('\0') != std::string::npos) {
        return Status::InvalidArgument("the name of the database has a byte of 0 in it");
    }
    if (options.comparator == nullptr) return Status::InvalidArgument(name, "the comparator is null");
    if (options.env == Env::Default() || is_memory_env(options.env)) return Status();
    if (options.env == nullptr) return Status::InvalidArgument(name, "the environment is null");
    const char *asked = getenv(kEnvVariable);
    if (asked == nullptr) {
        return Status::NotSupported(
            name, "the program opens it with an environment of its own, which Mangrove would not call; set "
                  "MANGROVE_LEVELDB_ENV=ignore if the program does without");
    }
    if (strcmp(asked, "ignore") != 0) {
        return Status::InvalidArgument(std::string(kEnvVariable) + "=" + asked, "the only value is 'ignore'");
    }
    static std::once_flag said;
    std::call_once(said, [] {
        fprintf(stderr, "mangrove: %s=ignore: the program's own environment is not called\n", kEnvVariable);
    });
    return Status();
}

} // namespace

Status DB::Open(const Options &options, const std::string &name, DB **dbptr) {
    *dbptr = nullptr;
    Status status = acceptable(name, options);
    if (!status.ok()) return status;
    if (is_memory_env(options.env)) {
        std::shared_ptr<MemoryDatabase> memory;
        status = open_in_memory(options, name, &memory);
        if (status.ok()) *dbptr = new Database(std::move(memory));
        return status;
    }
    const EngineOptions settings(options);
    char *error = nullptr;
    leveldb_t *engine = leveldb_open(settings.get(), name.c_str(), &error);
    if (engine != nullptr) *dbptr = new Database(engine);
    return status_of(error);
}

Status DestroyDB(const std::string &name, const Options &options) {
    const Status status = acceptable(name, options);
    if (!status.ok()) return status;
    if (is_memory_env(options.env)) return destroy_in_memory(options, name);
    const EngineOptions settings(options);
    char *error = nullptr;
    leveldb_destroy_db(settings.get(), name.c_str(), &error);
    return status_of(error);
}

Status RepairDB(const std::string &dbname, const Options &options) {
    const Status status = acceptable(dbname, options);
    if (!status.ok()) return status;
    if (is_memory_env(options.env)) return Status::NotSupported(dbname, "a database in memory needs no repair");
    const EngineOptions settings(options);
    char *error = nullptr;
    leveldb_repair_db(settings.get(), dbname.c_str(), &error);
    return status_of(error);
}

} // namespace leveldb
