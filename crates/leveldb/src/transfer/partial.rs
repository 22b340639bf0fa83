//! A directory that is not there before it is whole: it is built below NAME.partial, and renamed.
//!
//! NAME.partial has a file that marks it as ours, and whose lock shows that a process is at work there; the
//! directory that is being built; and whatever else the work needs. An interrupted work leaves it, and the next one
//! replaces it.

use super::outcome::{Result, TransferError};
use crate::engine::catalog::sync_name;
use mangrove_sys::fan_out;
use mangrove_sys::file::try_lock;
use std::fs::File;
use std::path::{Path, PathBuf};

const MARK: &str = "MANGROVE-PARTIAL";
/// The directory that gets the name in the end.
const BUILT: &str = "new";
/// Threads that sync what was built.
const SYNC_THREADS: usize = 8;

/// The work's directory. It goes when the work fails.
pub(super) struct Partial {
    folder: PathBuf,
    target: PathBuf,
    _mark: File,
}

impl Partial {
    /// Begins the work for `target`, which must not be there.
    pub(super) fn begin(target: &Path) -> Result<Self> {
        let Some(name) = target.file_name() else {
            let message = format!("{}: is no name for a new directory", target.display());
            return Err(TransferError::refused(message));
        };
        if target.symlink_metadata().is_ok() {
            return Err(TransferError::refused(format!("{}: exists; choose a new name", target.display())));
        }
        let mut partial = name.to_owned();
        partial.push(".partial");
        let folder = target.with_file_name(partial);
        match std::fs::create_dir(&folder) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => clear(&folder)?,
            Err(e) => return Err(TransferError::io("create", &folder, &e)),
        }
        let mark = File::create(folder.join(MARK))
            .map_err(|e| TransferError::io("create", &folder.join(MARK), &e))?;
        must_lock(&folder, &mark)?;
        Ok(Self { folder, target: target.to_owned(), _mark: mark })
    }

    /// The name of something in the work's directory.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The directory that is being built.
    pub(super) fn built(&self) -> PathBuf {
        self.folder.join(BUILT)
    }

    /// Gives the built directory its name, durably. The error says so if it has its name all the same.
    pub(super) fn publish(self) -> Result<()> {
        self.publish_by(sync_name)
    }

    /// As `publish`; `sync_name` makes the name of a directory durable.
    fn publish_by(self, sync_name: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
        let built = self.built();
        let failed = |e: std::io::Error| TransferError::io("write", &self.target, &e);
        // Durable-order: what is in the directory before its name; otherwise a crash leaves half a database under
        // it.
        sync_tree(&built).map_err(failed)?;
        // The name may have been taken meanwhile. An empty directory would be replaced silently.
        if self.target.symlink_metadata().is_ok() {
            return Err(TransferError::refused(format!(
                "{}: exists; choose a new name",
                self.target.display()
            )));
        }
        std::fs::rename(&built, &self.target).map_err(failed)?;
        // Not removed: a program may have opened it by now.
        sync_name(&self.target).map_err(|e| {
            TransferError::Failed(format!(
                "{}: is there and whole, but a power cut may take all of it: cannot sync its name: {e}",
                self.target.display()
            ))
        })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // If that fails, the next work replaces what is left.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Empties a directory that an interrupted work left; refuses any other.
fn clear(folder: &Path) -> Result<()> {
    let names = std::fs::read_dir(folder).map_err(|e| TransferError::io("read", folder, &e))?;
    if names.count() == 0 {
        return Ok(());
    }
    let mark = File::open(folder.join(MARK)).map_err(|_| {
        TransferError::refused(format!(
            "{}: exists, and no import or export made it; move it away",
            folder.display()
        ))
    })?;
    must_lock(folder, &mark)?;
    let failed = |e: std::io::Error| TransferError::io("replace", folder, &e);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() == MARK {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            std::fs::remove_dir_all(entry.path()).map_err(failed)?;
        } else {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

fn must_lock(folder: &Path, mark: &File) -> Result<()> {
    if try_lock(mark, true).unwrap_or(false) {
        return Ok(());
    }
    Err(TransferError::refused(format!("{}: another import or export is at work there", folder.display())))
}

/// Syncs everything in a directory, and the directory. Several at a time: what a sync costs is mostly the wait for the
/// device, and waits that overlap share it.
fn sync_tree(folder: &Path) -> std::io::Result<()> {
    let mut all = Vec::new();
    list_tree(folder, &mut all)?;
    let threads = SYNC_THREADS.min(all.len());
    let sync = |first: usize| {
        all.iter().skip(first).step_by(threads).try_for_each(|path| File::open(path)?.sync_all())
    };
    fan_out(threads, sync).into_iter().collect()
}

/// The directory and everything in it.
fn list_tree(folder: &Path, all: &mut Vec<PathBuf>) -> std::io::Result<()> {
    all.push(folder.to_owned());
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list_tree(&entry.path(), all)?;
        } else {
            all.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_comes_with_the_whole_and_a_left_folder_is_replaced() {
        let above = tempfile::tempdir().unwrap();
        let (target, left) = (above.path().join("db"), above.path().join("db.partial"));
        let partial = Partial::begin(&target).unwrap();
        std::fs::create_dir(partial.built()).unwrap();
        assert!(Partial::begin(&target).is_err_and(|e| e.to_string().contains("is at work there")));
        // As after SIGKILL.
        let _ = std::mem::ManuallyDrop::new(partial);
        assert!(left.join("new").exists() && !target.exists());
        // The lock goes with the process; here with the file that is forgotten, so that its mark is made anew.
        std::fs::remove_file(left.join(MARK)).unwrap();
        std::fs::write(left.join(MARK), "").unwrap();
        let partial = Partial::begin(&target).unwrap();
        assert!(!partial.built().exists());
        std::fs::create_dir(partial.built()).unwrap();
        std::fs::write(partial.built().join("file"), "whole").unwrap();
        std::fs::create_dir(partial.built().join("pool")).unwrap();
        std::fs::write(partial.built().join("pool/data"), "whole").unwrap();
        let mut synced = Vec::new();
        list_tree(&partial.built(), &mut synced).unwrap();
        synced.sort_unstable();
        let expected = ["", "file", "pool", "pool/data"].map(|name| partial.built().join(name));
        assert_eq!(synced, expected);
        partial.publish().unwrap();
        assert_eq!(std::fs::read(target.join("file")).unwrap(), b"whole");
        assert!(!left.exists());
        assert!(Partial::begin(&target).is_err_and(|e| e.to_string().contains("exists")));
    }

    #[test]
    fn what_is_there_without_a_durable_name_is_told() {
        let above = tempfile::tempdir().unwrap();
        let target = above.path().join("db");
        let partial = Partial::begin(&target).unwrap();
        std::fs::create_dir(partial.built()).unwrap();
        let published = partial.publish_by(|_| Err(std::io::Error::from_raw_os_error(libc::EIO)));
        let why = published.unwrap_err().to_string();
        assert!(why.contains("is there and whole") && why.contains("Input/output error"), "{why}");
        assert!(target.is_dir());
    }

    #[test]
    fn a_folder_of_somebody_elses_stays() {
        let above = tempfile::tempdir().unwrap();
        let left = above.path().join("db.partial");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("diary"), "mine").unwrap();
        assert!(
            Partial::begin(&above.path().join("db")).is_err_and(|e| e.to_string().contains("move it away"))
        );
        assert_eq!(std::fs::read(left.join("diary")).unwrap(), b"mine");
    }
}
