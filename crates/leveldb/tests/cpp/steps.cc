// steps.cc DIRECTORY COUNT: so many calls of each kind, by turns through the C API and through the classes, each in a
// function of its own, whose instructions the test counts.

#include <leveldb/c.h>
#include <leveldb/db.h>

#include <memory>
#include <string>

#include "said.h"

using namespace leveldb;

namespace {

constexpr int kRecords = 1000;

void none(char *error) {
    if (error == nullptr) return;
    fprintf(stderr, "%s\n", error);
    exit(1);
}

// What a caller of either does with a record: looks at a byte of its key and one of its value.
unsigned looked(const char *key, size_t key_len, const char *value, size_t value_len) {
    return static_cast<unsigned char>(key[key_len - 1]) + static_cast<unsigned char>(value[value_len - 1]);
}

} // namespace

#define COUNTED __attribute__((noinline))

COUNTED unsigned next_by_c(leveldb_iterator_t *it) {
    size_t key_len, value_len;
    if (!leveldb_iter_valid(it)) leveldb_iter_seek_to_first(it);
    const char *key = leveldb_iter_key(it, &key_len), *value = leveldb_iter_value(it, &value_len);
    const unsigned sum = looked(key, key_len, value, value_len);
    leveldb_iter_next(it);
    return sum;
}

COUNTED unsigned next_by_classes(Iterator *it) {
    if (!it->Valid()) it->SeekToFirst();
    const Slice key = it->key(), value = it->value();
    const unsigned sum = looked(key.data(), key.size(), value.data(), value.size());
    it->Next();
    return sum;
}

COUNTED unsigned get_by_c(leveldb_t *db, leveldb_readoptions_t *reads, const Slice &key) {
    char *error = nullptr;
    size_t value_len;
    char *value = leveldb_get(db, reads, key.data(), key.size(), &value_len, &error);
    none(error);
    const unsigned sum = looked(key.data(), key.size(), value, value_len);
    leveldb_free(value);
    return sum;
}

COUNTED unsigned get_by_classes(DB *db, const Slice &key, std::string *value) {
    must("get", db->Get(ReadOptions(), key, value));
    return looked(key.data(), key.size(), value->data(), value->size());
}

COUNTED void put_by_c(leveldb_t *db, leveldb_writeoptions_t *writes, const Slice &key, const Slice &value) {
    char *error = nullptr;
    leveldb_put(db, writes, key.data(), key.size(), value.data(), value.size(), &error);
    none(error);
}

COUNTED void put_by_classes(DB *db, const Slice &key, const Slice &value) {
    must("put", db->Put(WriteOptions(), key, value));
}

int main(int, char **arguments) {
    const std::string directory = arguments[1], text(100, 'v');
    const int count = atoi(arguments[2]);
    char *error = nullptr;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_t *by_c = leveldb_open(options, (directory + "/c").c_str(), &error);
    none(error);
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    Options settings;
    settings.create_if_missing = true;
    DB *by_classes;
    must("open", DB::Open(settings, directory + "/classes", &by_classes));

    unsigned sums[2] = {0, 0};
    std::string found;
    for (int i = 0; i < count; i++) {
        char key[17];
        snprintf(key, sizeof key, "%016d", i % kRecords);
        put_by_c(by_c, writes, Slice(key, 16), text);
        put_by_classes(by_classes, Slice(key, 16), text);
        sums[0] += get_by_c(by_c, reads, Slice(key, 16));
        sums[1] += get_by_classes(by_classes, Slice(key, 16), &found);
    }
    leveldb_iterator_t *of_c = leveldb_create_iterator(by_c, reads);
    std::unique_ptr<Iterator> of_classes(by_classes->NewIterator(ReadOptions()));
    for (int i = 0; i < count; i++) {
        sums[0] += next_by_c(of_c);
        sums[1] += next_by_classes(of_classes.get());
    }
    of_classes.reset();
    leveldb_iter_destroy(of_c);
    delete by_classes;
    leveldb_close(by_c);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(writes);
    leveldb_options_destroy(options);
    if (sums[0] != sums[1]) {
        fprintf(stderr, "the two read different records\n");
        return 1;
    }
}
