// old_strings.cc: for programs whose std::string has the layout from before C++11 (_GLIBCXX_USE_CXX11_ABI=0). Their
// names of functions differ where a string is among the arguments or returned. They cannot be served, because batches
// and virtual functions have strings in them; they get a message when they open a database, and do not crash.
//
// This file alone is compiled with that layout.

#include <string>

#if _GLIBCXX_USE_CXX11_ABI
#error "compile this file with -D_GLIBCXX_USE_CXX11_ABI=0"
#endif

#include "leveldb/db.h"
#include "leveldb/env.h"
#include "status_text.h"

namespace leveldb {

namespace {

Status not_served() {
    return Status::NotSupported(
        "the program was built with std::string as it was before C++11, which Mangrove's LevelDB does not serve; build "
        "it with _GLIBCXX_USE_CXX11_ABI=1");
}

} // namespace

std::string Status::ToString() const { return status_text<std::string>(state_); }

Status DB::Open(const Options &, const std::string &, DB **dbptr) {
    *dbptr = nullptr;
    return not_served();
}

Status DestroyDB(const std::string &, const Options &) { return not_served(); }
Status RepairDB(const std::string &, const Options &) { return not_served(); }

Status WriteStringToFile(Env *, const Slice &, const std::string &) { return not_served(); }
Status ReadFileToString(Env *, const std::string &, std::string *) { return not_served(); }

Status Env::NewAppendableFile(const std::string &, WritableFile **result) {
    *result = nullptr;
    return not_served();
}

Status Env::RemoveFile(const std::string &) { return not_served(); }
Status Env::DeleteFile(const std::string &) { return not_served(); }
Status Env::RemoveDir(const std::string &) { return not_served(); }
Status Env::DeleteDir(const std::string &) { return not_served(); }

} // namespace leveldb
