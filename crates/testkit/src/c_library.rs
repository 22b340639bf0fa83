//! A C library of this repository as its users find it, and the system's compilers.

use crate::command::run;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set where the tests of all packages run: cargo has then built their dependencies with features that one package
/// alone does not ask for.
const WHOLE: &str = "MANGROVE_TEST_WHOLE";

/// One of the C libraries. Make it with [`crate::c_library!`].
#[derive(Debug)]
pub struct CLibrary {
    package: &'static str,
    crate_folder: &'static str,
    target_tmpdir: &'static str,
    cargo: &'static str,
    file: &'static str,
    soname: Option<&'static str>,
    built: OnceLock<PathBuf>,
}

/// The library of the crate whose test uses this macro: its file name as cargo builds it, and its SONAME, if
/// programs look for it under that.
#[macro_export]
macro_rules! c_library {
    ($file:expr, $soname:expr) => {
        $crate::c_library::CLibrary::new(
            [env!("CARGO_PKG_NAME"), env!("CARGO_MANIFEST_DIR"), env!("CARGO_TARGET_TMPDIR"), env!("CARGO")],
            $file,
            $soname,
        )
    };
}

impl CLibrary {
    /// See [`crate::c_library!`]; `cargo` holds what cargo passes to a test when it compiles it.
    #[must_use]
    pub const fn new(cargo: [&'static str; 4], file: &'static str, soname: Option<&'static str>) -> Self {
        let [package, crate_folder, target_tmpdir, cargo] = cargo;
        Self { package, crate_folder, target_tmpdir, cargo, file, soname, built: OnceLock::new() }
    }

    /// The crate's directory.
    #[must_use]
    pub fn here(&self) -> &'static Path {
        Path::new(self.crate_folder)
    }

    /// The crate's name.
    #[must_use]
    pub fn package(&self) -> &'static str {
        self.package
    }

    /// The directory of the shared and the static library, after building them. Cargo does not build a library
    /// without an rlib for its own integration tests, so the tests ask it to.
    ///
    /// # Panics
    /// When the library cannot be built.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.built.get_or_init(|| {
            let target = Path::new(self.target_tmpdir).parent().expect("the target directory");
            // The profile of this very test, so that its dependencies are built already.
            let (profile, folder) =
                if cfg!(debug_assertions) { ("test", "debug") } else { ("release", "release") };
            let mut build = Command::new(self.cargo);
            // Together with tests, because their dependencies have other features than the library alone would give
            // them: these are built already.
            build.args(["build", "--quiet", "--offline", "--lib", "--tests"]);
            if std::env::var_os(WHOLE).is_some() {
                build.current_dir(root());
            } else {
                build.current_dir(self.here()).args(["--package", self.package]);
            }
            run(build.args(["--profile", profile, "--target-dir"]).arg(target));
            let folder = target.join(folder);
            if let Some(soname) = self.soname {
                link(&folder, soname, self.file);
            }
            folder
        })
    }

    /// The shared library, built now.
    #[must_use]
    pub fn shared(&self) -> PathBuf {
        self.folder().join(self.file)
    }

    /// The system's C compiler, as strict as it gets; it finds the crate's headers and those of the test kit.
    #[must_use]
    pub fn cc(&self, flags: &[&str]) -> Command {
        let mut cc = cc(flags);
        cc.arg("-I").arg(self.here().join("include"));
        cc
    }
}

/// Gives `file` in a directory another name. Tests of other packages run programs meanwhile that look for it: the name
/// is there at every instant.
fn link(folder: &Path, name: &str, file: &str) {
    let link = folder.join(name);
    if std::fs::read_link(&link).is_ok_and(|to| to == Path::new(file)) {
        return;
    }
    let new = folder.join(format!("{name}.{}", std::process::id()));
    let _ = std::fs::remove_file(&new);
    let made = std::os::unix::fs::symlink(file, &new).and_then(|()| std::fs::rename(&new, &link));
    made.unwrap_or_else(|e| panic!("{}: {e}", link.display()));
}

/// The repository's directory.
///
/// # Panics
/// When it is gone.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// The system's C compiler, strict; it finds the headers of the test kit.
#[must_use]
pub fn cc(flags: &[&str]) -> Command {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-Wall", "-Wextra", "-Werror", "-g", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")]);
    cc.args(flags);
    cc
}

/// A shell line in the directory `folder` that finds what is installed in `prefix`.
#[must_use]
pub fn shell(line: &str, folder: &Path, prefix: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", line]).current_dir(folder);
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_name_that_is_right_is_left_alone_and_another_is_replaced() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = folder.path().join("lib.so.0");
        let number = || std::fs::symlink_metadata(&at).expect("a link").ino();
        std::os::unix::fs::symlink("old.so", &at).expect("a link");
        link(folder.path(), "lib.so.0", "lib.so");
        assert_eq!(std::fs::read_link(&at).expect("a link"), Path::new("lib.so"));
        let before = number();
        link(folder.path(), "lib.so.0", "lib.so");
        assert_eq!(number(), before);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a directory").count(), 1);
    }
}
