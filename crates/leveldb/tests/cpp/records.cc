// records.cc: makes LevelDB databases for the tests of import and export, and tells what is in one.
//
//     records fill DIRECTORY COUNT     adds records; the last ones stay in the log
//     records dump DIRECTORY           prints how many records there are, and a sum over all of them in order
//     records hold DIRECTORY           opens, prints "open", and waits for the end of its input
//     records order DIRECTORY          makes a database with an order of its own

#include <leveldb/comparator.h>
#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include <cstdlib>
#include <memory>

#include "said.h"

using namespace leveldb;

namespace {

class Backwards : public Comparator {
public:
    int Compare(const Slice &a, const Slice &b) const override { return b.compare(a); }
    const char *Name() const override { return "tests.Backwards"; }
    void FindShortestSeparator(std::string *, const Slice &) const override {}
    void FindShortSuccessor(std::string *) const override {}
};

DB *open(const std::string &directory, const Options &options) {
    DB *db;
    must("open", DB::Open(options, directory, &db));
    return db;
}

uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
    return x ^ x >> 29;
}

// Keys of many lengths in no order, values of up to 300 bytes, and now and then one of 40,000.
void fill(DB *db, uint64_t count) {
    WriteBatch batch;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t x = mixed(i + 1);
        const std::string key = std::to_string(x).substr(0, 1 + x % 19) + std::string(i % 3, '\0');
        const size_t length = x % 1000 == 0 ? 40000 : x >> 20 & 0xff;
        batch.Put(key, std::string(length, static_cast<char>(x >> 8)) + std::to_string(i));
        if (i % 97 == 0) batch.Delete(std::to_string(mixed(i / 2 + 1)).substr(0, 5));
        if (batch.ApproximateSize() > 100000 || i + 1 == count) {
            must("write", db->Write(WriteOptions(), &batch));
            batch.Clear();
        }
    }
}

void dump(DB *db) {
    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
    uint64_t records = 0, sum = 14695981039346656037u;
    const auto add = [&sum](const Slice &bytes) {
        for (size_t i = 0; i < bytes.size(); i++) sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 1099511628211u;
        sum = (sum ^ bytes.size()) * 1099511628211u;
    };
    for (it->SeekToFirst(); it->Valid(); it->Next(), records++) {
        add(it->key());
        add(it->value());
    }
    must("walk", it->status());
    printf("%llu records %016llx\n", static_cast<unsigned long long>(records), static_cast<unsigned long long>(sum));
}

} // namespace

int main(int, char **arguments) {
    const std::string what = arguments[1], directory = arguments[2];
    Options options;
    options.create_if_missing = what != "dump";
    Backwards backwards;
    if (what == "order") options.comparator = &backwards;
    const std::unique_ptr<DB> db(open(directory, options));
    if (what == "fill") fill(db.get(), strtoull(arguments[3], nullptr, 10));
    if (what == "dump") dump(db.get());
    if (what == "order") must("put", db->Put(WriteOptions(), "a", "b"));
    if (what == "hold") {
        printf("open\n");
        fflush(stdout);
        while (getchar() != EOF) {}
    }
}
