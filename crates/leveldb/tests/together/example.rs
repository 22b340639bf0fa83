//! examples/leveldb: the same program with LevelDB and with this library, and killed with this library.

use crate::common::{ENGINES, Whose, cc, has_leveldb, here, run, scratch, under_leveldbs_names};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn built(folder: &Path) -> PathBuf {
    let program = folder.join("diary");
    run(cc().arg(here().join("../../examples/leveldb/main.c")).arg("-lleveldb").arg("-o").arg(&program));
    program
}

/// The program's output for these input lines.
fn told(command: &mut Command, lines: &[String]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the example runs");
    let mut input = child.stdin.take().expect("its input");
    let text = lines.concat();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("its end");
    writer.join().expect("the writer").expect("write");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn lines(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn the_example_says_the_same_with_either_library() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let (program, folder) = (built(parent.path()), under_leveldbs_names(parent.path()));
    let twice = |whose: Whose<'_>, name: &str| {
        let pages = scratch(parent.path(), name).join("pages");
        [50, 3].map(|count| told(whose.command(&program).arg(&pages), &lines(count)))
    };
    let expected = twice(Whose::LevelDb, "leveldb");
    assert!(expected[1].contains("kept 53\n000000000053  line 3\n"), "{}", expected[1]);
    for engine in ENGINES {
        assert_eq!(twice(Whose::Ours(&folder, engine), engine), expected, "{engine}");
    }
}

#[test]
fn what_the_example_said_is_kept_survives_sigkill() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let (program, folder) = (built(parent.path()), under_leveldbs_names(parent.path()));
    for engine in ENGINES {
        let (whose, pages) = (Whose::Ours(&folder, engine), scratch(parent.path(), engine).join("pages"));
        let mut child = whose
            .command(&program)
            .arg(&pages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example runs");
        let mut input = child.stdin.take().expect("its input");
        let writer = std::thread::spawn(move || while input.write_all(b"more\n").is_ok() {});
        let mut kept = 0;
        for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
            kept = line.expect("a line").strip_prefix("kept ").expect("kept").parse().expect("a number");
            if kept == 500 {
                child.kill().expect("SIGKILL");
                break;
            }
        }
        child.wait().expect("its end");
        writer.join().expect("the writer");
        assert_eq!(kept, 500);
        let after = told(whose.command(&program).arg(&pages), &[]);
        let last: u64 = after.split_whitespace().next().expect("a line").parse().expect("a number");
        assert!(last >= 500, "{engine}: {after}");
    }
}
