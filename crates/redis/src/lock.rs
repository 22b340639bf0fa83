//! One update, or any number of servers, at a time in a directory: a server that started while an update copies would
//! lose what it acknowledges.

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::fs::File;
use std::path::Path;

/// For the server that this process becomes.
pub(crate) fn for_server(dir: &Path) -> Result<File> {
    match take(dir, FlockOperation::NonBlockingLockShared)? {
        Some(lock) => Ok(lock),
        None => bail!("an update of {} is under way; start the server when it has ended", dir.display()),
    }
}

/// For an update, until it ends.
pub(crate) fn for_update(dir: &Path) -> Result<File> {
    match take(dir, FlockOperation::NonBlockingLockExclusive)? {
        Some(lock) => Ok(lock),
        None => bail!("a server or another update is at work in {}; stop it first", dir.display()),
    }
}

/// Leaves the lock to the program that this process executes.
pub(crate) fn keep(lock: &File) -> Result<()> {
    Ok(fcntl_setfd(lock, FdFlags::empty())?)
}

/// None if another process is in the way. Where the file system locks no directories nothing is.
fn take(dir: &Path, operation: FlockOperation) -> Result<Option<File>> {
    let file = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    match flock(&file, operation) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        Ok(()) | Err(_) => Ok(Some(file)),
    }
}
