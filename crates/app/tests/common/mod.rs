//! What the tests of this crate share: the built library, the system compiler, scratch folders.

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
    assert!(output.status.success(), "{command:?}\nended with {}", told(&output));
    output
}

/// Everything that a command said.
pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// The folder that holds libmangrove_app.so and libmangrove_app.a, built now. Cargo does not build a
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
            .args(["build", "--quiet", "--offline", "--package", "mangrove-app", "--lib"])
            .args(["--profile", profile, "--target-dir"])
            .arg(target));
        let libraries = target.join(folder);
        // Programs look for the name in the SONAME, as they do once the library is installed.
        let soname = libraries.join("libmangrove_app.so.0");
        let _ = std::fs::remove_file(&soname);
        match std::os::unix::fs::symlink("libmangrove_app.so", &soname) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => panic!("{}: {e}", soname.display()),
            _ => libraries,
        }
    })
}

/// The system's C compiler, as strict as it gets.
pub(crate) fn cc() -> Command {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args([
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
        "-O2",
        "-pthread",
    ]);
    cc.arg("-I").arg(here().join("include"));
    cc
}

/// Builds C sources of this crate's tests against the shared library.
pub(crate) fn build(name: &str, folder: &Path) -> PathBuf {
    link(&[here().join("tests/c").join(format!("{name}.c"))], &folder.join(name))
}

/// Builds sources of an example.
pub(crate) fn build_example(example: &str, sources: &[&str], folder: &Path) -> PathBuf {
    let from = root().join("examples").join(example);
    let sources: Vec<PathBuf> = sources.iter().map(|s| from.join(s)).collect();
    link(&sources, &folder.join(example))
}

fn link(sources: &[PathBuf], program: &Path) -> PathBuf {
    run(cc()
        .args(sources)
        .arg("-o")
        .arg(program)
        .arg(libraries().join("libmangrove_app.so"))
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    program.to_owned()
}
