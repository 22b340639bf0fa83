//! The demo on a small list: it kills its loader, balances the books, and refuses to clear what is not its own.

use crate::support::{HEEDING, Yard, end_of, signal, spawn};
use mangrove_testkit::c_library::{CLibrary, root};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_demo_loses_nothing_and_prints_its_table() {
    let yard = Yard::new();
    let words: String = (0..4000).map(|i| format!("mangrove-{i}\n")).collect();
    fs::write(yard.path("words"), words).unwrap();
    let database = database(&yard);
    // What killed demos leave: half a pool, the mark alone, an empty directory.
    for (file, text) in [("demo.pool/pool", ""), ("demo.pool/image", "half"), (&in_heap(MARK), "")] {
        fs::create_dir_all(yard.path(file).parent().unwrap()).unwrap();
        fs::write(yard.path(file), text).unwrap();
    }
    fs::write(yard.path("demo.pool").join(MARK), "").unwrap();
    fs::create_dir(yard.path("demo.sqlite")).unwrap();
    let with_database =
        ["acknowledged INSERTs, each a transaction", "every acknowledged row is there and correct"];
    // The second time as where the example is not built.
    for (seed, last, chapter) in [
        ("1", &["--sqlite", &database][..], &with_database[..]),
        ("2", &[], &["the chapter on SQLite is left out"]),
    ] {
        let demo = ["demo", "--words", "words", "--dir", ".", "--seed", seed];
        let said = yard.ok(&[&demo[..], last].concat());
        for line in
            ["4,000 words", "SIGKILL, seed", "is there and correct", "recovery after the kill", "floor: "]
                .iter()
                .chain(&["the accounts hold 104,857,600", "acknowledged transfers is there"])
                .chain(chapter)
        {
            assert!(said.contains(line), "no '{line}' in: {said}");
        }
        assert_eq!(yard.ok(&["map", "count", "demo.pool"]), "4000\n");
        assert_eq!(yard.ok(&["map", "get", "demo.pool", "mangrove-41"]), "42\n");
        yard.ok(&["map", "check", "demo.pool"]);
        // A larger map leaves one, and the next demo still takes the pool for its own.
        fs::write(yard.path("demo.pool/index"), "").unwrap();
    }
    fs::write(yard.path("demo.pool/letter"), "dear").unwrap();
    yard.fails(&["demo", "--words", "words", "--dir", "."], 2, "which no demo made");
    assert!(yard.path("demo.pool/letter").exists());
    fs::write(yard.path("twice"), "a\nb\na\n").unwrap();
    yard.fails(&["demo", "--words", "twice", "--dir", "elsewhere"], 2, "holds a word twice");
}

/// What a demo puts into the directory of each of its pools.
const MARK: &str = "made-by-mangrove-demo";

fn in_heap(name: &str) -> String {
    format!("demo.heap/{name}")
}

#[test]
fn a_demo_leaves_pools_alone_that_no_demo_made_or_that_are_in_use() {
    let yard = Yard::new();
    fs::write(yard.path("words"), "a\nb\n").unwrap();
    let demo = ["demo", "--words", "words", "--dir", "."];
    yard.ok(&["map", "put", "demo.pool", "k", "mine", "--medium=file"]);
    fs::write(yard.path("demo.pool").join(MARK), "").unwrap();
    // All of them are looked at before one is removed.
    yard.ok(&["map", "put", "demo.heap", "k", "mine", "--medium=file"]);
    yard.fails(&demo, 2, "./demo.heap is in the way: no demo made it");
    fs::rename(yard.path("demo.heap"), yard.path("mine")).unwrap();
    std::os::unix::fs::symlink("mine", yard.path("demo.heap")).unwrap();
    fs::write(yard.path("mine").join(MARK), "").unwrap();
    yard.fails(&demo, 2, "./demo.heap is in the way: no demo made it");
    fs::remove_file(yard.path("demo.heap")).unwrap();
    fs::write(yard.path("demo.sqlite"), "mine").unwrap();
    yard.fails(&demo, 2, "./demo.sqlite is in the way: no demo made it");
    fs::remove_file(yard.path("demo.sqlite")).unwrap();

    let load = ["map", "load", "demo.pool", "-", "--report"];
    let mut owner = spawn(yard.command(&load).stdin(Stdio::piped()));
    owner.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
    owner.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    yard.fails(&demo, 3, &format!("./demo.pool is in use by process {} (mangrove)", owner.id()));
    drop(owner.stdin.take());
    assert_eq!(end_of(&mut owner), Some(0));
    for pool in ["demo.pool", "mine"] {
        assert_eq!(yard.ok(&["map", "get", pool, "k"]), "mine\n");
    }
}

