//! Undoes the creation of a pool whose owner could not make its object: a refused creation leaves nothing.
//!
//! Invariant: the directory is locked from before the pool's creation until its files are gone, so no other opener
//! finds the pool meanwhile.

use crate::create::PARTS;
use crate::format::superblock;
use crate::log::{recent, spill};
use crate::pool_files::{PoolFile, names_in};
use crate::storage::traits::{OpenHow, Storage, StorageFile, here};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A creation that can be undone.
pub(crate) struct Creation {
    pub(crate) directory: PathBuf,
    /// With the directory held.
    pub(crate) held: Arc<dyn Storage>,
    /// The caller's.
    pub(crate) storage: Arc<dyn Storage>,
    /// This call made the directory.
    pub(crate) made_directory: bool,
    /// The directory, locked.
    pub(crate) lock: Arc<dyn StorageFile>,
}

impl Creation {
    /// Removes the pool's files, and the directory if the creation made it. What cannot be removed stays: the caller
    /// reports the error that made it give up.
    ///
    /// The file `pool` loses its superblock first and is removed last. A process that is killed in between leaves what
    /// an interrupted bulk load leaves, or files that no pool names.
    pub(crate) fn undo(self) {
        let Self { directory, held, storage, made_directory, lock } = self;
        let pool = directory.join("pool");
        let unmade = PoolFile::open(&*held, pool.clone(), OpenHow::Write, "open").and_then(|file| {
            if file.size()? == 0 {
                // It is no pool yet, and a full medium has no room for a superblock.
                return Ok(());
            }
            file.write_at(0, &superblock::loading()[..], here())?;
            file.sync(here())
        });
        let names = names_in(&*held, &directory).unwrap_or_default();
        let is_part =
            |name: &String| PARTS.contains(&name.as_str()) || recent::is_name(name) || spill::is_name(name);
        if unmade.is_ok() {
            for name in names.iter().filter(|name| is_part(name)) {
                let _ = held.remove(&directory.join(name), here());
            }
            let _ = held.remove(&pool, here());
            let _ = held.sync_dir(&directory, here());
        }
        drop(lock);
        if made_directory {
            remove_directory(&*storage, &directory);
        }
    }
}

/// Removes a directory that a creation made, unless something lies in it.
pub(crate) fn remove_directory(storage: &dyn Storage, directory: &Path) {
    if storage.remove_dir(directory, here()).is_ok()
        && let Some(parent) = directory.parent()
    {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let _ = storage.sync_dir(parent, here());
    }
}
