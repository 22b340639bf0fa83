//! Programs that must succeed, and valgrind.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command and returns its output.
///
/// # Panics
/// With everything it said, when it fails.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(output.status.success(), "{command:?}\nended with {}", told(&output));
    output
}

/// Everything that a command said.
#[must_use]
pub fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Standard output of a command that succeeds, without white space around it.
///
/// # Panics
/// As [`run`], and when it is not UTF-8.
#[track_caller]
pub fn said(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("UTF-8").trim().to_owned()
}

/// `program` under valgrind memcheck, any error or leak of it being a failure; `None` where there is
/// no valgrind.
#[must_use]
pub fn valgrind(program: &Path) -> Option<Command> {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("no valgrind here: {} runs without it", program.display());
        return None;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible"]);
    command.args(["--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=99"]);
    command.arg("--num-callers=30").env("MANGROVE_TEST_QUICK", "1");
    command.arg(program);
    Some(command)
}
