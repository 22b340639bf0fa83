//! Programs that must succeed, programs that are killed when they have come so far, and valgrind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs a command and returns its output.
///
/// # Panics
/// When it fails, with all of its output.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(output.status.success(), "{command:?}\nended with {}", told(&output));
    output
}

/// The status and all of the output of a command.
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

/// `program` under valgrind memcheck, which counts any error or leak as a failure; `None` where there is no
/// valgrind.
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

/// A wait that takes longer than this hangs, however busy the machine is.
const HANG: Duration = Duration::from_secs(300);

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within five minutes.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < HANG, "{what}: not within {HANG:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// How many lines a program has said so far: the measure of its progress, by which a test decides when to kill it.
#[derive(Clone, Debug, Default)]
pub struct LineCount(Arc<AtomicU64>);

impl LineCount {
    /// The lines of `pipe` as they come, counted; half a line at the end was never said.
    pub fn of(&self, pipe: impl Read) -> impl Iterator<Item = Vec<u8>> {
        let (count, mut pipe) = (Arc::clone(&self.0), BufReader::new(pipe));
        std::iter::from_fn(move || {
            let mut line = Vec::new();
            pipe.read_until(b'\n', &mut line).ok()?;
            (line.pop()? == b'\n').then(|| {
                // Relaxed: a number alone.
                count.fetch_add(1, Ordering::Relaxed);
                line
            })
        })
    }

    /// Waits until there are so many.
    ///
    /// # Panics
    /// When there are not within five minutes.
    #[track_caller]
    pub fn reaches(&self, lines: u64) {
        wait_until(&format!("{lines} lines"), || self.0.load(Ordering::Relaxed) >= lines);
    }
}

/// A program that a test kills, while a thread reads what it says.
#[derive(Debug)]
pub struct Victim<T> {
    child: Child,
    said: LineCount,
    reader: JoinHandle<T>,
}

impl<T: Send + 'static> Victim<T> {
    /// Starts `command`; `read` gets its lines as they come.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn start(
        command: &mut Command,
        read: impl FnOnce(&mut dyn Iterator<Item = Vec<u8>>) -> T + Send + 'static,
    ) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        let stdout = child.stdout.take().expect("piped");
        let said = LineCount::default();
        let counted = said.clone();
        let reader = std::thread::spawn(move || read(&mut counted.of(stdout)));
        Self { child, said, reader }
    }

    /// Waits until it has said so many lines.
    ///
    /// # Panics
    /// When it has not within five minutes.
    #[track_caller]
    pub fn says(&self, lines: u64) {
        self.said.reaches(lines);
    }

    /// Kills it with SIGKILL, and returns what `read` made of its lines.
    ///
    /// # Panics
    /// When it has written anything to standard error, or had ended by itself.
    #[track_caller]
    pub fn kill(mut self) -> T {
        self.child.kill().expect("SIGKILL");
        let output = self.child.wait_with_output().expect("ends");
        let is_killed = output.status.signal() == Some(libc::SIGKILL);
        assert!(is_killed && output.stderr.is_empty(), "{}", told(&output));
        self.reader.join().expect("reads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "exit status: 1")]
    fn a_victim_that_had_ended_was_not_killed() {
        let mut command = Command::new("sh");
        let mut victim = Victim::start(command.args(["-c", "echo one; exit 1"]), |lines| lines.count());
        victim.says(1);
        victim.child.wait().expect("ends");
        victim.kill();
    }
}
