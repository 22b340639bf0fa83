//! What a map consists of when it has been recovered: the engine and its pool.

use crate::convert::engine;
use crate::opening::background_compaction::BackgroundCompaction;
use crate::{Error, MapOptions, RecoveryReport, Result};
use mangrove_hart::Hart;
use mangrove_pool::{DamageCheck, MediumKind, Opening, Pool};
use mangrove_sys::LeftInChild;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A map in its pool. Dropped, it is closed in order, if `close` has not done so; errors are lost then.
pub(crate) struct Engine {
    pub(crate) hart: LeftInChild<Arc<Hart>>,
    compaction: LeftInChild<Option<BackgroundCompaction>>,
    /// None once closed.
    pool: Option<Pool>,
    /// Closing leaves an index of a data file of at least so many bytes.
    index_from: Option<u64>,
    pub(crate) recovery: RecoveryReport,
}

impl Engine {
    /// Opens the pool, and recovers the map in it or makes one. `started` is when that began; another thread may set
    /// `ended`.
    ///
    /// # Errors
    /// As [`MapOptions::open`].
    pub(crate) fn open(
        opening: Opening,
        path: &Path,
        options: &MapOptions,
        started: Instant,
        ended: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        let pool = opening.finish()?;
        let (hart, recovery) = match in_pool(&pool, path, options, started, ended) {
            Ok(made) => made,
            Err(error) => {
                pool.undo_creation();
                return Err(error);
            }
        };
        let hart = Arc::new(hart);
        let least = options.compacts_itself_from(pool.info().medium);
        let compaction = least.and_then(|bytes| BackgroundCompaction::start(&hart, bytes));
        Ok(Self {
            hart: LeftInChild::new(hart),
            compaction: LeftInChild::new(compaction),
            pool: Some(pool),
            index_from: options.recovers_in_background_from(),
            recovery,
        })
    }

    pub(crate) fn pool(&self) -> &Pool {
        match &self.pool {
            Some(pool) => pool,
            None => unreachable!("only calls that take the value empty it"),
        }
    }

    /// Ends the map as a crash does, and removes what its opening created.
    pub(crate) fn undo_creation(mut self) {
        self.end_compaction();
        if let Some(pool) = self.pool.take() {
            pool.undo_creation();
        }
    }

    /// Makes everything durable, and closes the pool.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`].
    pub(crate) fn close(mut self) -> Result<()> {
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        self.end_compaction();
        let Some(pool) = self.pool.take() else { return Ok(()) };
        let wants_index = self.hart.is_here() && self.index_from.is_some_and(|bytes| pool.wants_index(bytes));
        let index = if wants_index { self.hart.leaf_order() } else { None };
        Ok(pool.close_leaving(index.as_deref())?)
    }

    fn end_compaction(&mut self) {
        if self.compaction.is_here() {
            *self.compaction = None;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A caller that must know calls `close`; what was acknowledged is durable in either case.
        let _ = self.settle();
    }
}

/// The map in the pool, which `started` began to open; makes it where there is none.
fn in_pool(
    pool: &Pool,
    path: &Path,
    options: &MapOptions,
    started: Instant,
    ended: Option<Arc<AtomicBool>>,
) -> Result<(Hart, RecoveryReport)> {
    let pool_seconds = started.elapsed().as_secs_f64();
    let report = *pool.open_report();
    // The file medium has just verified every page of the data file and every group of the log.
    let image_verified = pool.info().medium == MediumKind::File || report.was_clean;
    let engine_options =
        mangrove_hart::Options { path: path.to_owned(), ended, ..options.engine(image_verified) };
    let region = pool.region().clone();
    let index_start = Instant::now();
    // A process that was killed between the creation of the pool and that of the map left zeros.
    // (Or nothing: what a mapped region has not been grown to must not be read.)
    // Where the owner never said that the map is made, its root line may be there in part.
    let is_fresh = if pool.info().made { Hart::is_blank } else { Hart::is_unfinished };
    let fresh = report.created || pool.stat().grown == 0 || is_fresh(&region);
    if fresh && pool.info().made && DamageCheck::Made.is_on() {
        // A log with damaged groups is reported first.
        pool.finish()?;
        let what = "a map was made here, but its first page is blank; restore the files of the pool together";
        let path = pool.info().devdax.clone().unwrap_or_else(|| path.join("image"));
        return Err(Error::Corrupt { path, offset: 0, what: what.to_owned() });
    }
    if fresh && options.config.read_only {
        // Not interrupted: its creator is at work.
        if Pool::is_busy(path) {
            return Err(mangrove_pool::Error::busy(path).into());
        }
        let what = "its creation was interrupted; open it for writing once to finish it".to_owned();
        return Err(Error::Foreign { path: path.to_owned(), what });
    }
    let (hart, records) = if fresh {
        // A pool whose first groups are damaged looks the same: `finish` reports that before anything is created in
        // it.
        pool.finish()?;
        (Hart::create(region, &engine_options).map_err(|e| engine(path, e))?, 0)
    } else {
        let recovered = Hart::recover(region, &engine_options);
        // An error of the pool is reported before one of the map in it.
        pool.finish()?;
        let (hart, report) = recovered.map_err(|e| engine(path, e))?;
        (hart, report.records)
    };
    pool.finish()?;
    // Durable-order: the map's root, this mark, any record. With the mark a blank root is damage.
    pool.set_made()?;
    let report = RecoveryReport {
        created: fresh,
        clean: report.was_clean,
        image_bytes: report.image_bytes,
        log_groups: report.groups,
        records,
        pool_seconds,
        index_seconds: index_start.elapsed().as_secs_f64(),
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok((hart, report))
}
