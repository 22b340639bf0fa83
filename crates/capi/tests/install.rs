//! The steps of a C user: install, build the example through pkg-config, run it, kill it, run it under valgrind
//! memcheck.

mod common;

use common::{libraries, root, run, said, shell, valgrind};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The build line in the README and in the example.
const BUILD: &str = "cc main.c $(pkg-config --cflags --libs mangrove) -o wordcount";

/// Runs scripts/install.sh on a directory that holds this crate's library alone: the script installs every library that
/// it finds, and compiles C++ classes for one of the others.
fn install(prefix: &Path, stage: Option<&Path>) {
    let alone = tempfile::tempdir().expect("a scratch directory");
    for file in ["libmangrove_c.so", "libmangrove_c.a"] {
        std::os::unix::fs::symlink(libraries().join(file), alone.path().join(file)).expect("a link");
    }
    let mut command = Command::new(root().join("scripts/install.sh"));
    command.arg(prefix).arg(alone.path()).env_remove("DESTDIR");
    if let Some(stage) = stage {
        command.env("DESTDIR", stage);
    }
    run(&mut command);
}

/// An installed library and the example, built as its README says.
fn built_example(parent: &TempDir) -> (PathBuf, PathBuf) {
    let prefix = parent.path().join("prefix");
    install(&prefix, None);
    let folder = parent.path().join("example");
    std::fs::create_dir(&folder).expect("a directory");
    std::fs::copy(root().join("examples/c/main.c"), folder.join("main.c")).expect("the example");
    run(&mut shell(BUILD, &folder, &prefix));
    (prefix, folder)
}

/// A text of `lines` lines, and what the example must print about it.
fn text(lines: usize) -> (String, String) {
    let words = ["root", "Leaf", "tide", "mud", "salt", "crab", "heron", "stilt", "seed", "shade", "silt"];
    let mut text = String::new();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..lines {
        for _ in 0..6 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let word = words[(random % 66) as usize % (random as usize % words.len() + 1)];
            *counts.entry(word.to_lowercase()).or_default() += 1;
            text.push_str(word);
            text.push_str(if random & 1 == 0 { ", " } else { " - " });
        }
        text.push('\n');
    }
    let mut top: Vec<_> = counts.iter().collect();
    top.sort_by_key(|(word, count)| (u64::MAX - **count, (*word).clone()));
    let mut told = format!("{} words, {} different\n", counts.values().sum::<u64>(), counts.len());
    for (word, count) in top.iter().take(10) {
        told.push_str(&format!("{count:8}  {word}\n"));
    }
    (text, told.trim().to_owned())
}

#[test]
fn the_example_can_be_killed_and_counts_each_word_once() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let (prefix, folder) = built_example(&parent);
    // As long a text as this machine needs to be killed in the middle of it.
    let killed = [4_000, 32_000, 256_000].into_iter().any(|lines| {
        let (text, expected) = text(lines);
        std::fs::write(folder.join("book.txt"), text).expect("write the text");
        let pool = format!("counts-{lines}");
        let kills = kill_until_done(&pool, &folder, &prefix);
        let told = said(&mut shell(&format!("./wordcount {pool} book.txt"), &folder, &prefix));
        let (first, rest) = told.split_once('\n').expect("lines");
        assert!(first.starts_with("going on at byte "), "{first}");
        assert_eq!(rest, expected, "{lines} lines, {kills} kills");
        kills > 0
    });
    assert!(killed, "the example was never killed: make the text longer");
    // A line that is longer than what the example reads at once, which ends in the middle of a word.
    std::fs::write(folder.join("line.txt"), "heron ".repeat(1000)).expect("write the text");
    let told = said(&mut shell("./wordcount counts-line line.txt", &folder, &prefix));
    assert_eq!(told, "1000 words, 1 different\n    1000  heron");
}

/// Runs the example and kills it, later each time, until it ends by itself. Returns how often it was killed.
fn kill_until_done(pool: &str, folder: &Path, prefix: &Path) -> u32 {
    for kills in 0..100 {
        let mut child = shell(&format!("exec ./wordcount {pool} book.txt"), folder, prefix)
            .stdout(Stdio::null())
            .spawn()
            .expect("the example");
        std::thread::sleep(Duration::from_millis(40) * (kills + 1));
        child.kill().expect("SIGKILL");
        let end = child.wait().expect("its end");
        if end.success() {
            return kills;
        }
        assert!(end.code().is_none(), "the example failed by itself: {end}");
    }
    panic!("the example makes no progress");
}

/// The banks, in C and in C++: their build lines, their source, and how they are built.
const BANKS: [(&str, &str); 2] = [
    ("examples/c/bank.c", "cc bank.c $(pkg-config --cflags --libs mangrove) -pthread -o bank"),
    (
        "examples/cpp/bank.cpp",
        "c++ -std=c++17 -O2 bank.cpp $(pkg-config --cflags --libs mangrove) -pthread -o bank",
    ),
];

