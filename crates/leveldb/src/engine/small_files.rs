//! Small files of a database's directory: put there whole and durably, and removed.

use crate::status::{Failure, Result};
use mangrove_sys::file::sync_dir;
use std::fs::File;
use std::io;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Makes the file `name` with these bytes, durably; it is `new` until it is whole.
pub(super) fn place(directory: &Path, new: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let (new, path) = (directory.join(new), directory.join(name));
    let written = File::create(&new)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        // Durable-order: the new file before its name; otherwise a crash leaves a name without its bytes.
        .and_then(|()| std::fs::rename(&new, &path))
        .and_then(|()| sync_dir(directory));
    written.map_err(|e| Failure::io("write", &path, &e))
}

/// The result of removing `path`, which need not have been there.
pub(super) fn gone(removed: io::Result<()>, path: &Path) -> Result<()> {
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::io("remove", path, &e)),
        _ => Ok(()),
    }
}

/// Removes the file `name`, if it is there.
pub(super) fn remove(directory: &Path, name: &str) -> Result<()> {
    let path = directory.join(name);
    gone(std::fs::remove_file(&path), &path)
}
