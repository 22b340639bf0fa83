//! Batches that a program fills, commits and waits for itself.

use crate::common::{build, run, told};
use std::process::Command;

fn runs(how: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    run(Command::new(build("batches", scratch.path())).arg(scratch.path().join("s")).arg(how));
}

#[test]
fn calls_commits_and_waits() {
    runs("use");
}

#[test]
fn wrong_calls_get_a_status_and_a_sentence() {
    runs("misuse");
}

#[test]
fn a_batch_whose_thread_ends_ends_with_it() {
    runs("left");
}

#[test]
fn named_functions_run_natively_inside_commands() {
    runs("native");
}

#[test]
fn the_write_fence_reports_each_writer_and_lets_it_through() {
    runs("fence");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("batches", scratch.path());
    let said =
        Command::new(program).arg(scratch.path().join("s")).arg("standard error").output().expect("runs");
    let text = told(&said);
    assert!(said.status.success() && text.contains("write fence: a write outside commands to 0x"), "{text}");
    assert!(text.contains(" write_secretly+0x"), "{text}");
}

/// What is freed natively before a commit is free after a crash. What is freed after it is lost by a crash, which
/// shows that this test would see it.
#[test]
fn a_crash_between_batches_leaks_nothing_that_was_freed_before_the_commit() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("batches", scratch.path());
    let bytes_after = |how: &str| {
        let state = scratch.path().join(how);
        run(Command::new(&program).arg(&state).arg(how));
        let output = Command::new(&program).arg(&state).arg("bytes").output().expect("runs");
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().expect("a number")
    };
    let nine = bytes_after("nine");
    assert_eq!(bytes_after("free, commit"), nine);
    assert!(bytes_after("commit, free") > nine);
}

#[test]
fn a_batch_without_a_commit_leaves_no_trace() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build("batches", scratch.path()), scratch.path().join("s"));
    let output = Command::new(&program).arg(&state).arg("crash").output().expect("runs");
    assert!(output.status.code() == Some(3), "{}", told(&output));
    run(Command::new(&program).arg(&state).arg("check"));
}
