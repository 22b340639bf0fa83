//! Paths in the checkout, and how to run what was built there.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Cargo's output directory of this checkout.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The directory of one run of a chore, made if it is missing. While this lives, no other run of the checkout gets it.
pub(crate) struct RunFolder {
    pub(crate) path: PathBuf,
    lock: Option<File>,
}

impl RunFolder {
    /// The directory `given`; else `name` below cargo's output directory, or `name-2` and so on while other runs use
    /// those before.
    pub(crate) fn of(given: Option<&Path>, name: &str) -> Result<Self> {
        let make = |path: &Path| {
            std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
        };
        if let Some(path) = given {
            make(path)?;
            return Ok(Self { path: path.to_owned(), lock: None });
        }
        make(&target())?;
        for number in 1u32.. {
            let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            // Beside the directory, which a run may remove.
            let beside = target().join(format!("{name}.lock"));
            let lock = File::options().create(true).truncate(false).write(true).open(&beside);
            let lock = lock.with_context(|| format!("cannot open {}", beside.display()))?;
            // SAFETY: an open file.
            if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                let path = target().join(name);
                make(&path)?;
                return Ok(Self { path, lock: Some(lock) });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error).with_context(|| format!("cannot lock {}", beside.display()));
            }
        }
        bail!("every directory of the name {name} is in use")
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is about to begin has it, too, until it runs its program.
        if let Some(lock) = &self.lock {
            // SAFETY: an open file.
            unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}

/// Waits until no other process has this lock. It is held until the returned file is closed.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    // SAFETY: an open file.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(file)
}

/// Builds a package, and returns the directory of what was built: as it is released; or, in `make test`, as its tests
/// are, with which it is compiled already.
pub(crate) fn build(package: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet"]);
    let directory = if std::env::var_os(WHOLE).is_some() {
        command.args(["--profile", "test"]).args(AS_TESTED);
        "debug"
    } else {
        command.args(["--release", "--package", package]);
        "release"
    };
    run(&mut command)?;
    Ok(target().join(directory))
}

/// What cargo builds for all tests: together, because the dependencies of one package alone have fewer features.
pub(crate) const AS_TESTED: [&str; 3] = ["--lib", "--bins", "--tests"];

/// Set where all packages and their tests are compiled together, by `make test`.
const WHOLE: &str = "MANGROVE_TEST_WHOLE";

/// Builds `mangrove-stress` and returns its path.
pub(crate) fn mangrove_stress() -> Result<PathBuf> {
    Ok(build("mangrove-stress")?.join("mangrove-stress"))
}

/// The cargo that runs this chore, in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command to its end; a failure is an error that names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_keeps_others_out() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("lock");
        let held = lock(&path)?;
        let other = File::open(&path)?;
        // SAFETY: an open file.
        let refused = unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0;
        assert!(refused);
        drop(held);
        Ok(())
    }

    #[test]
    fn two_runs_have_two_directories() -> Result<()> {
        let name = format!("run-folder-test-{}", std::process::id());
        let first = RunFolder::of(None, &name)?;
        let second = RunFolder::of(None, &name)?;
        assert_eq!((&first.path, &second.path), (&target().join(&name), &target().join(format!("{name}-2"))));
        drop(first);
        let third = RunFolder::of(None, &name)?;
        assert_eq!(third.path, target().join(&name), "the next run gets it again");
        for path in [&second.path, &third.path] {
            std::fs::remove_dir(path)?;
            std::fs::remove_file(path.with_extension("lock"))?;
        }
        Ok(())
    }
}
