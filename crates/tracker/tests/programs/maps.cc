// Data structures of the kind that people want to make durable.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>
#include <deque>
#include <stdexcept>

// A chained hash map in the style of C.
struct Entry { Entry *next; uint64_t key; char value[100]; };
struct Map { Entry **buckets; size_t mask, count; };
static Map table;
static uint64_t seed = 1;
static char value[128];
static uint64_t next_random() { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }

extern "C" void hash_map_open(void *) {
    table.mask = (1 << 16) - 1;
    table.buckets = (Entry **)calloc(table.mask + 1, sizeof(Entry *));
    for (size_t i = 0; i < sizeof value; i++) value[i] = (char)i;
}
__attribute__((noinline)) static void put(uint64_t key, const char *from) {
    Entry **at = &table.buckets[(key * 0x9E3779B97F4A7C15ull >> 40) & table.mask];
    for (Entry *e = *at; e; e = e->next)
        if (e->key == key) { memcpy(e->value, from, 100); return; }
    Entry *e = (Entry *)malloc(sizeof *e);
    e->key = key;
    memcpy(e->value, from, 100);
    e->next = *at;
    *at = e;
    table.count++;
}
extern "C" void hash_map_puts(void *arg) {
    size_t n = (size_t)arg;
    for (size_t i = 0; i < n; i++) { value[i & 63]++; put(next_random() % 100000, value); }
}
static std::map<uint64_t, std::string> ordered;
extern "C" void map_puts(void *arg) {
    size_t n = (size_t)arg;
    for (size_t i = 0; i < n; i++) ordered[next_random() % 200000] = "a string that does not fit inline";
}
static std::map<uint64_t, uint64_t> plain;
extern "C" void plain_map_puts(void *arg) {
    size_t n = (size_t)arg;
    for (size_t i = 0; i < n; i++) plain[next_random() % 200000] = i;
}
static std::unordered_map<std::string, std::string> unordered;
extern "C" void unordered_puts(void *arg) {
    size_t n = (size_t)arg;
    for (size_t i = 0; i < n; i++) unordered["key number " + std::to_string(next_random() % 5000)] = std::to_string(i);
}
static std::vector<std::string> strings;
static std::deque<int> numbers;
extern "C" void sequences(void *arg) {
    size_t n = (size_t)arg;
    for (size_t i = 0; i < n; i++) {
        strings.push_back(std::string(next_random() % 60, 'x'));
        numbers.push_back((int)i);
        if (i % 3 == 0) numbers.pop_front();
    }
}
static int caught;
static void thrower(int depth) {
    std::string local(40, 'y');
    if (depth == 0) throw std::runtime_error("from below " + local);
    thrower(depth - 1);
}
extern "C" void exceptions(void *arg) {
    for (size_t i = 0; i < (size_t)arg; i++)
        try { thrower((int)(i % 9)); } catch (std::exception &e) { caught += (int)strlen(e.what()); }
}
extern "C" void throws_out(void *) { thrower(3); }
static int compare(const void *a, const void *b) { return (*(int *)a > *(int *)b) - (*(int *)a < *(int *)b); }
static std::vector<int> sorted;
extern "C" void sort_fill(void *arg) { sorted.resize((size_t)arg); for (int &x : sorted) x = (int)next_random(); }
extern "C" void sort_ints(void *) { qsort(sorted.data(), sorted.size(), sizeof(int), compare); }
extern "C" void nothing(void *) {}
static char *copies;
extern "C" void copy_open(void *) { copies = (char *)malloc(4 << 20); memset(copies, 1, 4 << 20); }
extern "C" void copy(void *arg) { memcpy(copies, copies + (2 << 20), (size_t)arg); }
extern "C" void copy_many(void *arg) {
    for (int i = 0; i < 64; i++) memcpy(copies + i * 16, copies + (2 << 20), (size_t)arg);
}
