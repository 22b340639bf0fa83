//! The C++ example: built by the system's compiler, killed after so many transfers, started again, audited.

use crate::common::{here, libraries, root, run, told};
use mangrove_testkit::command::{Victim, wait_until};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn build(folder: &Path) -> PathBuf {
    compile(folder, &[root().join("examples/cpp/main.cc")])
}

fn compile(folder: &Path, sources: &[PathBuf]) -> PathBuf {
    let program = folder.join("bank");
    run(Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O2", "-I"])
        .arg(here().join("include"))
        .arg("-I")
        .arg(root().join("examples/cpp"))
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg(libraries().join("libmangrove_app.so"))
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    program
}

/// What `bank DIR check` finds: the number of transfers. Panics unless the balances agree.
fn check(program: &Path, state: &Path) -> u64 {
    let output = Command::new(program).arg(state).arg("check").output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all is well"), "{}", told(&output));
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn the_containers_survive_kills() {
    const ROUNDS: u32 = 8;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    // The same in every run.
    let (mut dice, mut before) = (88_172_645_463_325_252_u64, 0);
    for round in 0..ROUNDS {
        let mut command = Command::new(&program);
        command.arg(&state).args(["run", "0", &(dice % 1000).to_string()]);
        let victim = Victim::start(&mut command, |lines| {
            let number = |l: Vec<u8>| std::str::from_utf8(&l).ok()?.strip_prefix("< ")?.parse().ok();
            lines.filter_map(number).last().unwrap_or(0u64)
        });
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        // The first round is killed while it makes the state.
        match round {
            0 => wait_until("the state", || state.exists()),
            _ => victim.says(1 + dice % 300),
        }
        let told = victim.kill().max(before);
        let found = check(&program, &state);
        // One more transfer may be durable and not printed yet.
        assert!(found == told || found == told + 1, "round {round}: {found} transfers, {told} told");
        before = found;
    }
}

/// A command's memory ends at any of its allocations.
#[test]
fn a_transfer_without_memory_is_not_there_in_part() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let scarce = here().join("tests/cpp/scarce.cc");
    // The bank by itself: what throws has changed nothing.
    run(&mut Command::new(compile(
        scratch.path(),
        &[here().join("tests/cpp/bank_whole.cc"), scarce.clone()],
    )));
    // As commands: the process ends, and the transfers before that one are there.
    let program = compile(scratch.path(), &[root().join("examples/cpp/main.cc"), scarce]);
    for more in 0..12 {
        let state = scratch.path().join(format!("state{more}"));
        let mut command = Command::new(&program);
        command.arg(&state).args(["run", "1000"]).env("ALLOCATIONS", (1000 + more).to_string());
        let output = command.output().expect("runs");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{more}: {}", told(&output));
        let last = String::from_utf8_lossy(&output.stdout).lines().last().map(|line| line.replace("< ", ""));
        assert_eq!(last, Some(check(&program, &state).to_string()), "{more}");
    }
}
