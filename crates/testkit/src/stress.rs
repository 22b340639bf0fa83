//! Writers of an example's stress program that are killed, again and again on one state.

use crate::command::{LineCount, told};
use std::path::Path;
use std::process::{Command, Stdio};

/// Kills five rounds of `PROGRAM stress write STATE`, each later than the one before, and has `stress check` judge the
/// state after each: it is sound, and no value is damaged. `cargo xtask kill9` judges the whole history.
///
/// # Panics
/// When a round acknowledges nothing, or leaves a state that is not sound.
pub fn kill_writers(program: &Path, state: &Path) {
    for round in 0..5u64 {
        let mut child = Command::new(program)
            .args(["stress", "write"])
            .arg(state)
            .args(["--round", &round.to_string(), "--keys", "300", "--log", "1M"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let stdout = child.stdout.take().expect("piped");
        let said = LineCount::default();
        let counted = said.clone();
        let reader = std::thread::spawn(move || counted.of(stdout).filter(|l| l.starts_with(b"<")).count());
        // Two lines a write, and some for what it reads.
        said.reaches(100 + round * 237);
        child.kill().expect("SIGKILL");
        let output = child.wait_with_output().expect("ends");
        assert!(output.stderr.is_empty(), "{}", told(&output));
        assert!(reader.join().expect("reads") > 0, "round {round}: nothing was acknowledged");
        let check = Command::new(program).args(["stress", "check"]).arg(state).output().expect("runs");
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success() && !said.contains('!'), "round {round}: {}", told(&check));
    }
}
