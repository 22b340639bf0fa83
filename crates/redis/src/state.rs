//! The state in a directory. Its name tells the build that it needs: `state.ID`. What an update has not finished is
//! called otherwise, so whatever has the name is whole.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

const PREFIX: &str = "state.";

/// What a directory holds.
pub(crate) struct DirectoryState {
    /// Of the build that made it.
    pub(crate) build: String,
    pub(crate) path: PathBuf,
}

/// The place of a state of this build.
pub(crate) fn place(dir: &Path, build: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{build}"))
}

/// The state in the directory, if there is one. After an update that was cut off both states are there, and the same:
/// `preferred` is the build whose one counts.
pub(crate) fn find(dir: &Path, preferred: &str) -> Result<Option<DirectoryState>> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot read the directory {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read the directory {}", dir.display()))?;
        let name = entry.file_name();
        let Some(build) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if build.len() == 16 && build.bytes().all(|b| b.is_ascii_hexdigit()) {
            found.push(DirectoryState { build: build.to_owned(), path: entry.path() });
        }
    }
    if let Some(at) = found.iter().position(|state| state.build == preferred) {
        return Ok(Some(found.swap_remove(at)));
    }
    if found.len() > 1 {
        let builds: Vec<_> = found.iter().map(|state| state.build.as_str()).collect();
        bail!(
            "{} has states of several builds ({}); move all but one away",
            dir.display(),
            builds.join(", ")
        );
    }
    Ok(found.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_tells_its_build_and_an_unfinished_one_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = ("00000000000000aa", "00000000000000bb");
        assert!(find(dir.path(), new).unwrap().is_none());
        std::fs::create_dir(place(dir.path(), old)).unwrap();
        std::fs::create_dir(dir.path().join(format!("state.{new}.unfinished"))).unwrap();
        assert_eq!(find(dir.path(), new).unwrap().unwrap().build, old);
        std::fs::create_dir(place(dir.path(), new)).unwrap();
        assert_eq!(find(dir.path(), new).unwrap().unwrap().build, new);
        assert!(find(dir.path(), "00000000000000cc").is_err());
    }
}
