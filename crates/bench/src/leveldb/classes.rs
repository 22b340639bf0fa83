//! The C++ classes under plain names: adapters that are compiled when the bench runs, one to Mangrove's classes and
//! one to LevelDB's own (`crates/leveldb/cpp/bench/adapter.cc`).

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the adapters' functions begin with.
pub(super) const PREFIX: &str = "classes";

/// The sources of the classes and of the adapter.
fn sources() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leveldb/cpp");
    folder
        .canonicalize()
        .context("--api c++ compiles the sources that this program was built from, and they are not there")
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Mangrove's classes, over the static library `library`, built into `out`.
pub(super) fn ours(library: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let file = out.join("classes.so");
    let library = library.canonicalize().with_context(|| format!("cannot find {}", library.display()))?;
    run(Command::new("make")
        .args(["--silent", "-C"])
        .arg(sources()?)
        .arg(format!("LIBRARY={}", library.display()))
        .arg(format!("OUT={}", out.display()))
        .arg(&file))?;
    Ok(file)
}

/// LevelDB's own classes, built into `out`; an error where LevelDB is not installed.
pub(super) fn theirs(out: &Path) -> anyhow::Result<PathBuf> {
    let file = out.join("theirs.so");
    run(Command::new("c++")
        .args(["-std=c++17", "-O2", "-shared", "-fPIC"])
        .arg(sources()?.join("bench/adapter.cc"))
        .arg("-o")
        .arg(&file)
        .arg("-lleveldb"))?;
    Ok(file)
}
