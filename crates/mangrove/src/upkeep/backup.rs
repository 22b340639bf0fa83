//! Online backup: a copy of one instant, while writers continue.
//!
//! There is a whole backup or none: see `mangrove_pool::appear`.

use crate::upkeep::copy::{BackupReport, CopyPurpose, Progress, copy, copy_files, copy_options};
use crate::{Error, Map, Result};
use mangrove_pool::appear;
use std::ops::ControlFlow;
use std::path::Path;

impl Map {
    /// Copies this instant into a new pool at `path`, while writers continue. The new pool appears whole and durable,
    /// or not at all. Where an I/O error has ended writing, it copies what opening the pool again would give:
    /// everything that was acknowledged. `progress` is called every few thousand records, and at their end, and stops
    /// the backup by returning `Break`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Foreign`] where something else lies at `path`, [`Error::Unsupported`] in a
    /// pool's directory, [`Error::Busy`]: another backup to `path` is at work; [`Error::NoSpace`],
    /// [`Error::FileLimit`], [`Error::MemoryLimit`] (the new pool counts as a second map), [`Error::Io`];
    /// [`Error::Corrupt`], [`Error::Poisoned`] and [`Error::SnapshotExpired`] where this map cannot be read to its end;
    /// [`Error::Stopped`]. The backup leaves nothing at `path`.
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let info = self.info();
        let from = self.snapshot().and_then(|snapshot| Ok((snapshot.len()?, snapshot)));
        let (records, from) = match from {
            // What was never made durable cannot be told from the rest in memory, but it can in the files.
            Err(Error::Poisoned { .. } | Error::Io { .. }) if self.has_failed_open() => {
                self.wait_for_checkpoint();
                let purpose = CopyPurpose::LastGoodState(self.storage());
                return copy_files(&info.path, path.as_ref(), purpose, &mut progress)
                    .map(|(copied, _)| copied);
            }
            snapshot => snapshot?,
        };
        let options = copy_options(info.capacity, info.log_bytes_max);
        appear(path.as_ref(), Some(&info.path), |part| {
            copy(from.iter()?, records, &options, part, &mut progress)
        })
    }
}
