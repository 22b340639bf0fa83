//! C programs: built by the system's compiler, run with this library or LevelDB's, also under valgrind.

use super::library::here;
use mangrove_testkit::command;
use mangrove_testkit::command::run;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The system's C compiler, with strict options.
pub(crate) fn cc() -> Command {
    mangrove_testkit::c_library::cc(&["-std=c11", "-D_GNU_SOURCE", "-O1"])
}

/// Builds tests/cpp/`name`.cc against LevelDB's own headers and shared library.
pub(crate) fn build_cxx(name: &str, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = here().join(format!("tests/cpp/{name}.cc"));
    run(cxx().arg(source).arg("-o").arg(&program).args(["-pthread", "-lleveldb"]));
    program
}

/// The system's C++ compiler, with strict options.
pub(crate) fn cxx() -> Command {
    let mut cxx = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    cxx.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]);
    cxx
}

/// The library that a program runs with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'a> {
    /// LevelDB's own.
    LevelDb,
    /// This library, under LevelDB's name in this directory, with this engine.
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

    /// The same under valgrind memcheck, which fails on any error or leak; `None` where there is no valgrind.
    pub(crate) fn checked(self, program: &Path) -> Option<Command> {
        command::valgrind(program).map(|command| self.set(command))
    }
}