/// The program of examples/sqlite, built as `make run` does.
fn database(yard: &Yard) -> String {
    let crate_folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../app");
    let library = CLibrary::new(
        ["mangrove-app", crate_folder, env!("CARGO_TARGET_TMPDIR"), env!("CARGO")],
        "libmangrove_app.so",
        Some("libmangrove_app.so.0"),
    );
    let program = yard.path("sqlite-example");
    let build = root().join("examples/sqlite/build");
    let built = Command::new(build).arg(library.folder()).arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program.to_str().unwrap().to_owned()
}

/// A program in the database's place that forgets a row after it has acknowledged it.
#[test]
fn a_row_that_is_lost_ends_the_demo_with_its_number() {
    let yard = Yard::new();
    let words: String = (0..400).map(|i| format!("mangrove-{i}\n")).collect();
    fs::write(yard.path("words"), words).unwrap();
    let forgetful = "#!/bin/sh\ncase \"$2\" in\n\
        CREATE*) : >rows ;;\n\
        PRAGMA*) echo ok ;;\n\
        SELECT*) sed 7d rows ;;\n\
        '') while read -r _ _ _ _ id word _ _; do id=${id#(}; id=${id%,}; word=${word#\\'}; \
        echo \"$id|${word%\\')}\" >>rows; echo \"$id\"; done ;;\n\
        esac\n";
    fs::write(yard.path("forgetful"), forgetful).unwrap();
    assert!(Command::new("chmod").arg("755").arg(yard.path("forgetful")).status().unwrap().success());
    let program = yard.path("forgetful").to_str().unwrap().to_owned();
    let demo = ["demo", "--words", "words", "--dir", ".", "--sqlite", &program];
    yard.fails(&demo, 3, "the row '8|mangrove-7' in the place of '7|mangrove-6'");
}

/// Ctrl-C goes to the demo and to its loader, which does not catch it while it makes the pool.
#[test]
fn a_demo_that_is_interrupted_early_says_so() {
    let yard = Yard::new();
    let words: String = (0..4000).map(|i| format!("mangrove-{i}\n")).collect();
    // A pipe, so that the loader has no word before the signal comes, however late that is.
    assert!(Command::new("mkfifo").arg(yard.path("words")).status().unwrap().success());
    let demo = ["demo", "--words", "words", "--dir", "."];
    let mut child = spawn(yard.command_behind(&HEEDING, &demo).process_group(0));
    fs::write(yard.path("words"), words).unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let _for_the_loader = fs::File::options().write(true).open(yard.path("words")).unwrap();
    while !yard.path("demo.pool/log").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the demo ended early");
        std::thread::sleep(Duration::from_millis(1));
    }
    let both = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &both]).status().unwrap().success());
    assert_eq!(end_of(&mut child), Some(130));
    assert!(yard.path("demo.pool").join(MARK).exists());
}

#[test]
fn a_demo_and_a_doctor_that_are_stopped_leave_no_file_that_they_measured_the_disk_with() {
    let yard = Yard::new();
    fs::write(yard.path("words"), "a\nb\n").unwrap();
    let floors = || yard.names().into_iter().filter(|name| name.starts_with(".mangrove-floor-")).count();
    for args in [&["doctor", ".", "--measure", "60000"][..], &["demo", "--words", "words", "--dir", "."]] {
        let mut child = spawn(&mut yard.command_behind(&HEEDING, args));
        while floors() == 0 {
            assert!(child.try_wait().unwrap().is_none(), "{args:?} ended early");
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        signal(&child, "TERM");
        assert_eq!(end_of(&mut child), Some(130), "{args:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{args:?} measured on");
        assert_eq!(floors(), 0, "{args:?}");
    }
}
