//! Online backup: a copy of one instant, while writers continue.
//!
//! There is a whole backup or none: see `mangrove_pool::appear`.

use crate::{Create, Durability, Error, Map, Result, Snapshot};
use mangrove_pool::appear;
use std::ops::ControlFlow;
use std::path::Path;
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

impl Map {
    /// Copies this instant into a new pool at `path`, while writers continue. The new pool appears whole and durable,
    /// or not at all. `progress` is called every few thousand records and stops the backup by returning `Break`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Foreign`] where something else lies at `path`, [`Error::Unsupported`] in a pool's
    /// folder, [`Error::NoSpace`], [`Error::Io`], [`Error::SnapshotExpired`], [`Error::Stopped`], and [`Error::Busy`]:
    /// another backup to `path` is at work. Nothing is left at `path`.
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let (from, capacity) = (self.snapshot()?, self.info().capacity);
        appear(path.as_ref(), |part| copy(&from, capacity, part, &mut progress))
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
