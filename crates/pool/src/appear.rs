//! A new pool that appears whole or not at all: a backup.
//!
//! It is written under a temporary name in the same directory, made durable, closed, and only then renamed. What a
//! killed process left under the temporary name is removed by the next one.
//!
//! Invariant: the temporary name, and what it names, belongs to the process that has locked the lock file, from
//! before that process looks whether the name is in use until it has renamed or removed it. (The pool's own lock
//! begins too late and ends too early for that.)

use crate::{Error, Pool, Result};
use mangrove_sys::file::open_itself;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many times the lock file may be missing, or be another file, when it is locked.
const LOCK_TRIES_MAX: u32 = 100;

/// Has `write` make a pool under the temporary name that it is given, and durable; then gives it the name `path`.
///
/// # Errors
/// Those of `write`; `Exists`, `Foreign`, `Unsupported` for a place in a pool's folder, `NoSpace`, `ReadOnly`, `Io`;
/// and `Busy`: another process makes a pool at `path` in this way. Nothing is left at `path`.
pub fn appear<T, E: From<Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    refuse_what_is_there(path)?;
    // The process may change its working directory meanwhile.
    let place = &std::path::absolute(path).map_err(|e| failed(path, "find", &e))?;
    let part = temporary_name(place, "part")?;
    let _lock = NameLock::take(temporary_name(place, "lock")?, &part)?;
    // The previous holder of the lock may have created it.
    refuse_what_is_there(path)?;
    if Pool::inspect(place.parent().unwrap_or(place)).is_ok() {
        return Err(Error::Unsupported {
            what: format!(
                "{} lies inside another pool's folder; choose a place outside of it",
                path.display()
            ),
        }
        .into());
    }
    if part.exists() {
        if Pool::inspect(&part).is_ok() && Pool::is_busy(&part) {
            return Err(Error::Busy { path: part }.into());
        }
        fs::remove_dir_all(&part).map_err(|e| failed(&part, "remove what an earlier backup left in", &e))?;
    }
    let result = write(&part).and_then(|answer| {
        // Durable-order: the copy was closed, hence durable, before it gets its name.
        fs::rename(&part, place).map_err(|e| failed(path, "rename the finished backup to", &e))?;
        let parent = place.parent().unwrap_or(place);
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| {
            // A failed backup must leave nothing there.
            let _ = fs::rename(place, &part);
            failed(parent, "make durable", &e)
        })?;
        Ok(answer)
    });
    if result.is_err() && !Pool::is_busy(&part) {
        // Nothing useful can be done when even the removal fails; the next backup tries again.
        let _ = fs::remove_dir_all(&part);
    }
    result
}

/// `Exists` where `path` names a pool, and `Foreign` where it names anything else.
fn refuse_what_is_there(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        // A pool that is damaged is one.
        Ok(_) if path.join("pool").exists() => Err(Error::Exists { path: path.to_owned() }),
        Ok(_) => Err(Error::Foreign {
            path: path.to_owned(),
            what: "something else lies there, and a backup makes a folder of its own; name one that does not exist"
                .into(),
        }),
    }
}

/// The right to a temporary name: a locked file, which is removed with it.
struct NameLock {
    file: File,
    path: PathBuf,
}
impl NameLock {
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

impl Drop for NameLock {
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

fn temporary_name(path: &Path, what: &str) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::Unsupported {
        what: format!("{} names no pool; give the backup a name of its own", path.display()),
    })?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".mangrove-{what}"));
    Ok(path.with_file_name(temporary))
}

fn failed(path: &Path, doing: &'static str, error: &io::Error) -> Error {
    if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) {
        return Error::Exists { path: path.to_owned() };
    }
    Error::Io { path: path.to_owned(), doing, code: error.raw_os_error(), message: error.to_string() }
}
