//! Files of LevelDB itself in the directory of a database.
//!
//! A program that is started once without this library's directory in LD_LIBRARY_PATH runs with LevelDB, which
//! would make an empty database of its own in our directory. Our `CURRENT` keeps it out: LevelDB opens the file
//! that `CURRENT` names, does not find it, and reports its name, which says what to do.

use crate::engine::small_files;
use crate::status::{Failure, Result};
use std::path::Path;

/// The file that marks a directory of LevelDB's own.
const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "MANGROVE.current";
/// What our `CURRENT` holds: a name for LevelDB's message.
const OURS: &str = "this-is-a-Mangrove-database--put-lib/mangrove_leveldb-into-LD_LIBRARY_PATH\n";

/// True when `CURRENT` in the directory is ours.
fn is_ours(directory: &Path) -> bool {
    let path = directory.join(CURRENT);
    // Reading a pipe would wait.
    let is_as_long = |m: std::fs::Metadata| m.is_file() && m.len() == OURS.len() as u64;
    std::fs::symlink_metadata(&path).is_ok_and(is_as_long)
        && std::fs::read(&path).is_ok_and(|bytes| bytes == OURS.as_bytes())
}

/// Refuses a directory that holds files of LevelDB itself; beside them may lie a database of ours.
pub(crate) fn refuse(directory: &Path, ours_too: bool) -> Result<()> {
    if !directory.join(CURRENT).exists() || is_ours(directory) {
        return Ok(());
    }
    let place = directory.display();
    Err(Failure::invalid(if ours_too {
        format!(
            "{place}: holds a Mangrove database, and beside it files of LevelDB itself, which a program that ran \
             without this library has made; to go on with the Mangrove database, move these away: {}",
            names(directory).join(" ")
        )
    } else {
        format!(
            "{place}: holds files of LevelDB itself, which Mangrove does not read; copy the records into a new \
             directory: mangrove leveldb import {place} NEW"
        )
    }))
}

/// The names in the directory that LevelDB gives to its files.
fn names(directory: &Path) -> Vec<String> {
    let all = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = all
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_leveldbs(name))
        .collect();
    names.sort();
    names
}

fn is_leveldbs(name: &str) -> bool {
    let is_number = |stem: &str| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = |name: &str| {
        name.rsplit_once('.')
            .is_some_and(|(stem, kind)| is_number(stem) && ["log", "ldb", "sst", "dbtmp"].contains(&kind))
    };
    [CURRENT, "LOG", "LOG.old"].contains(&name)
        || name.strip_prefix("MANIFEST-").is_some_and(is_number)
        || numbered(name)
}

/// Puts our `CURRENT` into the directory, durably, unless one is there.
pub(crate) fn keep_leveldb_out(directory: &Path) -> Result<()> {
    if directory.join(CURRENT).symlink_metadata().is_ok() {
        return Ok(());
    }
    // Whole, because a part of it would be taken for LevelDB's.
    small_files::place(directory, CURRENT_NEW, CURRENT, OURS.as_bytes())
}

/// Removes our `CURRENT`.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    small_files::remove(directory, CURRENT_NEW)?;
    if is_ours(directory) { small_files::remove(directory, CURRENT) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_current_is_accepted_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let current = directory.path().join(CURRENT);
        refuse(directory.path(), false).unwrap();
        keep_leveldb_out(directory.path()).unwrap();
        keep_leveldb_out(directory.path()).unwrap();
        refuse(directory.path(), true).unwrap();
        remove(directory.path()).unwrap();
        assert!(!current.exists());
        for theirs in [&b"MANIFEST-000002\n"[..], b"", &OURS.as_bytes()[1..]] {
            std::fs::write(&current, theirs).unwrap();
            std::fs::write(directory.path().join("000003.log"), "").unwrap();
            std::fs::write(directory.path().join("notes.log"), "").unwrap();
            keep_leveldb_out(directory.path()).unwrap();
            let why = refuse(directory.path(), false).unwrap_err().to_string();
            assert!(why.contains("does not read") && why.contains("leveldb import"), "{why}");
            let both = refuse(directory.path(), true).unwrap_err().to_string();
            assert!(both.ends_with("move these away: 000003.log CURRENT"), "{both}");
            remove(directory.path()).unwrap();
            assert_eq!(std::fs::read(&current).unwrap(), theirs);
        }
    }
}
