//! The C++ example: built by the system's compiler, killed at random instants, started again, audited.

mod common;

use common::{here, libraries, root, run, told};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn build(folder: &Path) -> PathBuf {
    let program = folder.join("bank");
    run(Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O2", "-I"])
        .arg(here().join("include"))
        .arg(root().join("examples/cpp/main.cc"))
        .arg("-o")
        .arg(&program)
        .arg(libraries().join("libmangrove_app.so"))
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    program
}

/// What `bank DIR check` finds: the number of transfers. Panics unless all is well.
fn check(program: &Path, state: &Path) -> u64 {
    let output = Command::new(program).arg(state).arg("check").output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all is well"), "{}", told(&output));
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn the_containers_survive_kills_at_random_instants() {
    const ROUNDS: u32 = 8;
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let (mut dice, mut before) = (now.as_nanos() as u64 | 1, 0);
    for round in 0..ROUNDS {
        let mut child = Command::new(&program)
            .arg(&state)
            .args(["run", "0", &(dice % 1000).to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let stdout = child.stdout.take().expect("piped");
        // The last line may be half a one.
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            let numbers =
                lines.filter_map(|l| std::str::from_utf8(&l).ok()?.strip_prefix("< ")?.parse().ok());
            numbers.fold((0u64, 0u64), |(_, old), new| (old, new))
        });
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        // The first round may be killed while it makes the state.
        std::thread::sleep(Duration::from_millis(dice % if round == 0 { 60 } else { 300 }));
        child.kill().expect("SIGKILL");
        let output = child.wait_with_output().expect("ends");
        assert!(output.stderr.is_empty(), "{}", told(&output));
        let (last_but_one, last) = reader.join().expect("reads");
        let found = check(&program, &state);
        // One more may have been durable and not told yet; a half line at the end reads as a smaller number.
        let told = last.max(last_but_one).max(before);
        assert!(found >= told && found <= told + 2, "round {round}: {found} transfers, {told} told");
        before = found;
    }
    assert!(before > 100, "the rounds did next to nothing: {before} transfers");
}
