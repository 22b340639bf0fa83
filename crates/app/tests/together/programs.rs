//! C programs against the shared library: what calls return, and commands that do not end.

use crate::common::{build, run, told};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Options and openings that are refused, and an initialisation that fails.
#[test]
fn misuse() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build("misuse", scratch.path()), scratch.path().join("s"));
    run(Command::new(program).arg(&state));
    run(Command::new(build("calls", scratch.path())).arg(&state)); // which demands that the state is new
}

#[test]
fn calls() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("calls", scratch.path());
    run(Command::new(program).arg(scratch.path().join("s")));
}

#[test]
fn cancelled() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("cancelled", scratch.path());
    run(Command::new(program).arg(scratch.path().join("s")));
}

#[test]
fn words() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("words", scratch.path());
    run(Command::new(program).arg(scratch.path().join("s")));
}

#[test]
fn options() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("options", scratch.path());
    for which in ["capacity", "sync", "latency", "variables", "explicit"] {
        run(Command::new(&program).arg(scratch.path().join(which)).arg(which));
    }
}

#[test]
fn limits() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("limits", scratch.path());
    for which in ["clients", "request", "backlog", "idle", "stalled", "shutdown"] {
        run(Command::new(&program).arg(scratch.path().join(which)).arg(which));
    }
}

/// How a command ends in the middle, and how the process then ends: a signal, or a code.
const ENDINGS: [(&str, Result<i32, i32>); 9] = [
    ("segv", Err(libc::SIGSEGV)),
    ("abort", Err(libc::SIGABRT)),
    ("exit", Ok(7)),
    ("_exit", Ok(7)),
    ("kill", Err(libc::SIGKILL)),
    ("kill beside a child", Err(libc::SIGKILL)),
    // These end, with an error that says which of them it was.
    ("fork", Ok(3)),
    ("process", Ok(3)),
    ("thread", Ok(3)),
];

#[test]
fn a_command_that_ends_halfway_leaves_no_trace() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("endings", scratch.path());
    for (how, expected) in ENDINGS {
        let state = scratch.path().join(how);
        let output = Command::new(&program).arg(&state).arg(how).output().expect("runs");
        let ended = match expected {
            Ok(code) => output.status.code() == Some(code),
            Err(signal) => output.status.signal() == Some(signal),
        };
        assert!(ended, "{how}: {}", told(&output));
        run(Command::new(&program).arg(&state).arg("check"));
    }
}
