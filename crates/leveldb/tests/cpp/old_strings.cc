// old_strings.cc DIRECTORY: a program with std::string as it was before C++11 (-D_GLIBCXX_USE_CXX11_ABI=0). It is
// told so when it opens a database.

#include <leveldb/db.h>

#include <cstdio>

int main(int, char **arguments) {
    leveldb::Options options;
    options.create_if_missing = true;
    leveldb::DB *db;
    const leveldb::Status status = leveldb::DB::Open(options, std::string(arguments[1]) + "/db", &db);
    printf("%s\n", status.ToString().c_str());
    printf("%d %d %d\n", status.IsNotSupportedError(), db == nullptr,
           leveldb::DestroyDB(arguments[1], options).IsNotSupportedError());
    delete db;
}
