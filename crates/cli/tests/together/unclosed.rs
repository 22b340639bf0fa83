//! Pools whose process was killed and whose files were cut, blanked or exchanged afterwards: every command says so and
//! ends with the exit code for it, and none makes a new map in them.

use crate::support::{Yard, spawn};
use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

/// Exit code for a pool or I/O error.
const POOL: i32 = 3;
const RECORDS: usize = 200;

fn key(n: usize) -> String {
    format!("{}{n:04}", "k".repeat(800))
}

/// Loads records into the pool, and kills the loader when it has acknowledged all of them.
fn load_and_kill(yard: &Yard, pool: &str, medium: &str, from: usize) {
    let args = ["map", "load", pool, "-", "--report", "--medium", medium, "--log", "1M", "--format", "tsv"];
    let mut loader = spawn(yard.command(&args).stdin(Stdio::piped()));
    let tsv: String = (from..from + RECORDS).map(|n| format!("{}\tvalue {n}\n", key(n))).collect();
    // Both pipes stay open, so the loader is alive when it is killed.
    let mut input = loader.stdin.take().unwrap();
    input.write_all(tsv.as_bytes()).unwrap();
    input.flush().unwrap();
    let mut acknowledged = vec![0; 8 * RECORDS];
    loader.stdout.as_mut().unwrap().read_exact(&mut acknowledged).unwrap();
    loader.kill().unwrap();
    loader.wait().unwrap();
}

/// Puts these bytes in place of a file of the pool; then every command must refuse it and name the file.
fn refused(yard: &Yard, pool: &str, file: &str, bytes: &[u8], what: &str) {
    let path = yard.path(pool).join(file);
    fs::write(&path, bytes).unwrap();
    let name = format!("{pool}/{file} is damaged");
    yard.run(&["map", "get", pool, &key(0)]).is(POOL, &name, what);
    yard.run(&["map", "check", pool]).is(POOL, &name, what);
    yard.run(&["map", "put", pool, "new", "value"]).is(POOL, &name, what);
    yard.run(&["map", "count", pool]).is(POOL, &name, what);
    assert!(fs::read(path).unwrap() == bytes, "{what}: the refusals changed the file");
}

/// The pool holds the loaded records, and so many others.
fn holds(yard: &Yard, pool: &str, loaded: usize, others: usize) {
    assert_eq!(yard.ok(&["map", "count", pool]).trim(), (loaded + others).to_string());
    assert_eq!(yard.ok(&["map", "get", pool, &key(loaded - 1)]).trim(), format!("value {}", loaded - 1));
    yard.ok(&["map", "check", pool]);
}

#[test]
fn an_image_that_was_cut_or_blanked_is_refused() {
    let yard = Yard::new();
    load_and_kill(&yard, "p", "emulated", 0);
    let image = fs::read(yard.path("p/image")).unwrap();
    for len in [0, 4096, image.len() / 2, image.len() - 4096] {
        refused(&yard, "p", "image", &image[..len], &format!("cut to {len}"));
    }
    refused(&yard, "p", "image", &vec![0; image.len()], "all blank");
    // The root page, the first page of the directory, and a page in the middle of leaves.
    let leaves = image.windows(16).position(|bytes| bytes == [b'k'; 16]).unwrap() / 4096 + 1;
    for page in [0, 1, leaves] {
        let mut bytes = image.clone();
        bytes[page * 4096..][..4096].fill(0);
        refused(&yard, "p", "image", &bytes, &format!("page {page} blank"));
    }
    fs::write(yard.path("p/image"), &image).unwrap();
    holds(&yard, "p", RECORDS, 0);
    yard.ok(&["map", "put", "p", "new", "value"]);
}

#[test]
fn a_log_that_is_blank_or_another_is_refused() {
    let yard = Yard::new();
    load_and_kill(&yard, "other", "file", 0);
    let others = fs::read(yard.path("other/log")).unwrap();
    load_and_kill(&yard, "p", "file", 0);
    let first = fs::read(yard.path("p/log")).unwrap();
    let blank = vec![0; first.len()];
    refused(&yard, "p", "log", &blank, "blank, never closed");
    refused(&yard, "p", "log", &others, "another pool's, never closed");
    fs::write(yard.path("p/log"), &first).unwrap();
    load_and_kill(&yard, "p", "file", RECORDS);
    let second = fs::read(yard.path("p/log")).unwrap();
    refused(&yard, "p", "log", &first, "a copy from before the last opening");
    fs::write(yard.path("p/log"), &second).unwrap();
    holds(&yard, "p", 2 * RECORDS, 0);
    // Closing runs a checkpoint.
    yard.ok(&["map", "put", "p", "new", "value"]);
    load_and_kill(&yard, "p", "file", 2 * RECORDS);
    let third = fs::read(yard.path("p/log")).unwrap();
    for (log, what) in
        [(&blank, "blank"), (&others, "another pool's"), (&second, "from before the checkpoint")]
    {
        refused(&yard, "p", "log", log, &format!("{what}, after a checkpoint"));
    }
    fs::write(yard.path("p/log"), &third).unwrap();
    holds(&yard, "p", 3 * RECORDS, 1);
}
