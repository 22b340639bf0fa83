//! Batches that a program fills, commits and waits for itself.

mod common;

use common::{build, run, told};
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
fn named_functions_run_natively_inside_commands() {
    runs("native");
}

#[test]
fn a_batch_without_a_commit_leaves_no_trace() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build("batches", scratch.path()), scratch.path().join("s"));
    let output = Command::new(&program).arg(&state).arg("crash").output().expect("runs");
    assert!(output.status.code() == Some(3), "{}", told(&output));
    run(Command::new(&program).arg(&state).arg("check"));
}
