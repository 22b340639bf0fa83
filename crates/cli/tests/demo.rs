//! The demo on a small list: it kills its loader, balances the books, and refuses to clear what is not its own.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use support::{HEEDING, Yard, end_of, spawn};

#[test]
fn the_demo_loses_nothing_and_prints_its_table() {
    let yard = Yard::new();
    let words: String = (0..4000).map(|i| format!("mangrove-{i}\n")).collect();
    fs::write(yard.path("words"), words).unwrap();
    for seed in ["1", "2"] {
        let said = yard.ok(&["demo", "--words", "words", "--dir", ".", "--seed", seed]);
        for line in
            ["4,000 words", "SIGKILL, seed", "is there and correct", "recovery after the kill", "floor: "]
                .into_iter()
                .chain(["the accounts hold 104,857,600", "acknowledged transfers is there"])
        {
            assert!(said.contains(line), "no '{line}' in: {said}");
        }
        assert_eq!(yard.ok(&["map", "count", "demo.pool"]), "4000\n");
        assert_eq!(yard.ok(&["map", "get", "demo.pool", "mangrove-41"]), "42\n");
        yard.ok(&["map", "check", "demo.pool"]);
    }
    fs::write(yard.path("demo.pool/letter"), "dear").unwrap();
    yard.fails(&["demo", "--words", "words", "--dir", "."], 2, "which no demo made");
    assert!(yard.path("demo.pool/letter").exists());
    fs::write(yard.path("twice"), "a\nb\na\n").unwrap();
    yard.fails(&["demo", "--words", "twice", "--dir", "elsewhere"], 2, "holds a word twice");
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
}
