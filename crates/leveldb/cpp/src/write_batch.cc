// write_batch.cc: batches, as bytes in LevelDB's form: crates/leveldb/src/change_list.rs describes it, and the engine
// reads it from there.

#include "leveldb/write_batch.h"

#include <cstdint>

namespace leveldb {

namespace {

// Bytes before the first change: 8 that are zero, and the count.
constexpr size_t kHeaderBytes = 12;
constexpr size_t kCountAt = 8;
constexpr char kRemoves = 0;
constexpr char kSets = 1;

uint32_t count_of(const std::string &bytes) {
    uint32_t count = 0;
    for (int i = 3; i >= 0; i--) count = count << 8 | static_cast<unsigned char>(bytes[kCountAt + i]);
    return count;
}

void add_to_count(std::string *bytes, uint32_t more) {
    uint32_t count = count_of(*bytes) + more;
    for (int i = 0; i < 4; i++, count >>= 8) (*bytes)[kCountAt + i] = static_cast<char>(count);
}

void push(std::string *bytes, const Slice &slice) {
    size_t length = slice.size();
    for (; length >= 0x80; length >>= 7) bytes->push_back(static_cast<char>(length | 0x80));
    bytes->push_back(static_cast<char>(length));
    bytes->append(slice.data(), slice.size());
}

// Takes a length and that many bytes off the front.
bool take(Slice *bytes, Slice *slice) {
    size_t length = 0;
    for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
        const unsigned char byte = static_cast<unsigned char>((*bytes)[0]);
        bytes->remove_prefix(1);
        length |= static_cast<size_t>(byte & 0x7f) << shift;
        if (byte >= 0x80) continue;
        if (length > bytes->size()) return false;
        *slice = Slice(bytes->data(), length);
        bytes->remove_prefix(length);
        return true;
    }
    return false;
}

} // namespace

WriteBatch::WriteBatch() : rep_(kHeaderBytes, '\0') {}

WriteBatch::~WriteBatch() = default;

WriteBatch::Handler::~Handler() = default;

void WriteBatch::Clear() { rep_.assign(kHeaderBytes, '\0'); }

size_t WriteBatch::ApproximateSize() const { return rep_.size(); }

void WriteBatch::Put(const Slice &key, const Slice &value) {
    rep_.push_back(kSets);
    push(&rep_, key);
    push(&rep_, value);
    add_to_count(&rep_, 1);
}

void WriteBatch::Delete(const Slice &key) {
    rep_.push_back(kRemoves);
    push(&rep_, key);
    add_to_count(&rep_, 1);
}

void WriteBatch::Append(const WriteBatch &source) {
    // The source may be this batch: its count and its length are taken before either changes.
    const uint32_t more = count_of(source.rep_);
    const size_t bytes = source.rep_.size() - kHeaderBytes;
    rep_.append(source.rep_, kHeaderBytes, bytes);
    add_to_count(&rep_, more);
}

Status WriteBatch::Iterate(Handler *handler) const {
    if (rep_.size() < kHeaderBytes) return Status::Corruption("malformed WriteBatch (too small)");
    Slice rest(rep_.data() + kHeaderBytes, rep_.size() - kHeaderBytes);
    uint32_t found = 0;
    for (Slice key, value; !rest.empty(); found++) {
        const char kind = rest[0];
        rest.remove_prefix(1);
        if (kind != kSets && kind != kRemoves) return Status::Corruption("unknown WriteBatch tag");
        if (!take(&rest, &key)) {
            return Status::Corruption(kind == kSets ? "bad WriteBatch Put" : "bad WriteBatch Delete");
        }
        if (kind == kRemoves) {
            handler->Delete(key);
        } else if (take(&rest, &value)) {
            handler->Put(key, value);
        } else {
            return Status::Corruption("bad WriteBatch Put");
        }
    }
    if (found != count_of(rep_)) return Status::Corruption("WriteBatch has wrong count");
    return Status();
}

} // namespace leveldb
