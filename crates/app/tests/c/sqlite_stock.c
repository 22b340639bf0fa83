/*
 * The stock subjects of the SQLite example's bench are set up as the durable one is: without locks of a connection and
 * statistics of memory, with a cache that holds the data. Usage: sqlite_stock SUBJECT DIR
 */
#include "check.h"

#include "bench.c"

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    char *arguments[] = {argv[1], argv[2], "0.05", "2", "insert"};
    CHECK(bench(5, arguments) == 0);
    CHECK(shared != NULL && sqlite3_db_mutex(shared) == NULL && sqlite3_memory_used() == 0);
    /* Where clients have a connection each, SQLite as a whole has locks. Without them all are the same dummy. */
    sqlite3_mutex *one = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_MAIN);
    sqlite3_mutex *other = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_LRU);
    CHECK((one != other) == has_own_connection());
    sqlite3 *connections[] = {shared, connect_stock()};
    for (int i = 0; i < 2 && subject != MEMORY; i++) {
        sqlite3_stmt *statement;
        CHECK(sqlite3_prepare_v2(connections[i], "PRAGMA cache_size", -1, &statement, NULL) == SQLITE_OK);
        CHECK(sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_int(statement, 0) == -524288);
        sqlite3_finalize(statement);
    }
    return 0;
}
