//! The end of opening a file pool: the part that concerns only its files, and may run while an engine reads the
//! region.
//!
//! Rules:
//! 1. The end of the log must not be damage: no group after it proves that it had been durable (`log/scan.rs`).
//! 2. Durable-order: the groups of the last process's last write, and the superblock, are written once more with
//!    the same bytes before the caller may show what the pool holds: they may be in the operating system's cache
//!    only. Otherwise a power cut could undo a read that was answered now. A sync alone is not enough: if that
//!    process died because a sync failed, the kernel may have marked the lost pages clean.
//! 3. Spill files that no group names are removed, after the superblock that does not name them is durable.
//! 4. What recent writes continue the log with is written to the log in the same way, as the first write of a process
//!    is: after the superblock says "not clean", and recorded there when it is durable. Then the files of recent
//!    writes are removed. A crash before that leaves them to the next opening, which finds the same: in them, in this
//!    process's own, or in the log. So a process that keeps no recent writes has such a file meanwhile.
//! 5. Nothing else is written to any file before that: the log's writers and the checkpointer wait for it.

use crate::format::superblock::Superblock;
use crate::log::recent::{self, Recent};
use crate::log::ring::Log;
use crate::log::scan::{LogScan, refuse_hole};
use crate::log::spill;
use crate::options::PoolOptions;
use crate::pool_files::{SuperblockFile, kind_of, names_in};
use crate::storage::traits::{PathKind, Storage, here};
use crate::sync::Mutex;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The part of recovery that is left to do.
pub(crate) struct DeferredRecovery {
    directory: PathBuf,
    /// As recovery found it.
    sb: Superblock,
    scan: LogScan,
    /// Spill files that no group names: their process died before it wrote that group, or after it had applied the
    /// file. And files of recent writes.
    leftovers: Vec<PathBuf>,
}

impl DeferredRecovery {
    /// After `scan` of the pool in `directory` whose superblock is `sb`.
    ///
    /// # Errors
    /// `Io` when the directory cannot be listed.
    pub(crate) fn new(
        options: &PoolOptions,
        directory: &Path,
        sb: &Superblock,
        scan: &LogScan,
    ) -> Result<Self> {
        let storage = &*options.storage;
        let names = if options.nothing_left { Vec::new() } else { names_in(storage, directory)? };
        let is_left = |name: &&String| spill::is_name(name) || recent::is_name(name);
        // A directory of such a name is none of the pool's.
        let mut paths = Vec::new();
        for path in names.iter().filter(is_left).map(|name| directory.join(name)) {
            if kind_of(storage, &path)? == PathKind::File {
                paths.push(path);
            }
        }
        let named = |path: &PathBuf| scan.spills.iter().any(|(_, r)| r.path(directory) == *path);
        Ok(Self {
            directory: directory.to_owned(),
            sb: sb.clone(),
            scan: scan.clone(),
            leftovers: paths.into_iter().filter(|path| !named(path)).collect(),
        })
    }

    /// Does what is left.
    ///
    /// # Errors
    /// `Corrupt` when the log has a hole; `Io`. The pool is then as it was.
    pub(crate) fn finish(
        &self,
        log: &Log,
        superblock: &Mutex<SuperblockFile>,
        storage: &dyn Storage,
    ) -> Result<()> {
        let (sb, scan) = (&self.sb, &self.scan);
        if !sb.clean {
            refuse_hole(log.file(), sb, scan)?;
        }
        if !sb.clean || !self.leftovers.is_empty() {
            // Durable-order: rule 2. Otherwise only a superblock in the operating system's cache might say that log
            // space is free, and new groups would overwrite that space; and a spill file would be removed that the
            // durable superblock's log still names. And rule 4: the copy that was read is durable before the other is
            // overwritten.
            superblock.lock().rewrite(here())?;
        }
        let mut until_taken = None;
        if let Some((from, before)) = scan.recent {
            let own = match &log.recent {
                Some(own) => own,
                None => until_taken.insert(Recent::create(
                    storage,
                    &self.directory,
                    sb.seed(),
                    log.nonce(),
                    from..scan.end,
                )?),
            };
            log.copy_taken(own, from, scan.end, before)?;
            superblock.lock().set_dirty()?;
        }
        if scan.groups > 0 {
            log.write_again(scan.last_write, scan.end)?;
        }
        if scan.recent.is_some() {
            superblock.lock().record(scan.last)?;
        }
        for path in &self.leftovers {
            storage.remove(path, here()).map_err(|e| Error::from_io(path.clone(), "remove", &e))?;
        }
        if let Some(own) = until_taken {
            own.remove(storage);
        }
        Ok(())
    }
}
