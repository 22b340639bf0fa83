//! The example `phonebook`, killed after so many acknowledgements: what was acknowledged is there, and
//! everything agrees.

use mangrove_testkit::command::{LineCount, Victim, wait_until};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn program() -> PathBuf {
    let this = std::env::current_exe().expect("a path");
    let target = this.parent().and_then(Path::parent).expect("the target directory");
    target.join("examples/phonebook")
}

fn run(state: &Path, args: &[&str]) -> Output {
    // The standard library's data for backtraces would lie in the state that a panic ends.
    let mut command = Command::new(program());
    let output = command.arg(state).args(args).env("RUST_BACKTRACE", "0").output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} ended with {}\n{said}", output.status);
    output
}

fn pairs(lines: impl Iterator<Item = Vec<u8>>) -> HashMap<u64, u64> {
    let pair = |line: Vec<u8>| {
        let line = String::from_utf8(line).expect("UTF-8");
        let (thread, number) = line.split_once(' ').expect("two numbers");
        (thread.parse().expect("a number"), number.parse().expect("a number"))
    };
    lines.map(pair).collect()
}

#[test]
fn what_was_acknowledged_is_there_after_sigkill() {
    const THREADS: &str = "3";
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("books");
    for round in 0..5u64 {
        let mut command = Command::new(program());
        command.arg(&state).args(["run", THREADS]);
        let victim = Victim::start(&mut command, |lines| pairs(lines));
        // The first round is killed while it makes the state.
        match round {
            0 => wait_until("the state", || state.exists()),
            _ => victim.says(20 + 97 * round % 200),
        }
        let told = victim.kill();
        let found = pairs(LineCount::default().of(&*run(&state, &["check", THREADS]).stdout));
        for (thread, told) in told {
            assert!(found[&thread] == told || found[&thread] == told + 1, "{thread}: {found:?}, told {told}");
        }
    }
    // A panic leaves the state as it was.
    let before = run(&state, &["check", THREADS]).stdout;
    assert!(String::from_utf8_lossy(&run(&state, &["panic"]).stdout).contains("panicked"));
    assert_eq!(run(&state, &["check", THREADS]).stdout, before);
}

/// A backtrace would be made by translated code, for minutes, while signals wait.
#[test]
fn a_panic_in_a_write_prints_its_message_at_once_also_where_a_backtrace_is_asked_for() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for backtrace in ["1", "full"] {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60"]).arg(program()).arg(scratch.path().join("books")).arg("panic");
        let output = command.env("RUST_BACKTRACE", backtrace).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "it ended with {}\n{said}", output.status);
        assert!(String::from_utf8_lossy(&output.stdout).contains("panicked"));
        assert!(said.contains("halfway") && said.contains("phonebook.rs"), "{said}");
    }
}

#[test]
fn a_panic_outlives_the_state_that_it_ended() {
    // With a backtrace asked for, its notes must not lie in a state either.
    for backtrace in ["0", "1"] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120"]).arg(program()).arg(scratch.path().join("books")).arg("outlive");
        let output = command.env("RUST_BACKTRACE", backtrace).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "outlived\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
}
