// cache.cc: a cache that forgets first what was not used for longest.
//
// Every entry that the cache has not forgotten is in the table. Those of them that are not in use are also in the list,
// in the order of their last use: the cache forgets from its front. One lock protects all of it; deleters run without
// it.

#include "leveldb/cache.h"

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace leveldb {

Cache::~Cache() = default;

namespace {

struct Entry : Cache::Handle {
    std::string key;
    void *value;
    size_t charge;
    void (*deleter)(const Slice &key, void *value);
    // Callers that hold it.
    size_t holders;
    bool forgotten;
    // Its place in the list, while it is not in use.
    std::list<Entry *>::iterator place;
};

class LruCache final : public Cache {
public:
    explicit LruCache(size_t capacity) : capacity_(capacity) {}

    ~LruCache() override {
        for (auto &named : table_) destroy(named.second);
    }

    Handle *Insert(const Slice &key, void *value, size_t charge,
                   void (*deleter)(const Slice &key, void *value)) override {
        Entry *entry = new Entry{{}, key.ToString(), value, charge, deleter, 1, false, {}};
        std::vector<Entry *> dead;
        {
            std::lock_guard<std::mutex> guard(lock_);
            forget(table_.find(entry->key), &dead);
            if (capacity_ == 0) {
                // Nothing is kept: the entry lives as long as it is held.
                entry->forgotten = true;
            } else {
                table_.emplace(entry->key, entry);
                charge_ += charge;
            }
            while (charge_ > capacity_ && !unheld_.empty()) forget(table_.find(unheld_.front()->key), &dead);
        }
        for (Entry *gone : dead) destroy(gone);
        return entry;
    }

    Handle *Lookup(const Slice &key) override {
        std::lock_guard<std::mutex> guard(lock_);
        const auto named = table_.find(key.ToString());
        if (named == table_.end()) return nullptr;
        Entry *entry = named->second;
        if (entry->holders++ == 0) unheld_.erase(entry->place);
        return entry;
    }

    void Release(Handle *handle) override {
        Entry *entry = static_cast<Entry *>(handle);
        std::vector<Entry *> dead;
        {
            std::lock_guard<std::mutex> guard(lock_);
            if (--entry->holders != 0) return;
            if (entry->forgotten) {
                dead.push_back(entry);
            } else {
                entry->place = unheld_.insert(unheld_.end(), entry);
                while (charge_ > capacity_ && !unheld_.empty()) forget(table_.find(unheld_.front()->key), &dead);
            }
        }
        for (Entry *gone : dead) destroy(gone);
    }

    void *Value(Handle *handle) override { return static_cast<Entry *>(handle)->value; }

    void Erase(const Slice &key) override {
        std::vector<Entry *> dead;
        {
            std::lock_guard<std::mutex> guard(lock_);
            forget(table_.find(key.ToString()), &dead);
        }
        for (Entry *gone : dead) destroy(gone);
    }

    uint64_t NewId() override {
        std::lock_guard<std::mutex> guard(lock_);
        return ++last_id_;
    }

    void Prune() override {
        std::vector<Entry *> dead;
        {
            std::lock_guard<std::mutex> guard(lock_);
            while (!unheld_.empty()) forget(table_.find(unheld_.front()->key), &dead);
        }
        for (Entry *gone : dead) destroy(gone);
    }

    size_t TotalCharge() const override {
        std::lock_guard<std::mutex> guard(lock_);
        return charge_;
    }

private:
    using Table = std::unordered_map<std::string, Entry *>;

    // Takes an entry, if it is one, out of the table; adds it to the dead if it is not in use.
    void forget(Table::iterator named, std::vector<Entry *> *dead) {
        if (named == table_.end()) return;
        Entry *entry = named->second;
        table_.erase(named);
        charge_ -= entry->charge;
        entry->forgotten = true;
        if (entry->holders == 0) {
            unheld_.erase(entry->place);
            dead->push_back(entry);
        }
    }

    static void destroy(Entry *entry) {
        entry->deleter(entry->key, entry->value);
        delete entry;
    }

    const size_t capacity_;
    mutable std::mutex lock_;
    Table table_;
    std::list<Entry *> unheld_;
    size_t charge_ = 0;
    uint64_t last_id_ = 0;
};

} // namespace

Cache *NewLRUCache(size_t capacity) { return new LruCache(capacity); }

} // namespace leveldb
