//! Writers of an example's stress program that are killed, again and again on one state.

use crate::command::{Victim, told};
use std::path::Path;
use std::process::Command;

/// Kills five rounds of `PROGRAM stress write STATE`, each later than the one before, and has `stress check` judge the
/// state after each: it is sound, and no value is damaged. `cargo xtask kill9` judges the whole history.
///
/// # Panics
/// When a round acknowledges nothing, or leaves a state that is not sound.
pub fn kill_writers(program: &Path, state: &Path) {
    for round in 0..5u64 {
        let mut command = Command::new(program);
        command.args(["stress", "write"]).arg(state);
        command.args(["--round", &round.to_string(), "--keys", "300", "--log", "1M"]);
        let victim = Victim::start(&mut command, |lines| lines.filter(|line| line.starts_with(b"<")).count());
        // Two lines a write, and some for what it reads.
        victim.says(100 + round * 237);
        assert!(victim.kill() > 0, "round {round}: nothing was acknowledged");
        let check = Command::new(program).args(["stress", "check"]).arg(state).output().expect("runs");
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success() && !said.contains('!'), "round {round}: {}", told(&check));
    }
}
