//! What files take on the disk.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that the files in a directory and in the directories below take on the disk.
///
/// # Panics
/// When one of them cannot be looked at.
#[must_use]
pub fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            let metadata = entry.metadata().expect("a file");
            if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.blocks() * 512 }
        })
        .sum()
}
