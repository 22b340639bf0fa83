//! What the tests of this crate share: the built library under LevelDB's name, LevelDB itself, the
//! system's compiler, valgrind.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

use mangrove_testkit::c_library::CLibrary;
pub(crate) use mangrove_testkit::command::run;
use mangrove_testkit::{c_library, command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's libleveldb-dev puts LevelDB's header.
pub(crate) const HEADER: &str = "/usr/include/leveldb/c.h";

/// The engines that must pass.
pub(crate) const ENGINES: [&str; 2] = ["durable", "map"];

static LIBRARY: CLibrary = c_library!("libmangrove_leveldb.so", None);

pub(crate) fn here() -> &'static Path {
    LIBRARY.here()
}

pub(crate) fn libraries() -> &'static Path {
    LIBRARY.folder()
}

/// True when LevelDB's header and library are here; says how to get them when not.
pub(crate) fn has_leveldb() -> bool {
    let there = Path::new(HEADER).exists();
    if !there {
        eprintln!("LevelDB is not installed here (Debian: libleveldb-dev): this test does nothing");
    }
    there
}

/// A folder in which our library goes by LevelDB's names, for LD_LIBRARY_PATH.
pub(crate) fn under_leveldbs_names(parent: &Path) -> PathBuf {
    let folder = parent.join("lib");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libleveldb.so.1", "libleveldb.so.1d"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(LIBRARY.shared(), link).expect("a link");
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
    mangrove_testkit::c_library::cc(&["-std=c11", "-D_GNU_SOURCE", "-O1"])
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
        command::valgrind(program).map(|command| self.set(command))
    }
}

/// An empty folder below `parent`.
pub(crate) fn scratch(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir(&path).expect("a scratch folder");
    path
}
