// filter_policy.cc: Bloom filters. A filter is an array of bits and, in its last byte, how many of them a key sets.
// The positions of a key's bits are h, h + d, h + 2d and so on, from two halves of one hash (Kirsch and Mitzenmacher
// 2006).

#include "leveldb/filter_policy.h"

#include <algorithm>
#include <cstdint>

#include "leveldb/slice.h"

namespace leveldb {

FilterPolicy::~FilterPolicy() = default;

namespace {

// Shorter filters would let too many keys pass.
constexpr size_t kBitsMin = 64;
// More bits a key make filters slower and hardly better.
constexpr int kProbesMax = 30;

// FNV-1a, with its bits mixed once more.
uint64_t hash_of(const Slice &key) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < key.size(); i++) {
        hash = (hash ^ static_cast<unsigned char>(key[i])) * 0x100000001b3;
    }
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 29;
}

// Calls `visit` with the positions of a key's bits until it returns false; returns whether it never did.
template <typename Visit>
bool each_bit(const Slice &key, size_t bits, int probes, Visit visit) {
    const uint64_t hash = hash_of(key);
    uint32_t at = static_cast<uint32_t>(hash);
    const uint32_t step = static_cast<uint32_t>(hash >> 32) | 1;
    for (int i = 0; i < probes; i++, at += step) {
        if (!visit(at % bits)) return false;
    }
    return true;
}

class Bloom final : public FilterPolicy {
public:
    // ln 2 probes for each bit let the fewest keys pass.
    explicit Bloom(int bits_per_key)
        : bits_per_key_(static_cast<size_t>(std::max(bits_per_key, 0))),
          probes_(std::clamp(static_cast<int>(static_cast<double>(bits_per_key_) * 0.69), 1, kProbesMax)) {}

    const char *Name() const override { return "mangrove.BloomFilter"; }

    void CreateFilter(const Slice *keys, int n, std::string *dst) const override {
        const size_t bytes = (std::max(static_cast<size_t>(n) * bits_per_key_, kBitsMin) + 7) / 8;
        const size_t begin = dst->size();
        dst->resize(begin + bytes, '\0');
        dst->push_back(static_cast<char>(probes_));
        char *filter = &(*dst)[begin];
        for (int i = 0; i < n; i++) {
            each_bit(keys[i], bytes * 8, probes_, [filter](size_t bit) {
                filter[bit / 8] = static_cast<char>(filter[bit / 8] | 1 << bit % 8);
                return true;
            });
        }
    }

    bool KeyMayMatch(const Slice &key, const Slice &filter) const override {
        if (filter.size() < 2) return false;
        const int probes = static_cast<unsigned char>(filter[filter.size() - 1]);
        // Of another form: perhaps it matches.
        if (probes > kProbesMax) return true;
        return each_bit(key, (filter.size() - 1) * 8, probes, [&filter](size_t bit) {
            return (filter[bit / 8] & 1 << bit % 8) != 0;
        });
    }

private:
    const size_t bits_per_key_;
    const int probes_;
};

} // namespace

const FilterPolicy *NewBloomFilterPolicy(int bits_per_key) { return new Bloom(bits_per_key); }

} // namespace leveldb
