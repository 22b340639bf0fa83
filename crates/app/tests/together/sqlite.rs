//! The SQLite example: the stock library's `:memory:` database is back after SIGKILL.

use crate::common;
use crate::common::{cc, here, libraries, root, told};
use mangrove_testkit::stress::kill_writers;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn build(folder: &Path) -> PathBuf {
    let from = root().join("examples/sqlite");
    compile(folder, &["durable_sqlite.c", "main.c", "stress.c", "bench.c"].map(|s| from.join(s)))
}

fn compile(folder: &Path, sources: &[PathBuf]) -> PathBuf {
    let program = folder.join("sqlite");
    common::run(
        cc().args(sources)
            .arg("-I")
            .arg(root().join("examples/sqlite"))
            .arg("-o")
            .arg(&program)
            .arg(libraries().join("libmangrove_app.so"))
            .arg("-lsqlite3")
            .arg(format!("-Wl,-rpath,{}", libraries().display())),
    );
    program
}

fn run(program: &Path, state: &Path, sql: &[&str]) -> Output {
    Command::new(program).arg(state).args(sql).output().expect("runs")
}

#[track_caller]
fn rows(program: &Path, state: &Path, sql: &[&str]) -> String {
    let output = run(program, state, sql);
    assert!(output.status.success(), "{}", told(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Lets a shell run `sql`, a line at a time, and kills it; returns what it printed.
fn killed(program: &Path, state: &Path, sql: &[&str]) -> Vec<String> {
    let mut child =
        Command::new(program).arg(state).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut answers = Vec::new();
    for line in sql {
        // The second statement is a read: when its answer is here, the first is durable.
        writeln!(stdin, "{line}").expect("takes it");
        writeln!(stdin, "SELECT 'done'").expect("takes it");
        let mut answer = String::new();
        while !answer.ends_with("done\n") {
            assert!(stdout.read_line(&mut answer).expect("says") > 0, "the shell ended at {line}");
        }
        answers.push(answer.trim_end_matches("done\n").to_owned());
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("ends");
    answers
}

#[test]
fn everything_in_the_database_is_back() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("db"));
    let said = killed(
        &program,
        &state,
        &[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE, body BLOB)",
            "CREATE VIEW v AS SELECT name, length(body) AS n FROM t",
            "CREATE TRIGGER g AFTER INSERT ON t WHEN new.id = 3 BEGIN UPDATE t SET name = 'third' WHERE id = 3; END",
            "CREATE VIRTUAL TABLE words USING fts5(text)",
            "INSERT INTO t VALUES (1, 'one', zeroblob(100000)), (2, 'two', x'00ff'), (3, 'x', NULL)",
            "INSERT INTO words VALUES ('mangroves grow at the sea'), ('lost at sea')",
            "BEGIN; INSERT INTO t VALUES (4, 'four', ''); DELETE FROM t WHERE id = 2; COMMIT",
            "BEGIN; DELETE FROM t; ROLLBACK",
            "INSERT INTO t VALUES (9, 'nine', 1), (1, 'again', 2)",
            "SELECT * FROM v ORDER BY n DESC, name",
            "CREATE TEMP TABLE scratch AS SELECT * FROM t",
        ],
    );
    assert_eq!(said[9], "one|100000\nfour|0\nthird|\n");
    // Reads of a killed run leave nothing that disturbs a later one.
    for _ in 0..3 {
        let again = killed(
            &program,
            &state,
            &[
                "SELECT * FROM v ORDER BY n DESC, name",
                "SELECT count(*) FROM words WHERE text MATCH 'sea'",
                "SELECT abs(-9223372036854775807 - 1)",
                "SELECT group_concat(name, '+') FROM (SELECT name FROM t ORDER BY name)",
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) SELECT sum(i) FROM n",
                "UPDATE t SET body = zeroblob(50000) WHERE id = 4",
                "UPDATE t SET body = '' WHERE id = 4",
            ],
        );
        assert_eq!(again[0], said[9]);
        assert_eq!((&*again[1], &*again[2]), ("2\n", ""));
        assert_eq!((&*again[3], &*again[4]), ("four+one+third\n", "500500\n"));
    }
    assert_eq!(
        rows(&program, &state, &["PRAGMA integrity_check", "VACUUM", "PRAGMA integrity_check"]),
        "ok\nok\n"
    );
    assert_eq!(rows(&program, &state, &["SELECT count(*), sum(id) FROM t"]), "3|8\n");
}

