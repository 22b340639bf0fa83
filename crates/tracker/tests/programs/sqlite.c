// SQLite in memory, in the ways an application uses it.
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static sqlite3 *db; static sqlite3_stmt *insert; static long sum; static int base;
static void die(const char *what) { fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(db)); abort(); }
static void run(const char *sql) { char *e = 0; if (sqlite3_exec(db, sql, 0, 0, &e)) die(e ? e : sql); }
void sqlite_open_memory(void *a) {
    if (sqlite3_open(":memory:", &db)) die("open");
    run("create table t(id integer primary key, k text, v blob); create index ti on t(k);");
    if (sqlite3_prepare_v2(db, "insert into t(k,v) values(?1,?2)", -1, &insert, 0)) die("prepare");
}
void sqlite_insert(void *arg) {
    size_t n = (size_t)arg; if (n > 1) run("begin");
    for (size_t i = 0; i < n; i++) {
        char k[40]; snprintf(k, 40, "key%d", (int)((base + i) * 7919 % 1000003));
        sqlite3_bind_text(insert, 1, k, -1, SQLITE_TRANSIENT); sqlite3_bind_zeroblob(insert, 2, 100);
        if (sqlite3_step(insert) != SQLITE_DONE) die("step"); sqlite3_reset(insert);
    }
    base += n; if (n > 1) run("commit");
}
void sqlite_update(void *a) { run("update t set v=randomblob(60), k=k||'u' where id%3=0"); }
static int row(void *a, int n, char **v, char **c) {
    for (int i = 0; i < n; i++) if (v[i]) sum += strlen(v[i]); return 0;
}
void sqlite_select(void *a) {
    char *e;
    const char *count =
        "select count(*), sum(length(v)), group_concat(substr(k,1,3)) from t where k like 'key1%' order by k";
    if (sqlite3_exec(db, count, row, 0, &e)) die(e);
    const char *join = "select a.k,b.k from t a join t b on a.id=b.id+7 order by a.k desc limit 50";
    if (sqlite3_exec(db, join, row, 0, &e)) die(e);
}
void sqlite_errors(void *a) {
    char *e = 0; sqlite3_exec(db, "select nosuch(1)", 0, 0, &e); sqlite3_free(e);
    sqlite3_exec(db, "begin; delete from t where id<100; rollback; create table t(x)", 0, 0, &e); sqlite3_free(e);
    const char *recursive = "with recursive c(x) as (values(1) union all select x+1 from c where x<3000) "
                            "select sum(x*x)%7, avg(x), printf('%08.3f',max(x)*1.5) from c";
    sqlite3_exec(db, recursive, row, 0, &e);
    sqlite3_exec(db, "vacuum; analyze; reindex; pragma integrity_check", row, 0, &e);
}
