//! Online backup: a copy of one instant, while writers continue.
//!
//! The backup is written under a temporary name in the same directory, made durable, closed, and only then renamed:
//! there is a whole backup or none. A backup removes what a killed one left under the temporary name.
//!
//! Invariant: the temporary name, and what it names, belongs to the process that has locked the lock file, from
//! before that process looks whether the name is in use until it has renamed or removed it. (The pool's own lock
//! begins too late and ends too early for that.)

use crate::{Create, Durability, Error, Map, Result, Snapshot};
use mangrove_sys::file::open_itself;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The progress of a long operation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Records copied so far.
    pub records: u64,
    /// Records in all.
    pub records_total: u64,
    /// Bytes of keys and values copied so far.
    pub bytes: u64,
}

/// What [`crate::Map::backup`] wrote.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BackupReport {
    /// Records copied.
    pub records: u64,
    /// Bytes of keys and values copied.
    pub bytes: u64,
}

/// Records between two calls of the progress function.
const PROGRESS_RECORDS: u64 = 4096;
/// How many times the lock file may be missing, or be another file, when it is locked.
const LOCK_TRIES_MAX: u32 = 100;

impl Map {
    /// Copies this instant into a new pool at `path`, while writers continue. The new pool appears whole and durable,
    /// or not at all. `progress` is called every few thousand records and stops the backup by returning `Break`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::Io`], [`Error::SnapshotExpired`], [`Error::Stopped`], and
    /// [`Error::Busy`]: another backup to `path` is at work. Nothing is left at `path`.
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        backup(&self.snapshot()?, self.info().capacity, path.as_ref(), progress)
    }
}

fn backup(
    from: &Snapshot<'_>,
    capacity: u64,
    path: &Path,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<BackupReport> {
    if path.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: path.to_owned() });
    }
    // The process may change its working directory meanwhile.
    let place = &std::path::absolute(path).map_err(|e| failed(path, "find", &e))?;
    let part = temporary_name(place, "part")?;
    let _lock = BackupLock::take(temporary_name(place, "lock")?, &part)?;
    // The previous holder of the lock may have created it.
    if place.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: path.to_owned() });
    }
    if part.exists() {
        remove_leftover(&part)?;
    }
    let result = copy(from, capacity, &part, &mut progress).and_then(|report| {
        // Durable-order: the copy was closed, hence durable, before it gets its name.
        fs::rename(&part, place).map_err(|e| failed(path, "rename the finished backup to", &e))?;
        let parent = parent(place);
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| {
            // A failed backup must leave nothing there.
            let _ = fs::rename(place, &part);
            failed(parent, "make durable", &e)
        })?;
        Ok(report)
    });
    if let Err(error) = &result
        && !matches!(error, Error::Busy { .. })
    {
        // Nothing useful can be done when even the removal fails; the next backup tries again.
        let _ = fs::remove_dir_all(&part);
    }
    result
}

/// The right to a temporary name: a locked file, which is removed with it.
struct BackupLock {
    file: File,
    path: PathBuf,
}

impl BackupLock {
    /// Takes the right to `part` by the file at `path`; `Busy` when another backup has it.
    fn take(path: PathBuf, part: &Path) -> Result<Self> {
        let io = |e: &io::Error| lock_error(&path, part, e);
        for _ in 0..LOCK_TRIES_MAX {
            let Some(file) = open_lock(&path, part)? else { continue };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: part.to_owned() }),
                Err(TryLockError::Error(e)) => return Err(io(&e)),
            }
            let locked = file.metadata().map_err(|e| io(&e))?;
            match fs::symlink_metadata(&path) {
                Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
                    return Ok(Self { file, path });
                }
                // Its owner removed it after this process opened it and before it locked it.
                _ => {}
            }
        }
        Err(Error::Busy { path: part.to_owned() })
    }
}

impl Drop for BackupLock {
    fn drop(&mut self) {
        // Remove the name first, while no other process can get the lock. An error leaves an empty file, which does
        // no harm.
        let _ = fs::remove_file(&self.path);
        // Releases the lock even while a child of fork has the file open.
        let _ = self.file.unlock();
    }
}

/// The file at `path`, created if it is missing; none when its owner has just removed it. Other users may write to
/// the directory: a link is not followed, and a pipe is not waited for.
fn open_lock(path: &Path, part: &Path) -> Result<Option<File>> {
    let new = File::options().write(true).create_new(true).open(path);
    if !new.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists) {
        return new.map(Some).map_err(|e| lock_error(path, part, &e));
    }
    match open_itself(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        // This file is the obstacle, not the directory.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(failed(path, "lock", &e)),
        there => there.map(Some).map_err(|e| lock_error(path, part, &e)),
    }
}

fn lock_error(path: &Path, part: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::ReadOnly { path: part.to_owned() }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { path: part.to_owned(), wanted: 0 }
        }
        _ => failed(path, "lock", error),
    }
}

fn copy(
    from: &Snapshot<'_>,
    capacity: u64,
    part: &Path,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<BackupReport> {
    // The copy counts only once it is durable as a whole: no need to wait for each record.
    let to = Map::options()
        .create(Create::New)
        .capacity(capacity)
        .durability(Durability::Interval(Duration::from_millis(100)))
        .open(part)?;
    let mut done = Progress { records: 0, records_total: from.len()?, bytes: 0 };
    let mut outcome = Ok(());
    from.iter()?.visit(|key, value| {
        outcome = to.put_nowait(key, value);
        done.records += 1;
        done.bytes += (key.len() + value.len()) as u64;
        if outcome.is_ok() && done.records.is_multiple_of(PROGRESS_RECORDS) && progress(done).is_break() {
            outcome = Err(Error::Stopped);
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    to.close()?;
    let _ = progress(done);
    Ok(BackupReport { records: done.records, bytes: done.bytes })
}

/// Removes what a killed backup left, unless a process has opened it.
fn remove_leftover(part: &Path) -> Result<()> {
    match crate::pool_info(part) {
        Ok(info) if info.busy => Err(Error::Busy { path: part.to_owned() }),
        _ => fs::remove_dir_all(part).map_err(|e| failed(part, "remove what an earlier backup left in", &e)),
    }
}

fn temporary_name(path: &Path, what: &str) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::Unsupported {
        what: format!("{} names no pool; give the backup a name of its own", path.display()),
    })?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".mangrove-{what}"));
    Ok(path.with_file_name(temporary))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn failed(path: &Path, doing: &str, error: &io::Error) -> Error {
    if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) {
        return Error::Exists { path: path.to_owned() };
    }
    Error::Io {
        path: path.to_owned(),
        doing: doing.to_owned(),
        code: error.raw_os_error(),
        message: error.to_string(),
    }
}