#[test]
fn what_would_not_be_durable_is_refused_with_a_sentence() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("db"));
    let file = scratch.path().join("other.db");
    for (sql, sentence) in [
        (format!("ATTACH '{}' AS other", file.display()), "not authorized"),
        // Names that are known only when the statement runs.
        (format!("ATTACH '{}' || '' AS other", file.display()), "not authorized"),
        ("ATTACH ? AS other".into(), "not authorized"),
        ("PRAGMA temp_store = FILE".into(), "not authorized"),
        ("PRAGMA Temp_Store = FILE".into(), "not authorized"),
        ("PRAGMA JOURNAL_MODE = OFF".into(), "not authorized"),
        ("BEGIN".into(), "must end in the text in which it begins"),
        ("SELECT nonsense".into(), "no such column"),
    ] {
        let output = run(&program, &state, &[&sql]);
        assert_eq!(output.status.code(), Some(1), "{sql}: {}", told(&output));
        assert!(told(&output).contains(sentence), "{sql}: {}", told(&output));
    }
    assert!(!file.exists());
}

#[test]
fn one_statement_runs_many_times_in_one_transaction() {
    passes("sqlite_many.c");
}

#[test]
fn a_text_runs_once_however_long_its_rows_are() {
    passes("sqlite_rows.c");
}

#[test]
fn what_is_not_acknowledged_has_no_answer() {
    passes("sqlite_lost.c");
}

#[test]
fn the_connection_has_no_free_lists_of_its_own() {
    passes("sqlite_lists.c");
}

/// A C program with the glue.
#[track_caller]
fn passes(source: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let glue = root().join("examples/sqlite/durable_sqlite.c");
    let program = compile(scratch.path(), &[here().join("tests/c").join(source), glue]);
    let output = run(&program, &scratch.path().join("db"), &[]);
    assert!(output.status.success(), "{}", told(&output));
}

/// The shell, which gets its lines from the test and answers it.
fn shell(program: &Path, state: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg(state).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs")
}

/// The limit on the size of files stands for a medium that fails.
#[test]
fn a_shell_that_cannot_write_shows_nothing_more_and_ends() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("db"));
    let mut child = shell(&program, &state);
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut text = String::new();
    writeln!(stdin, "CREATE TABLE t (a); SELECT 'made'").expect("takes it");
    stdout.read_line(&mut text).expect("says");
    common::run(Command::new("prlimit").args(["--pid", &child.id().to_string(), "--fsize=16384"]));
    for n in 1..=200 {
        // It may have ended.
        let _ = writeln!(stdin, "INSERT INTO t VALUES ({n}) RETURNING a");
    }
    let _ = writeln!(stdin, "SELECT 'still there'");
    drop(stdin);
    stdout.read_to_string(&mut text).expect("UTF-8");
    assert_eq!(child.wait().expect("ends").code(), Some(3));
    let shown: Vec<&str> = text.lines().collect();
    let there = rows(&program, &state, &["SELECT a FROM t"]);
    assert!(shown.len() <= 200 && "made\n".to_owned() + &there == text, "{shown:?} {there}");
}

#[test]
fn a_shell_ends_with_the_worst_code() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("db"));
    let mut child = shell(&program, &state);
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"SELECT nonsense\nSELECT 'next'\n").expect("takes it");
    drop(stdin);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert_eq!(output.stdout, b"next\n");
}

/// What `mangrove bench durable --only sqlite` runs.
#[test]
fn the_bench_inserts_whole_transactions() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build(scratch.path());
    for subject in ["durable", "interval", "wal", "wal-normal", "wal-shared", "memory"] {
        let output = Command::new(&program)
            .args(["bench", subject])
            .arg(scratch.path().join(subject))
            .args(["0.2", "2", "insert", "7"])
            .output()
            .expect("runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = printed.trim().strip_prefix(subject).and_then(|rate| rate.trim().parse::<f64>().ok());
        assert!(rate.is_some_and(|rate| rate > 0.0), "{}", told(&output));
    }
    let inserted =
        rows(&program, &scratch.path().join("durable"), &["SELECT (count(*) - 100000) % 7 FROM t"]);
    assert_eq!(inserted, "0\n");
}

/// What a figure compares: no subject has locks or statistics that another has not.
#[test]
fn the_bench_sets_up_the_stock_library_as_the_durable_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let glue = root().join("examples/sqlite/durable_sqlite.c");
    let program = compile(scratch.path(), &[here().join("tests/c/sqlite_stock.c"), glue]);
    for subject in ["wal", "wal-normal", "wal-shared", "memory"] {
        let output =
            Command::new(&program).arg(subject).arg(scratch.path().join(subject)).output().expect("runs");
        assert!(output.status.success(), "{subject}: {}", told(&output));
    }
}

#[test]
fn writers_that_are_killed_leave_a_sound_database() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("db"));
    kill_writers(&program, &state);
}
