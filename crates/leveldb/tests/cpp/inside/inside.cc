// inside.cc: answers for this library the calls that LevelDB's own tests make into LevelDB's inside. It is compiled
// with LevelDB's sources, which are fetched when the test runs; there are no levels and no table files here.

#include "db/db_impl.h"

namespace leveldb {

Status DBImpl::TEST_CompactMemTable() {
    static_cast<DB *>(this)->CompactRange(nullptr, nullptr);
    return Status();
}

void DBImpl::TEST_CompactRange(int, const Slice *begin, const Slice *end) {
    static_cast<DB *>(this)->CompactRange(begin, end);
}

Iterator *DBImpl::TEST_NewInternalIterator() { return NewErrorIterator(Status::NotSupported("no levels")); }

int64_t DBImpl::TEST_MaxNextLevelOverlappingBytes() { return 0; }

} // namespace leveldb
