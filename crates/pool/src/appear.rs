//! A new pool that appears whole or not at all: a backup, or one that is loaded.
//!
//! It is written under a temporary name in the same directory, made durable, closed, and only then renamed. What a
//! killed process left under the temporary name is removed by the next one.
//!
//! Invariant: the temporary name, and what it names, belongs to the process that has locked the lock file, from
//! before that process looks whether the name is in use until it has renamed or removed it. (The pool's own lock
//! begins too late and ends too early for that.)
//!
//! The lock file is there until the new name is durable. A process that is killed in between leaves it. So an
//! opening for writing that finds a lock file beside the pool's name syncs the name first. (Otherwise a power cut could
//! bring the temporary name back, which the next backup or load removes, with all that was acknowledged meanwhile.)

use crate::storage::traits::{PathKind, Storage};
use crate::{Error, Pool, Result};
use mangrove_sys::file::{has_access_list, open_itself, sync_dir, try_lock, unlock};
use mangrove_sys::open_above_standard;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many times the lock file may be missing, or be another file, when it is locked.
const LOCK_TRIES_MAX: u32 = 100;
/// How long another copy may take, at most, to remove what a killed one left; and between two tries.
const SWEEP_MAX: Duration = Duration::from_secs(2);
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// Has `write` make a pool under the temporary name that it is given, and durable; then gives it the name `path`.
/// If the new pool is a copy of the pool `like`, its directory and files get the permissions of that pool's; until then
/// no other user may enter the directory. Otherwise they have the permissions of files that the process makes.
///
/// # Errors
/// Those of `write`; `Exists`, `Foreign`, `Unsupported` for a place in a pool's directory, `NoSpace`, `ReadOnly`,
/// `Io`; and `Busy`: another process makes a pool at `path` in this way. Nothing is left at `path`.
pub fn appear<T, E: From<Error>>(
    path: &Path,
    like: Option<&Path>,
    write: impl FnOnce(&Path) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    refuse_what_is_there(path)?;
    // The process may change its working directory meanwhile.
    let place = &std::path::absolute(path).map_err(|e| failed(path, "find", &e))?;
    let part = temporary_name(place, "part")?;
    let _lock = NameLock::take_patiently(&temporary_name(place, "lock")?, &part)?;
    // The previous holder of the lock may have created it.
    refuse_what_is_there(path)?;
    if Pool::inspect(place.parent().unwrap_or(place)).is_ok() {
        return Err(Error::Unsupported {
            what: format!(
                "{} lies inside another pool's directory; choose a place outside of it",
                path.display()
            ),
        }
        .into());
    }
    remove_part(&part)?;
    remove_leftovers(place, &sync_dir);
    let mode = if like.is_some() { 0o700 } else { 0o777 };
    let made = fs::DirBuilder::new().mode(mode).create(&part);
    made.map_err(|e| lock_error(&part, &part, &e))?;
    let result = write(&part).and_then(|answer| {
        if let Some(like) = like {
            keep_permissions(like, &part).map_err(|e| failed(&part, "set the permissions of", &e))?;
        }
        // Durable-order: the pool was closed, hence durable, before it gets its name.
        fs::rename(&part, place).map_err(|e| failed(path, "rename the finished pool to", &e))?;
        let parent = place.parent().unwrap_or(place);
        sync_dir(parent).map_err(|e| {
            // What failed must leave nothing there.
            let _ = fs::rename(place, &part);
            failed(parent, "make durable", &e)
        })?;
        Ok(answer)
    });
    if result.is_err() && !Pool::is_busy(&part) {
        // Nothing useful can be done when even the removal fails; the next one to make this pool tries again.
        let _ = fs::remove_dir_all(&part);
    }
    result
}

/// True when the process that gave the pool at `path` its name may have been killed before the name was durable.
pub(crate) fn may_lose_name(storage: &dyn Storage, path: &Path) -> bool {
    let kind = temporary_name(path, "lock").map(|lock| storage.kind(&lock));
    matches!(kind, Ok(Ok(PathKind::File | PathKind::Folder)))
}

/// Removes what an earlier copy left under its temporary name. The caller has the right to that name.
fn remove_part(part: &Path) -> Result<()> {
    if !part.exists() {
        return Ok(());
    }
    if Pool::inspect(part).is_ok() && Pool::is_busy(part) {
        return Err(Error::busy(part));
    }
    fs::remove_dir_all(part).map_err(|e| failed(part, "remove what an interrupted one left in", &e))
}

/// Removes what killed processes left beside `place`, under the temporary names of other copies, which may never be
/// made again. What cannot be removed stays. `sync` makes the names in a directory durable.
fn remove_leftovers(place: &Path, sync: &dyn Fn(&Path) -> io::Result<()>) {
    let beside = place.parent().and_then(|parent| fs::read_dir(parent).ok());
    for entry in beside.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".mangrove-lock"));
        if let Some(of) = of.map(|of| place.with_file_name(of))
            && of != place
            && let Ok(part) = temporary_name(&of, "part")
            && let Ok(lock) = NameLock::take(entry.path(), &part)
        {
            let _ = remove_part(&part);
            // Durable-order: the pool's name before the lock file goes.
            let above = of.parent().filter(|_| of.exists());
            if above.is_some_and(|above| sync(above).is_err()) {
                lock.leave();
            }
        }
    }
}

