//! What a bench makes in the directory that the user named, and removes there: its names, and empty directories.

use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// Begins these names. The directory may hold others' files: what has another name is not the bench's, and stays.
const PREFIX: &str = "mangrove-bench-";

/// The path of `name` in `dir`.
pub(crate) fn own_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}

/// Makes `dir`, a directory of the bench's own, empty.
pub(crate) fn emptied(dir: PathBuf) -> anyhow::Result<PathBuf> {
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}
