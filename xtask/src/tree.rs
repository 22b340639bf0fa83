//! Paths in the checkout, and how to run what was built there.

use anyhow::{Context, Result, bail};
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
