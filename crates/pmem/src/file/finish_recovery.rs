//! The end of opening a file pool: what concerns its files only, and may be done while an engine reads the region.
//!
//! Rules:
//! 1. The log's end is no damage: no group behind it proves that it had been durable (`log_scan.rs`).
//! 2. Durable-order: what the last process may have left in the operating system's cache only, the groups of its
//!    last write and the superblock, is written once more, the same bytes, before anybody is told what the pool
//!    holds. Otherwise a read answered now could be undone by a power cut later. A sync alone would not do: if
//!    that process died of a failed one, the kernel may hold the pages for clean.
//! 3. Files of long units that no group names are removed after the superblock that names none either is durable.
//! 4. Nothing else is written to any file before that: the log's writers and the checkpointer wait for it.

use crate::aside;
use crate::file_medium::FileMedium;
use crate::log_scan::{Scan, refuse_hole};
use crate::storage::Storage;
use crate::superblock::Superblock;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// What is left to do.
pub(crate) struct Unfinished {
    folder: PathBuf,
    /// As it was found.
    sb: Superblock,
    scan: Scan,
    /// Files of long units that no group names: their process died before it could, or after it had applied them.
    leftovers: Vec<PathBuf>,
}

impl Unfinished {
    /// After `scan` of the pool in `folder` whose superblock is `sb`.
    ///
    /// # Errors
    /// `Io` when the folder cannot be listed.
    pub(crate) fn new(storage: &dyn Storage, folder: &Path, sb: &Superblock, scan: &Scan) -> Result<Self> {
        let names = storage.list(folder).map_err(|e| Error::from_io(folder.to_owned(), "read", &e))?;
        let paths = names.iter().filter(|name| aside::is_name(name)).map(|name| folder.join(name));
        let named = |path: &PathBuf| scan.asides.iter().any(|(_, r)| r.path(folder) == *path);
        Ok(Self {
            folder: folder.to_owned(),
            sb: sb.clone(),
            scan: scan.clone(),
            leftovers: paths.filter(|path| !named(path)).collect(),
        })
    }
}

impl FileMedium {
    /// Does what is left, and lets the writers through.
    ///
    /// # Errors
    /// `Corrupt` when the log has a hole; `Io`. The pool is then as it was, and nobody gets through.
    pub(crate) fn finish(&self, left: &Unfinished) -> Result<()> {
        let result = self.try_finish(left);
        self.set_finished(result.clone());
        result
    }

    fn try_finish(&self, left: &Unfinished) -> Result<()> {
        let (sb, scan) = (&left.sb, &left.scan);
        let log_path = left.folder.join("log");
        if !sb.clean {
            refuse_hole(self.log.file(), &log_path, sb, scan)?;
        }
        if scan.groups > 0 {
            self.log
                .write_again(scan.last_write, scan.end)
                .map_err(|e| Error::from_io(log_path, "write", &e))?;
        }
        if !sb.clean || !left.leftovers.is_empty() {
            // Durable-order: rule 2. Otherwise new groups could overwrite log space that only a superblock in the
            // cache of the operating system had freed, and so could a file of a long unit go that the durable
            // superblock's log still names.
            self.rewrite_superblock()?;
        }
        for path in &left.leftovers {
            self.remove(path)?;
        }
        Ok(())
    }
}
