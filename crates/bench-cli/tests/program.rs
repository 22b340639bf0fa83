//! `mangrove-bench` as `mangrove bench` runs it: names, exit codes, output that cannot be written.

use std::fs::OpenOptions;
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