/// Threads of a bank told of durable transfers until they were killed: all of them are there, and the money too. The
/// two programs lay their accounts out alike, so each goes on with the heap of the other.
#[test]
fn the_banks_can_be_killed_and_lose_no_money() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let prefix = parent.path().join("prefix");
    install(&prefix, None);
    let folders = BANKS.map(|(source, line)| {
        let source = root().join(source);
        let folder = parent.path().join(source.extension().expect("an extension"));
        std::fs::create_dir(&folder).expect("a directory");
        std::fs::copy(&source, folder.join(source.file_name().expect("a name"))).expect("the example");
        run(&mut shell(line, &folder, &prefix));
        folder
    });
    let mut least = 0;
    for life in 0..6 {
        let folder = &folders[life % 2];
        let mut child = shell("exec ./bank ../state run 0", folder, &prefix)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut told = BTreeMap::<u32, u64>::new();
        let mut note = |line: std::io::Result<String>| {
            let line = line.expect("a line");
            let mut words = line.strip_prefix("< ").expect("a transfer").split(' ');
            let mut number = || words.next().expect("a number").parse::<u64>().expect("a number");
            let (thread, count) = (number() as u32, number());
            assert!(told.insert(thread, count).is_none_or(|before| count == before + 1), "{line}");
        };
        lines.by_ref().take(200).for_each(&mut note);
        child.kill().expect("SIGKILL");
        assert!(child.wait().expect("its end").code().is_none(), "the example ended by itself");
        // The kill may have cut the last line.
        let rest: Vec<_> = lines.collect();
        rest.into_iter().rev().skip(1).rev().for_each(&mut note);
        let acknowledged: u64 = told.values().sum();
        assert!(acknowledged >= 200, "{told:?}");
        let said = said(&mut shell("./bank ../state check", folder, &prefix));
        let (count, rest) = said.split_once(' ').expect("words");
        assert_eq!(rest, "transfers between 50 accounts: all is well");
        let count: u64 = count.parse().expect("a number");
        assert!(count >= acknowledged && count >= least, "{count} of {acknowledged} transfers are there");
        least = count;
    }
}

#[test]
fn the_example_runs_clean_under_memcheck() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let (prefix, folder) = built_example(&parent);
    let (text, expected) = text(200);
    std::fs::write(folder.join("book.txt"), text).expect("write the text");
    let Some(mut checked) = valgrind(&folder.join("wordcount")) else { return };
    checked.args(["counts", "book.txt"]).current_dir(&folder).env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert_eq!(said(&mut checked), expected);
    // Once more, over the pool that is there.
    assert!(said(&mut checked).ends_with(&expected));
    // valgrind leaves a process less address space than others have, so pools are opened one after the other.
    let natively = said(&mut shell("./wordcount counts book.txt", &folder, &prefix));
    assert!(natively.ends_with(&expected), "{natively}");
    assert_eq!(said(&mut shell("./wordcount native book.txt", &folder, &prefix)), expected);
    let Some(mut checked) = valgrind(&folder.join("wordcount")) else { return };
    checked.args(["native", "book.txt"]).current_dir(&folder).env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert!(said(&mut checked).ends_with(&expected));
}

#[test]
fn the_static_library_links_alone_and_shows_only_its_entry_points() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let (prefix, folder) = built_example(&parent);
    let line = "cc main.c $(pkg-config --cflags mangrove) -o alone \
                $(pkg-config --variable=libdir mangrove)/libmangrove.a \
                $(pkg-config --static --libs-only-l mangrove | sed s/-lmangrove//)";
    run(&mut shell(line, &folder, &prefix));
    let needed = said(Command::new("readelf").arg("-d").arg(folder.join("alone")));
    assert!(!needed.contains("libmangrove"), "{needed}");
    let (text, expected) = text(50);
    std::fs::write(folder.join("book.txt"), text).expect("write the text");
    assert_eq!(said(Command::new("./alone").args(["counts", "book.txt"]).current_dir(&folder)), expected);

    let table = said(Command::new("nm").args(["-g", "--defined-only"]).arg(prefix.join("lib/libmangrove.a")));
    let names: Vec<_> = table.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    assert!(names.len() > 50, "{table}");
    assert!(names.iter().all(|n| n.starts_with("mangrove_")), "{table}");
}

#[test]
fn the_shared_library_goes_by_its_major_version() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let (_, folder) = built_example(&parent);
    let needed = said(Command::new("readelf").arg("-d").arg(folder.join("wordcount")));
    assert!(needed.contains("[libmangrove.so.0]"), "{needed}");
}

#[test]
fn a_staged_installation_speaks_of_its_final_place() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    install(Path::new("/opt/mangrove"), Some(parent.path()));
    let there = parent.path().join("opt/mangrove");
    let pc = std::fs::read_to_string(there.join("lib/pkgconfig/mangrove.pc")).expect("the pkg-config file");
    assert!(pc.starts_with("prefix=/opt/mangrove\n") && !pc.contains('@'), "{pc}");
    for name in [
        "lib/libmangrove.so",
        "lib/libmangrove.so.0",
        "lib/libmangrove.a",
        "include/mangrove.h",
        "include/mangrove_heap.hpp",
    ] {
        assert!(there.join(name).metadata().is_ok_and(|m| m.len() > 1000), "{name}");
    }
}

#[test]
fn the_documents_give_the_build_line() {
    let says = |document: &str, line: &str| {
        let text = std::fs::read_to_string(root().join(document)).expect(document);
        assert!(text.contains(line), "{document} does not say: {line}");
    };
    for document in ["examples/c/README.md", "examples/c/main.c", "docs/c-api.md"] {
        says(document, BUILD);
    }
    for (source, line) in BANKS {
        says(source, line);
        says(&source.replace(source.rsplit('/').next().expect("a name"), "README.md"), line);
    }
}
