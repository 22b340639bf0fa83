//! Replaces the damaged pool of a database with the engine `map` by one with its sound records.

use crate::engine::catalog;
use crate::status::{Failure, Result};
use mangrove::Map;
use std::ffi::CString;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where damaged pools go, as LevelDB's repair moves what it cannot use.
const LOST: &str = "lost";
/// The new pool until it is exchanged with the damaged one.
const SALVAGED: &str = "pool.salvaged";

/// Copies the sound records of the pool in the locked directory, and exchanges the two pools. The damaged one goes to
/// `lost/pool-N`; `lost/pool-N.txt` lists the damaged places.
pub(crate) fn replace_pool(directory: &Path) -> Result<()> {
    let (pool, new, lost) = (catalog::pool(directory), directory.join(SALVAGED), directory.join(LOST));
    let made = std::fs::create_dir_all(&lost);
    made.map_err(|e| Failure::io("create", &lost, &e))?;
    // Of an earlier repair that was killed: what it made, or after the exchange the damaged pool.
    if new.exists() {
        move_to_lost(&new, &free_name(&lost).0)?;
    }
    let report = Map::salvage(&pool, &new, |_| ControlFlow::Continue(()))?;
    let (place, text) = free_name(&lost);
    let list = report.damage.join("\n") + "\n";
    std::fs::write(&text, list).map_err(|e| Failure::io("write", &text, &e))?;
    // In one step, so that a process that is killed leaves a pool in either case.
    exchange(&pool, &new).map_err(|e| Failure::io("exchange the pool with", &new, &e))?;
    move_to_lost(&new, &place)
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

/// Gives each of two directories the name of the other.
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let [a, b] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (a, b) = (a?, b?);
    // SAFETY: two NUL-terminated strings.
    let done = unsafe {
        libc::renameat2(libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), libc::RENAME_EXCHANGE)
    };
    if done == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // A file system that cannot exchange: by a third name.
        e if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
            let aside = one.with_extension("damaged");
            std::fs::rename(one, &aside)?;
            std::fs::rename(other, one)?;
            std::fs::rename(aside, other)
        }
        e => Err(e),
    }
}
