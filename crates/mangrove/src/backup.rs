//! Online backup: a copy of one instant, while writers go on.
//!
//! The copy is made under a temporary name beside its place, made durable, closed, and only then
//! renamed into place: there is a whole backup or none. What a killed backup left under the temporary
//! name is removed by the next one.
//!
//! Invariant: the temporary name, and what it names, belongs to whoever has locked the file beside it, from before
//! he looks whether it is there until he has renamed or removed it. (The pool's own lock begins too late and ends too
//! early for that.)

use crate::{Durability, Error, Map, Result, Snapshot};
use mangrove_sys::file::open_itself;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far a long piece of work is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Records done.
    pub records: u64,
    /// Records in all.
    pub records_total: u64,
    /// Bytes of keys and values done.
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
/// How often a lock's file may be gone, or be another one, when it is locked.
const LOCK_TRIES_MAX: u32 = 100;

pub(crate) fn backup(
    from: &Snapshot<'_>,
    capacity: u64,
    path: &Path,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<BackupReport> {
    if path.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: path.to_owned() });
    }
    let part = temporary_name(path, "part")?;
    let _lock = Lock::take(temporary_name(path, "lock")?, &part)?;
    // Whoever had the lock before may have made it.
    if path.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: path.to_owned() });
    }
    if part.exists() {
        remove_leftover(&part)?;
    }
    let result = copy(from, capacity, &part, &mut progress).and_then(|report| {
        // Durable-order: the copy was closed, hence durable, before it gets its name.
        fs::rename(&part, path).map_err(|e| failed(path, "rename the finished backup to", &e))?;
        let parent = parent(path);
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| {
            // Nothing is to be left there.
            let _ = fs::rename(path, &part);
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

/// The right to a temporary name: a locked file, which goes away with it.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
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
                // Its owner removed it between our opening and locking.
                _ => {}
            }
        }
        Err(Error::Busy { path: part.to_owned() })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // First the name, while nobody else can have the lock. Errors leave an empty file, which harms nobody.
        let _ = fs::remove_file(&self.path);
        // Also while a child of fork has the file open.
        let _ = self.file.unlock();
    }
}

/// The file at `path`, made where nothing is there; none when its owner has just removed it. A folder may be shared with
/// others: a link is not followed, and a pipe not waited for.
fn open_lock(path: &Path, part: &Path) -> Result<Option<File>> {
    let new = File::options().write(true).create_new(true).open(path);
    if !new.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists) {
        return new.map(Some).map_err(|e| lock_error(path, part, &e));
    }
    match open_itself(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        // This file stands in the way, not the folder.
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
    // Nothing of the copy counts before its last byte is durable: no need to wait for each record.
    let to = Map::options()
        .create_new(true)
        .capacity(capacity)
        .durability(Durability::Interval(Duration::from_millis(100)))
        .open(part)?;
    let mut done = Progress { records: 0, records_total: from.len(), bytes: 0 };
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

/// Removes what a killed backup left, unless somebody has opened it.
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
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
