//! The demo's chapter on a program that knows nothing of durability: stock SQLite's `:memory:` database
//! (`examples/sqlite`), a SIGKILL between two INSERTs, and every acknowledged row there afterwards.

use super::pools;
use crate::terminal::exit::Exit;
use crate::terminal::size::count;
use crate::terminal::{interrupt, progress};
use anyhow::{Context, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The example's program, beside this one.
const PROGRAM: &str = "mangrove-sqlite";
/// Acknowledged rows before the kill; fewer where the list of words is short.
const KILL_ROWS: std::ops::Range<usize> = 5_000..20_000;

/// The program that was named, else the one that `make run` has built.
fn program(named: Option<&Path>) -> Option<PathBuf> {
    match named {
        Some(program) => Some(program.to_owned()),
        None => {
            Some(std::env::current_exe().ok()?.with_file_name(PROGRAM)).filter(|program| program.exists())
        }
    }
}

/// Runs the chapter on the database that it makes at `path`.
pub(super) fn run(named: Option<&Path>, path: &Path, words: &[Vec<u8>], seed: u64) -> anyhow::Result<Exit> {
    say!("");
    let Some(program) = program(named) else {
        say!("the chapter on SQLite is left out: examples/sqlite is not built here (`make run` builds it)");
        return Ok(Exit::Ok);
    };
    pools::begin(path)?;
    answer(&program, path, "CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT)")?;
    let most = KILL_ROWS.end.min(words.len()).max(2);
    let goal = StdRng::seed_from_u64(seed).random_range(KILL_ROWS.start.min(most / 2)..most).max(1);
    say!("SQLite: the stock library with its :memory: database, made durable by examples/sqlite");
    let Some(killed) = insert_and_kill(&program, path, words, goal)? else {
        return Ok(Exit::Interrupted);
    };
    say!(
        "killed it (SIGKILL, seed {seed}) after {} acknowledged INSERTs, each a transaction, {} a second",
        count(killed.acknowledged as u64),
        count((killed.acknowledged as f64 / killed.seconds.max(1e-9)) as u64)
    );
    let start = Instant::now();
    let check = answer(&program, path, "PRAGMA integrity_check")?;
    let opened = start.elapsed();
    ensure!(check == "ok\n", "SQLite's own check says {check}");
    let there = rows_there(&answer(&program, path, "SELECT id, word FROM words ORDER BY id")?, words)?;
    ensure!(
        there >= killed.acknowledged,
        "{} rows were acknowledged and {there} are there",
        killed.acknowledged
    );
    ensure!(there <= killed.sent, "{} rows were sent and {there} are there", killed.sent);
    say!(
        "opened again and checked in {:.0} ms: every acknowledged row is there and correct; {} more was under way",
        opened.as_secs_f64() * 1e3,
        count((there - killed.acknowledged) as u64)
    );
    Ok(Exit::Ok)
}

/// What one text of SQL answers.
fn answer(program: &Path, path: &Path, sql: &str) -> anyhow::Result<String> {
    let output = Command::new(program)
        .arg(path)
        .arg(sql)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{sql}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("the database holds text that is no UTF-8")
}

/// The text of a word in SQL.
fn quoted(word: &[u8]) -> String {
    String::from_utf8_lossy(word).replace('\'', "''")
}

/// The rows, which must be the first words of the list in order.
fn rows_there(rows: &str, words: &[Vec<u8>]) -> anyhow::Result<usize> {
    for (index, row) in rows.lines().enumerate() {
        let word = words.get(index).context("more rows than words")?;
        let wanted = format!("{}|{}", index + 1, String::from_utf8_lossy(word));
        ensure!(row == wanted, "there is the row '{row}' in the place of '{wanted}'");
    }
    Ok(rows.lines().count())
}

struct Killed {
    /// Rows whose INSERT was answered.
    acknowledged: usize,
    /// Rows whose INSERT was sent.
    sent: usize,
    seconds: f64,
}

/// Lets the program insert words until `goal` of them were acknowledged, and kills it; `None` when it was interrupted
/// first.
fn insert_and_kill(
    program: &Path,
    path: &Path,
    words: &[Vec<u8>],
    goal: usize,
) -> anyhow::Result<Option<Killed>> {
    let mut child = Command::new(program)
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut to = BufWriter::new(child.stdin.take().context("no pipe to the database")?);
    let mut from = BufReader::new(child.stdout.take().context("no pipe from the database")?);
    let bar = progress::records("insert", goal as u64);
    let (mut acknowledged, mut sent, mut line) = (0, 0, String::new());
    let start = Instant::now();
    let mut seconds = 0.0;
    let mut is_alive = true;
    for (index, word) in words.iter().enumerate() {
        // The answer comes when the row is durable.
        let insert = format!("INSERT INTO words VALUES ({}, '{}') RETURNING id;\n", index + 1, quoted(word));
        if to.write_all(insert.as_bytes()).and_then(|()| to.flush()).is_err() {
            break;
        }
        sent += 1;
        if acknowledged == goal || interrupt::asked() {
            child.kill().context("cannot kill the database's process")?;
            is_alive = false;
            seconds = start.elapsed().as_secs_f64();
        }
        line.clear();
        let len = from.read_line(&mut line).context("cannot read from the database")?;
        if len == 0 {
            break;
        }
        ensure!(line.trim() == (index + 1).to_string(), "the database program printed '{}'", line.trim());
        acknowledged += 1;
        bar.set_position(acknowledged as u64);
    }
    if is_alive {
        // It ended by itself, or the list was too short.
        let _ = child.kill();
    }
    let status = child.wait().context("cannot wait for the database's process")?;
    bar.abandon();
    if interrupt::asked() {
        return Ok(None);
    }
    ensure!(!is_alive, "the database's process ended by itself ({status})");
    Ok(Some(Killed { acknowledged, sent, seconds }))
}

#[cfg(test)]
mod tests {
    use super::rows_there;

    #[test]
    fn rows_that_are_wrong_or_in_a_wrong_place_are_found() {
        let words = [b"a's".to_vec(), b"b".to_vec(), b"c".to_vec()];
        assert_eq!(rows_there("1|a's\n2|b\n", &words).unwrap(), 2);
        for wrong in ["1|a's\n3|c\n", "1|a\n", "1|a's\n2|b\n3|c\n4|d\n"] {
            assert!(rows_there(wrong, &words).is_err(), "{wrong}");
        }
    }
}
