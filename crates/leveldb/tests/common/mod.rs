//! What the tests of this crate share: the built library under LevelDB's name, LevelDB itself, the
//! system's compiler, valgrind.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where Debian's libleveldb-dev puts LevelDB's header.
pub(crate) const HEADER: &str = "/usr/include/leveldb/c.h";

/// The engines that must pass.
pub(crate) const ENGINES: [&str; 2] = ["durable", "map"];

/// The crate's folder.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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

/// True when LevelDB's header and library are here; says how to get them when not.
pub(crate) fn has_leveldb() -> bool {
    let there = Path::new(HEADER).exists();
    if !there {
        eprintln!("LevelDB is not installed here (Debian: libleveldb-dev): this test does nothing");
    }
    there
}

/// The folder that holds libmangrove_leveldb.so and .a, built now. Cargo does not build a library
/// without an rlib for its own integration tests, so the tests ask it to.
pub(crate) fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
        // The profile of this very test, so that what it depends on is there already.
        let (profile, folder) =
            if cfg!(debug_assertions) { ("test", "debug") } else { ("release", "release") };
        run(Command::new(env!("CARGO"))
            .current_dir(here())
            .args(["build", "--quiet", "--offline", "--package", "mangrove-leveldb", "--lib"])
            .args(["--profile", profile, "--target-dir"])
            .arg(target));
        target.join(folder)
    })
}

/// A folder in which our library goes by LevelDB's names, for LD_LIBRARY_PATH.
pub(crate) fn under_leveldbs_names(parent: &Path) -> PathBuf {
    let folder = parent.join("lib");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libleveldb.so.1", "libleveldb.so.1d"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(libraries().join("libmangrove_leveldb.so"), link).expect("a link");
        }
    }
    folder
}

/// Builds tests/c/`name`.c against LevelDB's own header and shared library.
pub(crate) fn build(name: &str, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    run(cc()
        .arg(here().join(format!("tests/c/{name}.c")))
        .arg("-o")
        .arg(&program)
        .args(["-pthread", "-lleveldb"]));
    program
}

/// The system's C compiler, strict.
pub(crate) fn cc() -> Command {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]);
    cc
}

/// Whose library a program is run with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'a> {
    /// LevelDB's own.
    LevelDb,
    /// Ours, found under LevelDB's name in this folder, with this engine.
    Ours(&'a Path, &'a str),
}

impl Whose<'_> {
    /// `program`, to be run with that library.
    pub(crate) fn command(self, program: &Path) -> Command {
        self.set(Command::new(program))
    }

    fn set(self, mut command: Command) -> Command {
        command.env_remove("LD_LIBRARY_PATH").env_remove("MANGROVE_LEVELDB_ENGINE");
        if let Self::Ours(folder, engine) = self {
            command.env("LD_LIBRARY_PATH", folder).env("MANGROVE_LEVELDB_ENGINE", engine);
        }
        command
    }

    /// The same under valgrind memcheck, any error or leak of it being a failure; `None` where there is
    /// no valgrind.
    pub(crate) fn checked(self, program: &Path) -> Option<Command> {
        let found = Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success());
        if !found {
            eprintln!("no valgrind here: {} runs without it", program.display());
            return None;
        }
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible"]);
        command.args(["--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=99"]);
        command.arg("--num-callers=30").arg(program);
        Some(self.set(command))
    }
}

/// An empty folder below `parent`.
pub(crate) fn scratch(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir(&path).expect("a scratch folder");
    path
}
