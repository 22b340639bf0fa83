//! Copies the records of a map into a new pool: those of a walk, or those that a pool's files hold.

use crate::convert::engine;
use crate::opening::load::Unfinished;
use crate::{Create, Durability, Error, Map, MapOptions, Range, Result};
use mangrove_hart::Hart;
use mangrove_pool::{Storage, appear};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
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

/// Options of a copy of a pool with this capacity and this log (0: none).
pub(crate) fn copy_options(capacity: u64, log_bytes: u64) -> MapOptions {
    // The copy counts only once it is durable as a whole: no need to wait for each record, nor for a log.
    let options = Map::options()
        .create(Create::New)
        .bulk_load(true)
        .capacity(capacity)
        .durability(Durability::Interval(Duration::from_millis(100)));
    if log_bytes == 0 { options } else { options.log_bytes(log_bytes) }
}

/// Copies the records of a walk into a new pool at `part`.
pub(crate) fn copy(
    mut from: Range<'_>,
    records_total: u64,
    options: &MapOptions,
    part: &Path,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<BackupReport> {
    let to = Unfinished::open(options, part)?;
    let mut done = Progress { records: 0, records_total, bytes: 0 };
    let mut outcome = Ok(());
    from.visit(|key, value| {
        outcome = to.map().put_nowait(key, value);
        done.records += 1;
        done.bytes += (key.len() + value.len()) as u64;
        if outcome.is_ok() && done.records.is_multiple_of(PROGRESS_RECORDS) && progress(done).is_break() {
            outcome = Err(Error::Stopped);
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    if progress(done).is_break() {
        return Err(Error::Stopped);
    }
    to.close()?;
    Ok(BackupReport { records: done.records, bytes: done.bytes })
}

/// Why a pool is copied from its files.
pub(crate) enum CopyPurpose {
    /// It is damaged.
    Salvage,
    /// This process has it open, and its medium has failed. Its files are reached by this storage, if there is one: its
    /// path may name another pool by now.
    LastGoodState(Option<Arc<dyn Storage>>),
}

/// Copies the map that the files in `from` hold into a new pool at `new`.
pub(crate) fn copy_files(
    from: &Path,
    new: &Path,
    purpose: CopyPurpose,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<(BackupReport, Vec<String>)> {
    let options = Map::options().read_only(true).memory_limited();
    let (pool_options, is_salvage) = match purpose {
        CopyPurpose::Salvage => (options.pool().salvage(true), true),
        CopyPurpose::LastGoodState(None) => (options.pool().unlocked(true), false),
        CopyPurpose::LastGoodState(Some(storage)) => (options.pool().unlocked(true).storage(storage), false),
    };
    let pool = pool_options.open(from)?;
    pool.finish()?;
    let mut damage = pool.damage().to_vec();
    let engine_options = mangrove_hart::Options {
        salvage: is_salvage,
        salvage_bytes: pool.stat().grown,
        verify_values: true,
        path: from.to_owned(),
        ..options.engine(false)
    };
    let recovered = Hart::recover(pool.region().clone(), &engine_options);
    let (hart, report) = recovered.map_err(|e| engine(from, e))?;
    damage.extend(report.skipped.iter().map(|found| format!("{}, {found}", from.join("image").display())));
    let walk = hart.range(Bound::Unbounded, Bound::Unbounded).map_err(|e| engine(from, e))?;
    let walk = Range::new(walk, from);
    let copy_options = copy_options(pool.info().capacity, pool.info().log_bytes_max);
    let copied = appear(new, Some(from), |part| copy(walk, report.records, &copy_options, part, progress))?;
    Ok((copied, damage))
}
