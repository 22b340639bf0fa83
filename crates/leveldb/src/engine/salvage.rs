//! Replaces the damaged pool of a database with the engine `map` by one with its sound records.

use crate::engine::{catalog, small_files};
use crate::status::{Failure, Result};
use mangrove::Map;
use mangrove_sys::file::sync_dir;
use std::ffi::CString;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where damaged pools go, as LevelDB's repair moves what it cannot use.
const LOST: &str = "lost";
/// The new pool until it is exchanged with the damaged one.
const SALVAGED: &str = "pool.salvaged";
/// The damaged pool between the steps of an exchange, where that takes several.
const ASIDE: &str = "pool.damaged";

/// Copies the sound records of the pool in the locked directory, and exchanges the two pools. The damaged one goes to
/// `lost/pool-N`; `lost/pool-N.txt` lists the damaged places.
pub(crate) fn replace_pool(directory: &Path) -> Result<()> {
    let (pool, new, lost) = (catalog::pool(directory), directory.join(SALVAGED), directory.join(LOST));
    let made = std::fs::create_dir_all(&lost);
    made.map_err(|e| Failure::io("create", &lost, &e))?;
    keep_names(directory)?;
    // Of an earlier repair that was killed: what it made, or after the exchange the damaged pool.
    for left in [&new, &directory.join(ASIDE)] {
        if left.exists() {
            move_to_lost(left, &free_name(&lost).0)?;
        }
    }
    let report = Map::salvage(&pool, &new, |_| ControlFlow::Continue(()))?;
    let (place, text) = free_name(&lost);
    let list = report.damage.join("\n") + "\n";
    std::fs::write(&text, list).map_err(|e| Failure::io("write", &text, &e))?;
    exchange(directory, &sync_dir).map_err(|e| Failure::io("exchange the pool with", &new, &e))?;
    move_to_lost(&new, &place)
}

/// Whether a repair was killed between the steps of an exchange: the directory has no pool, and the two that are to
/// change their names.
pub(crate) fn is_exchanging(directory: &Path) -> bool {
    let is_there = |name: &str| directory.join(name).exists();
    is_there(ASIDE) && is_there(SALVAGED) && !catalog::pool(directory).exists()
}

/// Ends the exchange in the locked directory of a repair that was killed, if there is one.
pub(crate) fn end_exchange(directory: &Path) -> Result<()> {
    if !is_exchanging(directory) {
        return Ok(());
    }
    let new = directory.join(SALVAGED);
    last_steps(directory, &sync_dir).map_err(|e| Failure::io("exchange the pool with", &new, &e))
}

/// Makes the names in the locked directory durable: a process may have given one and been killed before it synced it.
/// A directory that may be entered but not read is passed over, unless a repair has left a pool in it.
///
/// Durable-order: before anything is written to the pool; otherwise a power cut could take the catalog away from
/// acknowledged records, or give the damaged pool of a repair its name back.
pub(crate) fn keep_names(directory: &Path) -> Result<()> {
    keep_names_by(directory, &sync_dir).map_err(|e| Failure::io("sync", directory, &e))
}

fn keep_names_by(directory: &Path, sync: SyncNames<'_>) -> io::Result<()> {
    let is_left = || [ASIDE, SALVAGED].iter().any(|name| directory.join(name).exists());
    match sync(directory) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !is_left() => Ok(()),
        synced => synced,
    }
}

/// Removes what a repair that was killed has left in the locked directory of a database: a pool that was being made, or
/// the damaged one after the exchange.
pub(crate) fn remove_left(directory: &Path) -> Result<()> {
    // In this order, so that what is left when this is killed never looks like an exchange.
    for left in [ASIDE, SALVAGED].map(|name| directory.join(name)) {
        // A file of that name is no repair's.
        if left.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            small_files::gone(std::fs::remove_dir_all(&left), &left)?;
        }
    }
    Ok(())
}

fn move_to_lost(pool: &Path, place: &Path) -> Result<()> {
    std::fs::rename(pool, place).map_err(|e| Failure::io("move a damaged pool to", place, &e))
}

/// The first number that no lost pool has yet: its directory and its list.
fn free_name(lost: &Path) -> (PathBuf, PathBuf) {
    let names = |n: u32| (lost.join(format!("pool-{n}")), lost.join(format!("pool-{n}.txt")));
    let mut all = (1..).map(names);
    all.find(|(folder, _)| !folder.exists()).unwrap_or_else(|| unreachable!("a directory has fewer names"))
}

/// Makes the names in a directory durable.
type SyncNames<'a> = &'a dyn Fn(&Path) -> io::Result<()>;

