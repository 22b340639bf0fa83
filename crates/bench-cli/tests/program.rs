//! `mangrove-bench` as `mangrove bench` runs it: names, exit codes, output that cannot be written.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mangrove-bench"));
    command.args(args).current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = bench(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn each_bench_is_there_under_the_name_that_users_type() {
    let (code, out, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("Usage: mangrove bench <COMMAND>"), "{out}");
    for name in ["map", "durable", "leveldb", "python"] {
        let (code, out, _) = run(&[name, "--help"]);
        assert_eq!(code, Some(0), "{name}");
        assert!(out.contains(&format!("Usage: mangrove bench {name}")), "{out}");
    }
    let (code, out, _) = run(&["map", "--only", "list"]);
    assert_eq!(code, Some(0));
    assert!(out.lines().any(|line| line.starts_with("operations")), "{out}");
}

#[test]
fn exit_codes_are_those_of_mangrove() {
    assert_eq!(run(&["map", "--no-such-option"]).0, Some(2));
    let (code, _, said) = run(&["map", "--only", "tea"]);
    assert_eq!(code, Some(3));
    assert!(said.starts_with("mangrove: there is no section 'tea'"), "{said}");
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bench(&["map", "--only", "list"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.starts_with("mangrove: cannot write standard output: No space left"), "{said}");
}

#[test]
fn an_output_that_nobody_reads_is_no_error() {
    let unread = std::io::pipe().unwrap().1;
    let output = bench(&["map", "--only", "list"]).stdout(unread).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}

#[test]
fn what_others_have_in_the_directory_of_a_bench_stays() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("others");
    let _ = fs::remove_dir_all(&dir);
    // Names that the bench of the map makes directories of, below its own prefix.
    let theirs = ["floors", "loaded"].map(|name| dir.join(name).join("mine"));
    for file in &theirs {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "mine").unwrap();
    }
    let out = dir.join("out");
    let (dir_option, out_option) = (format!("--dir={}", dir.display()), format!("--out={}", out.display()));
    let only = ["map", "--quick", "--only=floors,persists", "--media=zero", "--workloads=sequential"];
    let (code, _, said) = run(&[&only[..], &[dir_option.as_str(), &out_option]].concat());
    assert_eq!(code, Some(0), "{said}");
    for file in theirs {
        assert_eq!(fs::read(&file).unwrap_or_default(), b"mine", "{} is gone", file.display());
    }
    fs::remove_dir_all(dir).unwrap();
}
