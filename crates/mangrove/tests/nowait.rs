//! Writes that no thread waits for, in processes that are killed or that end without closing.

use mangrove::{Durability, Map, MapOptions, Medium};
use mangrove_testkit::command::{LineCount, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const COUNT: usize = 1_000;
/// Passes the directory from a test to the process that it starts.
const FOLDER: &str = "MANGROVE_TEST_FOLDER";

fn options() -> MapOptions {
    Map::options().medium(Medium::File).log_bytes(1 << 20)
}

/// Nothing becomes durable by itself.
fn never() -> MapOptions {
    options().nowait_within(Duration::ZERO)
}

/// The directory, in a process that a test has started.
fn given() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Writes without waiting, in the process that `start` started.
fn fill(path: &Path, options: &MapOptions) -> &'static Map {
    let map: &Map = Box::leak(Box::new(options.open(path).unwrap()));
    for i in 0..COUNT {
        map.put_nowait(format!("k{i:04}"), format!("value-{i:04}")).unwrap();
    }
    map
}

/// Starts this program again, for the test `name` alone.
fn start(name: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FOLDER, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn assert_all(path: &Path) {
    let map = options().open(path).unwrap();
    assert_eq!(map.len().unwrap(), COUNT as u64);
    for i in 0..COUNT {
        assert_eq!(map.get(format!("k{i:04}")).unwrap().unwrap(), format!("value-{i:04}").as_bytes());
    }
}

/// The process makes no further call, and is killed when its last record has reached the log.
#[test]
fn an_idle_process_writes_what_it_was_given() {
    if let Some(path) = given() {
        fill(&path, &options());
        println!("\nfilled");
        loop {
            std::thread::park();
        }
    }
    let (_dir, path) = scratch();
    let mut child = start("an_idle_process_writes_what_it_was_given", &path);
    let lines = LineCount::default();
    assert!(lines.of(child.stdout.take().unwrap()).any(|line| line == b"filled"));
    let last = format!("value-{:04}", COUNT - 1);
    wait_until("the last record is in the log", || {
        let log = std::fs::read(path.join("log")).unwrap();
        log.windows(last.len()).any(|bytes| bytes == last.as_bytes())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all(&path);
}

/// Runs this program again, for the test `name` alone, until it ends by itself.
fn ends_well(name: &str, path: &Path) {
    let output = start(name, path).wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    (dir, path)
}

#[test]
fn exit_writes_what_is_left() {
    if let Some(path) = given() {
        fill(&path, &never());
        std::process::exit(0);
    }
    let (_dir, path) = scratch();
    ends_well("exit_writes_what_is_left", &path);
    assert_all(&path);
}

/// The test's thread returns, and so does `main` of the test program.
#[test]
fn a_return_from_main_writes_what_is_left() {
    if let Some(path) = given() {
        fill(&path, &never());
        return;
    }
    let (_dir, path) = scratch();
    ends_well("a_return_from_main_writes_what_is_left", &path);
    assert_all(&path);
}

#[test]
fn exit_writes_what_an_interval_has_left() {
    if let Some(path) = given() {
        fill(&path, &options().durability(Durability::Interval(Duration::from_secs(60))));
        std::process::exit(0);
    }
    let (_dir, path) = scratch();
    ends_well("exit_writes_what_an_interval_has_left", &path);
    assert_all(&path);
}

/// `exit` in a callback, while other threads write and one opens pools; and beside a pool that was closed.
#[test]
fn exit_in_a_callback_beside_busy_threads_ends() {
    if let Some(path) = given() {
        let beside = |name: &str| path.with_file_name(name);
        never().open(beside("closed")).unwrap().close().unwrap();
        let map = fill(&path, &never());
        let other: &'static Map = Box::leak(Box::new(never().open(beside("busy")).unwrap()));
        for thread in 0..2 {
            std::thread::spawn(move || {
                loop {
                    other.put_nowait(format!("busy {thread}"), "x").unwrap();
                }
            });
        }
        let opened = beside("opened");
        std::thread::spawn(move || {
            loop {
                never().open(&opened).unwrap().put_nowait("k", "v").unwrap();
            }
        });
        map.get_with("k0500", |_| std::process::exit(0)).unwrap();
    }
    let (_dir, path) = scratch();
    ends_well("exit_in_a_callback_beside_busy_threads_ends", &path);
    assert_all(&path);
}