/// Gives the pool and the new one each other's names, durably: in one step where the file system can. A process that is
/// killed leaves a pool, or what `end_exchange` ends.
fn exchange(directory: &Path, sync: SyncNames<'_>) -> io::Result<()> {
    let (pool, new) = (catalog::pool(directory), directory.join(SALVAGED));
    match exchange_names(&pool, &new) {
        // A program would write to the new pool, and a power cut could bring the damaged one back: it keeps its name.
        Ok(()) => sync(directory).inspect_err(|_| _ = exchange_names(&pool, &new)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
            exchange_in_steps(directory, sync)
        }
        Err(e) => Err(e),
    }
}

/// Gives two files each other's names, in one step.
fn exchange_names(one: &Path, other: &Path) -> io::Result<()> {
    let [a, b] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (a, b) = (a?, b?);
    // SAFETY: two NUL-terminated strings.
    let done = unsafe {
        libc::renameat2(libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), libc::RENAME_EXCHANGE)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As `exchange`, by a third name.
fn exchange_in_steps(directory: &Path, sync: SyncNames<'_>) -> io::Result<()> {
    let (pool, aside) = (catalog::pool(directory), directory.join(ASIDE));
    std::fs::rename(&pool, &aside)?;
    sync(directory).and_then(|()| last_steps(directory, sync)).inspect_err(|_| {
        if !pool.exists() {
            // The damaged pool, rather than none. If that fails, the next opening tries the other steps again.
            let _ = std::fs::rename(&aside, &pool);
        }
    })
}

/// The steps of an exchange behind the first one.
fn last_steps(directory: &Path, sync: SyncNames<'_>) -> io::Result<()> {
    let (pool, new, aside) = (catalog::pool(directory), directory.join(SALVAGED), directory.join(ASIDE));
    std::fs::rename(&new, pool)?;
    // Durable-order: each step before the next, so that a crash leaves one of the states that `end_exchange` knows.
    sync(directory)?;
    std::fs::rename(aside, new)?;
    sync(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the damaged and the new pool under these names.
    fn directory_with(damaged: &str, new: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, what) in [(damaged, "damaged"), (new, "new")] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join("what"), what).unwrap();
        }
        directory
    }

    /// The pools in the directory: the names, and which it is.
    fn pools(directory: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let mut pools: Vec<_> = entries
            .map(|entry| {
                let what = std::fs::read_to_string(entry.path().join("what")).unwrap();
                (entry.file_name().into_string().unwrap(), what)
            })
            .collect();
        pools.sort_unstable();
        pools
    }

    #[test]
    fn an_exchange_gives_each_pool_the_name_of_the_other() {
        for exchange in [exchange, exchange_in_steps] {
            let directory = directory_with("pool", SALVAGED);
            exchange(directory.path(), &sync_dir).unwrap();
            let after = [("pool", "new"), (SALVAGED, "damaged")];
            assert_eq!(pools(directory.path()), after.map(|(name, what)| (name.to_owned(), what.to_owned())));
        }
    }

    #[test]
    fn an_exchange_that_cannot_be_synced_leaves_the_damaged_pool_its_name() {
        for exchange in [exchange, exchange_in_steps] {
            let directory = directory_with("pool", SALVAGED);
            let fails = |_: &Path| -> io::Result<()> { Err(io::Error::from_raw_os_error(libc::EIO)) };
            exchange(directory.path(), &fails).unwrap_err();
            let after = [("pool", "damaged"), (SALVAGED, "new")];
            assert_eq!(pools(directory.path()), after.map(|(name, what)| (name.to_owned(), what.to_owned())));
        }
    }

    #[test]
    fn an_exchange_that_was_killed_at_any_step_leaves_a_pool() {
        let steps = [("pool", SALVAGED), (ASIDE, SALVAGED), (ASIDE, "pool"), (SALVAGED, "pool")];
        for (done, (damaged, new)) in steps.into_iter().enumerate() {
            let directory = directory_with(damaged, new);
            end_exchange(directory.path()).unwrap();
            let pools = pools(directory.path());
            let what = if done == 0 { "damaged" } else { "new" };
            assert!(pools.contains(&("pool".to_owned(), what.to_owned())), "after {done} steps: {pools:?}");
            assert_eq!(pools.len(), 2, "after {done} steps: {pools:?}");
        }
    }

    #[test]
    fn the_names_that_a_killed_process_gave_are_synced() {
        let fails = |_: &Path| -> io::Result<()> { Err(io::Error::from_raw_os_error(libc::EIO)) };
        let is_refused = |_: &Path| -> io::Result<()> { Err(io::Error::from_raw_os_error(libc::EACCES)) };
        for left in [ASIDE, SALVAGED] {
            let directory = directory_with(left, "pool");
            keep_names_by(directory.path(), &fails).unwrap_err();
            keep_names_by(directory.path(), &is_refused).unwrap_err();
            std::fs::remove_dir_all(directory.path().join(left)).unwrap();
            // The name of the catalog.
            keep_names_by(directory.path(), &fails).unwrap_err();
            keep_names_by(directory.path(), &is_refused).unwrap();
        }
    }
}
