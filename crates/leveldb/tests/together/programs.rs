//! The C programs of tests/c, built once against LevelDB's own header and library, and run with LevelDB and with this
//! library: what they print must be the same.

use crate::common::{ENGINES, Whose, build, has_leveldb, run, scratch, under_leveldbs_names};
use std::path::Path;

/// Runs a program with LevelDB and with each engine, and compares the outputs.
fn same(name: &str, engines: &[&str], arguments: &[&str]) {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build(name, parent.path());
    let folder = under_leveldbs_names(parent.path());
    let said = |whose: Whose<'_>, place: &str| {
        let output = run(whose.command(&program).arg(scratch(parent.path(), place)).args(arguments)).stdout;
        String::from_utf8(output).expect("UTF-8")
    };
    let expected = said(Whose::LevelDb, "leveldb-data");
    assert!(expected.lines().count() > 10 || name == "threads", "{name} says next to nothing:\n{expected}");
    for engine in engines {
        let ours = said(Whose::Ours(&folder, engine), &format!("{engine}-data"));
        compare(&expected, &ours, engine);
    }
}

/// Reports the first line that differs, with those before it.
#[track_caller]
fn compare(expected: &str, ours: &str, engine: &str) {
    if expected == ours {
        return;
    }
    let lines = expected.lines().zip(ours.lines()).take_while(|(a, b)| a == b).count();
    let tail = |text: &str| text.lines().skip(lines.saturating_sub(5)).take(8).collect::<Vec<_>>().join("\n");
    panic!("line {lines} differs\n--- LevelDB\n{}\n--- {engine}\n{}", tail(expected), tail(ours));
}

/// Runs a program under memcheck with this library.
fn clean(name: &str, arguments: &[&str]) {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build(name, parent.path());
    let folder = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        let Some(mut command) = Whose::Ours(&folder, engine).checked(&program) else { return };
        run(command.arg(scratch(parent.path(), engine)).args(arguments));
    }
}

#[test]
fn opening_and_what_is_said_when_it_cannot_be() {
    same("open", &ENGINES, &[]);
}

#[test]
fn every_operation_in_random_order() {
    for seed in ["1", "2"] {
        same("random", &ENGINES, &[seed, "8000"]);
    }
}

/// The map orders byte by byte; the default engine takes any order.
#[test]
fn an_order_of_the_programs_own() {
    same("random", &["durable"], &["4", "8000", "backwards"]);
}

#[test]
fn many_threads() {
    same("threads", &ENGINES, &["150"]);
}

/// No thread of the library runs the program's signal handler. LevelDB's own threads may.
#[test]
fn the_programs_signals_reach_its_own_threads_only() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("signals", parent.path());
    let folder = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        run(Whose::Ours(&folder, engine).command(&program).arg(scratch(parent.path(), engine)).arg("20"));
    }
}

/// LevelDB crashes there, or worse; the page promises that this library does not.
#[test]
fn what_a_database_gave_may_be_freed_after_it() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("afterwards", parent.path());
    let folder = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        let ours = Whose::Ours(&folder, engine);
        run(ours.command(&program).arg(scratch(parent.path(), engine)));
        if let Some(mut checked) = ours.checked(&program) {
            run(checked.arg(scratch(parent.path(), &format!("{engine}-checked"))));
        }
    }
}

#[test]
fn memcheck_finds_nothing() {
    clean("open", &[]);
    clean("random", &["7", "800"]);
}

#[test]
fn little_address_space_is_enough_or_ends_in_a_sentence() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("random", parent.path());
    let folder = under_leveldbs_names(parent.path());
    for (kib, is_enough) in [(100_000, false), (300_000, false), (450_000, false), (700_000, true)] {
        for engine in ENGINES {
            let data = scratch(parent.path(), &format!("{engine}-{kib}"));
            let mut command = Whose::Ours(&folder, engine).command(Path::new("/bin/sh"));
            command.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\"")]);
            let output = command.arg(&program).arg(data).args(["1", "300"]).output().expect("sh");
            let said = String::from_utf8_lossy(&output.stderr);
            // Which of its parts finds no room first depends on where the kernel has put the others.
            let is_told = said.starts_with("open: ")
                && (said.contains(": cannot ") || said.contains("(ulimit -v)"))
                || said.contains(" more bytes of address space than this process may map");
            match output.status.code() {
                Some(0) => {}
                Some(1) => assert!(!is_enough && is_told, "{engine}, {kib} KiB: {said}"),
                _ => panic!("{engine}, {kib} KiB: {said}"),
            }
        }
    }
}

/// The program was linked with LevelDB's library, and must really run with this one.
#[test]
fn the_programs_run_with_our_library() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("open", parent.path());
    let folder = under_leveldbs_names(parent.path());
    let trace = |whose: Whose<'_>| {
        let mut command = whose.command(Path::new("/bin/sh"));
        let output = run(command.arg("-c").arg(format!("ldd {}", program.display()))).stdout;
        String::from_utf8(output).expect("UTF-8")
    };
    let ours = trace(Whose::Ours(&folder, ENGINES[0]));
    assert!(ours.contains(&format!("{}/libleveldb.so", folder.display())), "{ours}");
    assert!(!trace(Whose::LevelDb).contains(&folder.display().to_string()));
}
