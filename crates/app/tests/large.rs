//! Write commands that write more than a log holds, killed right after they were acknowledged.

mod common;

use common::{build, run, told};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// One command of `mib` MiB, a kill, and runs that find all of it, write, and close: each way to start recovers
/// once and opens once what was closed.
fn survives(program: &Path, medium: &str, how: &str, mib: u32) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("s");
    let start = Instant::now();
    let write = || {
        let mut command = Command::new(program);
        command.arg(&state).args([medium, how, &mib.to_string()]);
        let output = command.output().expect("the program runs");
        assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{medium} {how} {mib}: {}", told(&output));
    };
    write();
    let wrote = start.elapsed();
    run(Command::new(program).arg(&state).arg("verify"));
    let recovered = start.elapsed() - wrote;
    run(Command::new(program).arg(&state).arg("verify"));
    run(Command::new(program).arg(&state).arg("verify-mapped"));
    // Once more from the beginning, mapped: what a dead process left, and what it itself changed then.
    std::fs::remove_dir_all(&state).expect("the state");
    write();
    for _ in 0..2 {
        run(Command::new(program).arg(&state).arg("verify-mapped"));
    }
    run(Command::new(program).arg(&state).arg("verify"));
    println!(
        "{medium} {how} {mib} MiB: written in {:.1} s, recovered and verified in {:.1} s",
        wrote.as_secs_f64(),
        recovered.as_secs_f64()
    );
}

/// Longer than the default log of 64 MiB, and just half of it, and a little more.
#[test]
fn commands_longer_than_the_log_survive() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("large", scratch.path());
    for medium in ["file", "emulated"] {
        survives(&program, medium, "words", 33);
        survives(&program, medium, "copy", 64);
        survives(&program, medium, "blocks", 72);
        survives(&program, medium, "twice", 65);
    }
}

/// By hand, a minute and 10 GB of memory and disk: `cargo test -p mangrove-app --test large -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute and much memory"]
fn commands_of_a_gibibyte_survive() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build("large", scratch.path());
    for medium in ["file", "emulated"] {
        for how in ["copy", "words", "blocks", "twice"] {
            survives(&program, medium, how, 1024);
        }
    }
}
