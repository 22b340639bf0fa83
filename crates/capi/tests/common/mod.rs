//! What the tests of this crate share: the built library, the system compiler, valgrind.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The crate's folder.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The repository's folder.
pub(crate) fn root() -> PathBuf {
    here().join("../..").canonicalize().expect("the repository")
}

/// Runs a command and returns its output; panics with everything it said when it fails.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}\nended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

/// Standard output of a command that succeeds, without white space around it.
#[track_caller]
pub(crate) fn said(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("UTF-8").trim().to_owned()
}

/// The folder that holds libmangrove_c.so and libmangrove_c.a, built now. Cargo does not build a
/// library without an rlib for its own integration tests, so the tests ask it to.
pub(crate) fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
        // The profile of this very test, so that what it depends on is there already.
        let (profile, folder) =
            if cfg!(debug_assertions) { ("test", "debug") } else { ("release", "release") };
        run(Command::new(env!("CARGO"))
            .current_dir(root())
            .args(["build", "--quiet", "--offline", "--package", "mangrove-capi", "--lib"])
            .args(["--profile", profile, "--target-dir"])
            .arg(target));
        let libraries = target.join(folder);
        // Programs look for the name in the SONAME, as they do once the library is installed.
        let soname = libraries.join("libmangrove.so.0");
        let _ = std::fs::remove_file(&soname);
        match std::os::unix::fs::symlink("libmangrove_c.so", &soname) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => panic!("{}: {e}", soname.display()),
            _ => libraries,
        }
    })
}

/// The system's C compiler, as strict as it gets.
pub(crate) fn cc() -> Command {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args([
        "-std=c99",
        "-D_POSIX_C_SOURCE=200809L",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
        "-O1",
    ]);
    cc.arg("-I").arg(here().join("include"));
    cc
}

/// The system libraries that libmangrove.a needs, from the one place that says so.
pub(crate) fn libs_private() -> Vec<String> {
    let template = std::fs::read_to_string(here().join("mangrove.pc.in")).expect("the template");
    let line = template.lines().find_map(|l| l.strip_prefix("Libs.private:")).expect("Libs.private");
    line.split_whitespace().map(str::to_owned).collect()
}

/// `program` under valgrind memcheck, any error or leak of it being a failure; `None` where there is
/// no valgrind.
pub(crate) fn valgrind(program: &Path) -> Option<Command> {
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
