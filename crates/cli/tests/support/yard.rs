//! Runs the real `mangrove` binary, each test in a directory of its own on the disk.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory that goes away with the test, and the binary to run in it.
pub(crate) struct Yard {
    dir: tempfile::TempDir,
}

/// What one run of the binary said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Yard {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The binary, to be run in the directory.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        command_in(self.dir.path(), args)
    }

    /// The binary behind a program that sets something up and runs it, like `env` or a shell.
    pub(crate) fn command_behind(&self, before: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(env!("CARGO_BIN_EXE_mangrove")).args(args);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        finish(self.command(args))
    }

    /// Runs it with `input` on standard input.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Said {
        let mut child = spawn(self.command(args).stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().expect("a pipe");
        // The command may end before it has read everything (that may be the very test).
        let _ = stdin.write_all(input);
        drop(stdin);
        said(child.wait_with_output().expect("output"))
    }

    /// Runs it and demands success.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "mangrove {args:?}: {}", said.err);
        String::from_utf8(said.out).expect("text")
    }

    /// Runs it and demands an exit code and a part of the message on standard error.
    pub(crate) fn fails(&self, args: &[&str], code: i32, sentence: &str) {
        self.run(args).is(code, sentence, &format!("{args:?}"));
    }

    /// The names in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).expect("the directory");
        let mut names: Vec<_> =
            entries.map(|e| e.expect("a name").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A closed pool `p` with records k0000 to k0999, values of 0 to 999 bytes.
    pub(crate) fn sample(&self) -> Vec<u8> {
        let tsv: String = (0..1000).map(|i| format!("k{i:04}\t{}\n", "v".repeat(i))).collect();
        std::fs::write(self.path("sample.tsv"), &tsv).expect("write");
        self.ok(&["map", "load", "p", "sample.tsv", "--log", "1M", "--medium", "file"]);
        tsv.into_bytes()
    }
}

impl Said {
    pub(crate) fn is(&self, code: i32, sentence: &str, what: &str) {
        assert_eq!(self.code, code, "{what}: {}", self.err);
        assert!(self.err.contains(sentence), "{what}: '{}' does not say '{sentence}'", self.err.trim());
        assert!(!self.err.contains("panicked"), "{what}: {}", self.err);
    }
}

pub(crate) fn command_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mangrove"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

pub(crate) fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start mangrove")
}

pub(crate) fn finish(mut command: Command) -> Said {
    said(command.output().expect("run mangrove"))
}

fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Words in front of the binary: it then ignores no signal, whatever process runs the tests.
pub(crate) const HEEDING: [&str; 2] = ["env", "--default-signal"];

/// Before the binary: no file may grow past 2 or 4 MiB (the shell's unit is 512 or 1,024 bytes).
pub(crate) const SMALL_FILES: [&str; 6] =
    ["env", "--default-signal=XFSZ", "sh", "-c", "ulimit -f 4096; exec \"$@\"", "sh"];

/// A wait that takes longer than this hangs, however busy the machine is.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(300);

/// Waits for the exit code, but not for ever.
pub(crate) fn end_of(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + WAIT_MAX;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("wait") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("kill");
    panic!("the command did not end");
}

/// Sends a signal by name (`INT`, `TERM`).
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.expect("kill").success());
}

/// Unmounts a small tmpfs when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// A tmpfs of so many bytes, or the reason why there is none.
    pub(crate) fn tmpfs(at: &Path, bytes: u64) -> Result<Self, String> {
        std::fs::create_dir_all(at).expect("create");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(at)
            .output()
            .map_err(|e| format!("no mount command: {e}"))?;
        if output.status.success() {
            Ok(Self(at.to_owned()))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    pub(crate) fn read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(status.expect("mount").success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
