//! Programs that run as in a container: personality(2) refused, an unprivileged user, another root directory.

use crate::c_library::cc;
use crate::command::{run, said};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The launcher, built into a directory of the test.
#[derive(Debug)]
pub struct Sandbox {
    launcher: PathBuf,
}

/// Which arguments of personality(2) fail with EPERM.
#[derive(Clone, Copy, Debug)]
pub enum Personality {
    /// Those that Docker's default profile refuses: every one that changes how addresses are chosen.
    AsInDocker,
    /// All of them, the question what is set included.
    Refused,
}

impl Sandbox {
    /// Builds the launcher in `folder`, and lets every user enter that.
    ///
    /// # Panics
    /// Without a C compiler.
    #[must_use]
    pub fn build(folder: &Path) -> Self {
        let launcher = folder.join("sandbox");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/sandbox.c");
        run(cc(&["-O1", "-D_GNU_SOURCE"]).arg(source).arg("-o").arg(&launcher));
        open_to_all(folder);
        Self { launcher }
    }

    /// The start of a command: the program and its arguments follow.
    #[must_use]
    pub fn runs(&self, personality: Personality) -> Command {
        let mut command = Command::new(&self.launcher);
        command.arg(match personality {
            Personality::AsInDocker => "docker",
            Personality::Refused => "all",
        });
        command
    }

    /// As `runs`, as an unprivileged user.
    #[must_use]
    pub fn runs_as_nobody(&self, personality: Personality) -> Command {
        let mut command = self.runs(personality);
        command.arg("user");
        command
    }
}

/// Lets every user enter, and make files in, a directory.
///
/// # Panics
/// When it is not this user's.
pub fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("this user's directory");
}

/// Whether this process may change its root directory: whether it is root's, for all that tests know.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn may_chroot() -> bool {
    std::fs::metadata("/proc/self").expect("/proc").uid() == 0
}

/// Copies a program, and the libraries that it is linked with, into `root`, each under its own path.
///
/// # Panics
/// When one cannot be copied.
pub fn furnish(root: &Path, program: &Path) {
    // Cargo lets tests find libraries elsewhere.
    let libraries = said(Command::new("ldd").arg(program).env_remove("LD_LIBRARY_PATH"));
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in libraries.chain([program]) {
        let copy = root.join(file.strip_prefix("/").expect("an absolute path"));
        std::fs::create_dir_all(copy.parent().expect("a directory")).expect("directories");
        std::fs::copy(file, &copy).expect("a copy");
    }
}
