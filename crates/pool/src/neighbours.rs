//! Pools that lie near a new one: a program probably opens them together, so that their regions must not meet in its
//! address space.

use crate::format::superblock;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Directories that are looked into, at most.
const FOLDERS_MAX: usize = 2000;

/// Where the regions lie of the pools beside `directory` that have an address of their own, and of those beside its
/// parent under the same name (each database of a program has a directory with a pool in it). What cannot be read
/// does not count.
pub(crate) fn addresses(directory: &Path) -> Vec<Range<u64>> {
    let Ok(directory) = std::path::absolute(directory) else { return Vec::new() };
    let folders = |of: Option<&Path>| -> Vec<PathBuf> {
        let entries = of.and_then(|of| fs::read_dir(of).ok()).into_iter().flatten().flatten();
        entries.take(FOLDERS_MAX).map(|entry| entry.path()).collect()
    };
    let parent = directory.parent();
    let above = parent.and_then(Path::parent);
    // An import builds a database as NAME.partial/new, which then gets the name NAME.
    let partial = above.filter(|above| above.extension().is_some_and(|end| end == "partial"));
    let beside = folders(parent).into_iter();
    let around = folders(above).into_iter().chain(folders(partial.and_then(Path::parent)));
    let named_alike = around.filter_map(|folder| Some(folder.join(directory.file_name()?)));
    beside.chain(named_alike).filter(|pool| *pool != directory).filter_map(|pool| region(&pool)).collect()
}

/// Where the region of the pool in `directory` lies, if it has an address of its own.
fn region(directory: &Path) -> Option<Range<u64>> {
    let path = directory.join("pool");
    // Opening a pipe would wait.
    let is_one = fs::symlink_metadata(&path).ok()?;
    if !is_one.is_file() || is_one.len() > superblock::FILE_BYTES as u64 {
        return None;
    }
    let superblock = superblock::decode(&path, &fs::read(&path).ok()?).ok()?;
    (superblock.address != 0).then(|| superblock.address..superblock.address + superblock.capacity)
}