/// Gives the directory `part` and the files in it the permissions of `like` and of its files, durably. Where those
/// are not found (the process may be in another directory by now), the copy is its owner's alone.
fn keep_permissions(like: &Path, part: &Path) -> io::Result<()> {
    let set = |path: &Path, mode: io::Result<u32>, otherwise: u32| {
        let file = File::open(path)?;
        file.set_permissions(fs::Permissions::from_mode(mode.unwrap_or(otherwise)))?;
        file.sync_all()
    };
    for entry in fs::read_dir(part)? {
        let entry = entry?;
        // A pool on a device has no data file.
        let mode = mode_of(&like.join(entry.file_name())).or_else(|_| mode_of(&like.join("pool")));
        set(&entry.path(), mode, 0o600)?;
    }
    set(part, mode_of(like), 0o700)
}

/// The permissions for a copy of the file at `path`. If the file has an access list, the bits of its group are the
/// list's mask, the most that the list gives to other users. The list is not copied, so the copy's group gets nothing.
fn mode_of(path: &Path) -> io::Result<u32> {
    let mode = fs::metadata(path)?.mode() & 0o7777;
    Ok(if has_access_list(path) { mode & !0o070 } else { mode })
}

/// `Exists` where `path` names a pool, and `Foreign` where it names anything else.
fn refuse_what_is_there(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        // A pool that is damaged is one.
        Ok(_) if path.join("pool").exists() => Err(Error::Exists { path: path.to_owned() }),
        Ok(_) => Err(Error::Foreign {
            path: path.to_owned(),
            what: "something else lies there, and a new pool gets a directory of its own; name one that does not exist"
                .into(),
        }),
    }
}

/// The right to a temporary name: a locked file, which is removed with it.
struct NameLock {
    file: File,
    /// None: the file stays.
    path: Option<PathBuf>,
}
impl NameLock {
    /// As `take`, and waits for a process that only removes what a killed one left there.
    fn take_patiently(path: &Path, part: &Path) -> Result<Self> {
        let begun = Instant::now();
        loop {
            match Self::take(path.to_owned(), part) {
                Err(Error::Busy { .. }) if begun.elapsed() < SWEEP_MAX => std::thread::sleep(SWEEP_PAUSE),
                taken => return taken,
            }
        }
    }

    /// Takes the right to `part` by the file at `path`; `Busy` when another process has it.
    fn take(path: PathBuf, part: &Path) -> Result<Self> {
        let io = |e: &io::Error| lock_error(&path, part, e);
        for _ in 0..LOCK_TRIES_MAX {
            let Some(file) = open_lock(&path, part)? else { continue };
            if !try_lock(&file, true).map_err(|e| io(&e))? {
                return Err(Error::busy(part));
            }
            let locked = file.metadata().map_err(|e| io(&e))?;
            match fs::symlink_metadata(&path) {
                Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
                    return Ok(Self { file, path: Some(path) });
                }
                // Its owner removed it after this process opened it and before it locked it.
                _ => {}
            }
        }
        Err(Error::busy(part))
    }

    /// Gives the right up, and leaves the file.
    fn leave(mut self) {
        self.path = None;
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // Remove the name first, while no other process can get the lock. An error leaves an empty file, which does
        // no harm.
        let _ = self.path.as_ref().map(fs::remove_file);
        // Releases the lock even while a child of fork has the file open.
        let _ = unlock(&self.file);
    }
}

/// The file at `path`, created if it is missing; none when its owner has just removed it. Other users may write to
/// the directory: a link is not followed, and a pipe is not waited for.
fn open_lock(path: &Path, part: &Path) -> Result<Option<File>> {
    let new = open_above_standard(|| File::options().write(true).create_new(true).open(path));
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
        io::ErrorKind::NotFound => failed(path.parent().unwrap_or(path), "find the directory", error),
        _ => failed(path, "lock", error),
    }
}

fn temporary_name(path: &Path, what: &str) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::Unsupported {
        what: format!("{} names no pool; give it a name of its own", path.display()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_stays_until_the_name_beside_it_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        // As a process leaves them that was killed right after the pool got its name.
        let (pool, lock) = (dir.path().join("pool"), dir.path().join(".pool.mangrove-lock"));
        fs::create_dir(&pool).unwrap();
        fs::write(&lock, "").unwrap();
        let other = dir.path().join("other");
        let fails = |_: &Path| -> io::Result<()> { Err(io::Error::from_raw_os_error(libc::EIO)) };
        remove_leftovers(&other, &fails);
        assert!(lock.exists());
        remove_leftovers(&other, &sync_dir);
        assert!(pool.exists() && !lock.exists());
    }
}
