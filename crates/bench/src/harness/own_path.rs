//! Names of what a bench makes in the directory that the user named, and removes there.

use std::path::{Path, PathBuf};

/// Begins these names. The directory may hold others' files: what has another name is not the bench's, and stays.
const PREFIX: &str = "mangrove-bench-";

/// The path of `name` in `dir`.
pub(crate) fn own_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}
