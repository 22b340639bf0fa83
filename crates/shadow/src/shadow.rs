//! The shadow: a region at its address, and atomic groups committed to it.
//!
//! Invariants:
//! 1. The working copy never moves, and is never written by this crate once it has been opened.
//! 2. Tickets grow in the order of commits; an atomic group is durable only with every one before it. (`order.rs` has
//!    the exceptions.)

use crate::copy::read_only::ReadOnlyBacking;
use crate::copy::working::WorkingCopy;
use crate::homes::Homes;
use crate::layout::{AT_RINGS, BLANK_HEADER, ShadowLayout};
use crate::log::lease::LogLease;
use crate::log_backing::LogBacking;
use crate::order::Order;
use crate::recovery::recover::{Recovery, last_opening, recover};
use crate::recovery::scan::LogEnds;
use crate::ring::Rings;
use crate::ticket::Ticket;
use crate::{Error, Options, RecoveryReport, Result, Stat};
use mangrove_pool::{ByteRange, CheckReport, MediumKind, Pool, Region, Start, Storage};
use mangrove_sys::ProcessMark;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// What keeps the working copy durable.
pub(crate) enum ShadowBacking {
    /// The medium itself is log and replayer, and its region is the working copy.
    Log(Arc<LogBacking>),
    /// Rings and durable copy in a region that is the medium.
    Rings(Arc<Rings>),
    /// Nothing: the working copy is private memory.
    ReadOnly(ReadOnlyBacking),
}

/// A durable region with a working copy at a fixed address. See the crate's page.
///
/// Dropping it without [`Shadow::close`] is an orderly crash: nothing more is written, and the next opening
/// recovers what was durable. A child of fork(2) may drop it, too: that ends nothing of its parent's.
pub struct Shadow {
    pub(crate) backing: ShadowBacking,
    base: *mut u8,
    logs: usize,
    replayer: Option<JoinHandle<()>>,
    report: RecoveryReport,
    /// Where the shadow lies, and the most memory that this process may have for it to grow.
    memory_max: Option<(PathBuf, u64)>,
    process: ProcessMark,
    /// Dropped last: it ends all use of the region.
    pub(crate) pool: Option<Pool>,
}

// SAFETY: `base` points at memory that the backing owns; the owner of the data orders the stores to it.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow").field("base", &self.base).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Shadow {
    /// Opens or creates the shadow in the directory `path`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.validate()?;
        let begun = Instant::now();
        let pool = options.pool(path.as_ref())?;
        if options.config.read_only {
            return Self::read_only(pool, begun);
        }
        let opened = Self::in_pool(&pool, options).and_then(|shadow| {
            if !shadow.report.created {
                options.refuse_other_sizes(&shadow, pool.info())?;
            }
            Ok(shadow)
        });
        match opened {
            Ok(mut shadow) => {
                shadow.pool = Some(pool);
                shadow.memory_max =
                    options.config.memory_bytes_max.map(|bytes| (path.as_ref().to_owned(), bytes));
                shadow.report.nanoseconds = begun.elapsed().as_nanos() as u64;
                Ok(shadow)
            }
            Err(error) => {
                pool.undo_creation();
                Err(error)
            }
        }
    }

    /// The shadow in a pool that was opened for writing.
    fn in_pool(pool: &Pool, options: &Options) -> Result<Self> {
        let options = &options.for_domain(pool.stat().domain.map(|domain| domain.eadr))?;
        let image = if options.start == Start::CopyOnWrite { pool.image_file()? } else { None };
        let found = pool.open_report();
        let ends = if found.was_clean || found.created { LogEnds::Empty } else { LogEnds::Prove };
        let homes = Homes::of_machine(pool);
        let mut shadow = Self::build(pool.region().clone(), options, image, ends, pool.info().made, homes)?;
        if let ShadowBacking::Rings(_) = &shadow.backing {
            // Durable-order: the header, this mark, any commit. With the mark a blank header is damage.
            pool.region().fence();
            pool.set_made()?;
        }
        shadow.report.created = found.created;
        shadow.report.was_clean = found.was_clean;
        if let ShadowBacking::Log(_) = &shadow.backing {
            shadow.report.units = found.groups;
            shadow.report.image_bytes = found.image_bytes;
        }
        Ok(shadow)
    }

    /// Ends the shadow as dropping it does, and if this call of `open` created it, removes it: for an owner that could
    /// not make its object in it, or may not use it. On dax and emulated a shadow that had been closed is closed again.
    pub fn undo_creation(mut self) {
        let was_closed = self.report.was_clean && !self.report.created;
        if was_closed && matches!(self.backing, ShadowBacking::Rings(_)) && self.process.is_here() {
            // What the owner may have committed goes to the durable copy: the logs of a closed shadow are not read. Its
            // own error is the one to report.
            let _ = self.close();
            return;
        }
        self.stop();
        if let Some(pool) = self.pool.take() {
            drop(self);
            pool.undo_creation();
        }
    }

    /// The shadow in a pool that was opened read-only, with the logs applied to private memory.
    fn read_only(pool: Pool, begun: Instant) -> Result<Self> {
        let found = *pool.open_report();
        let mut report = RecoveryReport { was_clean: found.was_clean, ..RecoveryReport::default() };
        let backing = if pool.info().medium == MediumKind::File {
            report.units = found.groups;
            report.image_bytes = found.image_bytes;
            ReadOnlyBacking::of_region(&pool)
        } else {
            ReadOnlyBacking::of_rings(&pool, &mut report)?
        };
        let base = backing.base();
        report.nanoseconds = begun.elapsed().as_nanos() as u64;
        let mut shadow = Self::new(ShadowBacking::ReadOnly(backing), base, 0, report);
        shadow.pool = Some(pool);
        Ok(shadow)
    }

    /// A shadow on a region that the caller keeps; creates one where there is none. (For the crash simulator.)
    ///
    /// # Errors
    /// See [`Error`].
    pub fn on_region(region: Region, options: &Options) -> Result<Self> {
        options.validate_for(&region)?;
        Self::build(region, options, None, LogEnds::Prove, false, Homes::default())
    }

    /// As [`Shadow::on_region`], for the region that `file` is mapped at: the working copy is mapped from the file
    /// too, copy on write.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn on_mapped_region(region: Region, file: OwnedFd, options: &Options) -> Result<Self> {
        options.validate_for(&region)?;
        Self::build(region, options, Some(file), LogEnds::Prove, false, Homes::default())
    }

    /// `image`: the region's file, to be mapped instead of read. `made`: the region holds a shadow.
    fn build(
        region: Region,
        options: &Options,
        image: Option<OwnedFd>,
        ends: LogEnds,
        made: bool,
        homes: Homes,
    ) -> Result<Self> {
        if region.medium().capabilities().has_units {
            let base = region.base();
            let backing = LogBacking::new(region);
            return Ok(Self::new(
                ShadowBacking::Log(Arc::new(backing)),
                base,
                options.log_count,
                RecoveryReport::default(),
            ));
        }
        // No other thread uses the region yet, and its content stays.
        region.grow(AT_RINGS.min(region.len()))?;
        let mut layout = match ShadowLayout::read(&region)? {
            Some(layout) => layout,
            None if made => {
                let path = "the shadow's image".into();
                return Err(Error::Corrupt { path, offset: 0, what: BLANK_HEADER.into() });
            }
            None => options.make(&region)?,
        };
        let working = WorkingCopy::reserve(&layout)?;
        let base = working.base();
        let last = last_opening(&region);
        let (start, recovery) = recover(&region, &mut layout, ends, options.order)?;
        match image {
            Some(file) => working.map(&file, layout.image_start(), 0, start.len)?,
            None => working.load(&region, layout.image_start(), start.len),
        }
        let Recovery { units, bytes, dropped } = recovery;
        let report = RecoveryReport {
            units,
            unit_bytes: bytes,
            dropped,
            image_bytes: start.len,
            last,
            ..RecoveryReport::default()
        };
        let log_count = layout.log_count as usize;
        let rings = Arc::new(Rings::new(region, layout, working, &start, options, homes));
        let mut shadow = Self::new(ShadowBacking::Rings(Arc::clone(&rings)), base, log_count, report);
        if options.background {
            let thread = std::thread::Builder::new().name("mangrove-replay".into());
            let thread = mangrove_sys::without_signals(|| thread.spawn(move || rings.replay_loop()));
            shadow.replayer = Some(thread.map_err(|e| Error::Unsupported {
                what: format!("cannot start the thread mangrove-replay: {e}"),
            })?);
        }
        Ok(shadow)
    }

    fn new(backing: ShadowBacking, base: *mut u8, logs: usize, report: RecoveryReport) -> Self {
        let process = ProcessMark::here();
        Self { backing, base, logs, replayer: None, report, memory_max: None, process, pool: None }
    }

    /// First byte of the working copy: the same in every process, unless created `Anywhere`.
    #[inline]
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes that may be used; they begin as zeros. Grows only.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.backing {
            ShadowBacking::Log(log) => log.len(),
            ShadowBacking::Rings(rings) => rings.len(),
            ShadowBacking::ReadOnly(copy) => copy.len(),
        }
    }

    /// True when nothing has been grown yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of address space reserved: the greatest length that it may grow to.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.len(),
            ShadowBacking::Rings(rings) => rings.working.len(),
            ShadowBacking::ReadOnly(copy) => copy.capacity(),
        }
    }

    /// The capacity that it was made with. In a process that may not reserve so much address space
    /// [`Shadow::capacity`] is less, on the file medium.
    #[must_use]
    pub fn capacity_kept(&self) -> u64 {
        match &self.pool {
            Some(pool) if pool.info().medium == MediumKind::File => pool.info().capacity,
            _ => self.capacity(),
        }
    }

    /// Bytes of each log in the region; none where the pool below has the log.
    pub(crate) fn ring_bytes(&self) -> Option<u64> {
        match &self.backing {
            ShadowBacking::Rings(rings) => Some(rings.layout.ring_bytes),
            ShadowBacking::Log(_) | ShadowBacking::ReadOnly(_) => None,
        }
    }

    /// What the log may grow to: its size where it does not grow.
    #[must_use]
    pub fn log_bytes_max(&self) -> u64 {
        match &self.backing {
            ShadowBacking::Rings(_) => self.stat().log_bytes,
            ShadowBacking::Log(_) | ShadowBacking::ReadOnly(_) => {
                self.pool.as_ref().map_or(0, |pool| pool.info().log_bytes_max)
            }
        }
    }

    /// Makes at least the first `bytes` bytes usable and reserves space for them. Bytes that were never committed
    /// read as zeros after the next opening.
    ///
    /// # Errors
    /// `NoSpace` when the medium or the address space is full, `MemoryLimit` beyond the memory that this process may
    /// have: nothing is poisoned, and the shadow stays usable.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        if let Some((path, most)) = &self.memory_max {
            mangrove_pool::fits_memory(path, Some(*most), bytes.saturating_sub(self.len()), 0)?;
        }
        match &self.backing {
            ShadowBacking::Log(log) => log.grow(bytes),
            ShadowBacking::Rings(rings) => rings.grow(bytes),
            ShadowBacking::ReadOnly(copy) => copy.grow(bytes),
        }
    }

    /// Copies the present bytes of all `ranges` (address, length) into the log `log` as one atomic group, and
    /// returns without waiting for durability. Blocks while the log is full. Ranges may overlap or be empty; no
    /// thread may store to them during the call. If one commit returned before another began, in any log, their
    /// atomic groups keep that order.
    ///
    /// # Errors
    /// `Unsupported` with [`Options::stamped`], and in a child of fork. `NoSpace` for an atomic group that does not fit
    /// into the log and finds no space to be spilled; `Io` when the process has no descriptor left for its spill file.
    /// In these cases nothing is poisoned and nothing was committed. `Poisoned`, or the first error, forever after the
    /// medium failed.
    ///
    /// # Panics
    /// When a range lies outside the usable part of the working copy, or there is no such log.
    pub fn commit(&self, log: usize, ranges: &[(usize, usize)]) -> Result<Ticket> {
        assert!(log < self.logs || self.is_read_only(), "log {log} of {}", self.logs);
        let ticket = match &self.backing {
            ShadowBacking::Log(backing) => backing.commit(self.offsets(ranges))?,
            ShadowBacking::Rings(rings) => rings.commit(log, self.offsets(ranges))?,
            ShadowBacking::ReadOnly(copy) => return Err(copy.refusal()),
        };
        Ok(Ticket(ticket))
    }

    /// Leases a log to the caller, who commits by value to it, in steps. Waits while every log is leased (on the
    /// file medium, where all share one log, never). While a log is leased, [`Shadow::commit`] to it waits.
    #[must_use]
    pub fn lease(&self) -> LogLease {
        match &self.backing {
            ShadowBacking::Log(log) => LogLease::of_log(Arc::clone(log), self.base),
            ShadowBacking::Rings(rings) => LogLease::of_rings(Arc::clone(rings), rings.take_writer()),
            ShadowBacking::ReadOnly(_) => panic!("a shadow opened read-only has no log to lease"),
        }
    }

    /// As [`Shadow::lease`]; `None` while every log is leased or in use.
    #[must_use]
    pub fn try_lease(&self) -> Option<LogLease> {
        match &self.backing {
            ShadowBacking::Log(_) => Some(self.lease()),
            ShadowBacking::Rings(rings) => {
                let writer = rings.writers.try_take(rings.homes.near_rings());
                writer.map(|writer| LogLease::of_rings(Arc::clone(rings), writer))
            }
            ShadowBacking::ReadOnly(_) => None,
        }
    }

    #[inline]
    fn to_offset(&self, (address, count): (usize, usize)) -> ByteRange {
        let (offset, len) = (address.wrapping_sub(self.base as usize) as u64, self.len());
        assert!(offset <= len && count as u64 <= len - offset, "a range outside the working copy");
        ByteRange { offset, len: count as u64 }
    }

    /// The ranges that are not empty, by their offsets in the region.
    #[inline]
    fn offsets(&self, ranges: &[(usize, usize)]) -> impl Iterator<Item = ByteRange> + Clone {
        ranges.iter().filter(|range| range.1 > 0).map(|&range| self.to_offset(range))
    }

    /// Waits until the atomic group and every one before it is durable. With durability by interval it returns at
    /// once; see [`Shadow::sync`]. With [`Order::Gaps`](crate::Order::Gaps) it returns at once, since what was sealed
    /// is durable; with [`Order::Marker`](crate::Order::Marker) when the marker covers the number.
    ///
    /// # Errors
    /// `Poisoned`, or the first error: nothing may be acknowledged.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.wait(ticket.0),
            ShadowBacking::Rings(rings) => rings.wait(ticket.0),
            ShadowBacking::ReadOnly(_) => Ok(()),
        }
    }

    /// Waits until everything committed so far is durable, in every durability mode.
    ///
    /// # Errors
    /// As `wait`.
    pub fn sync(&self) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.sync(),
            ShadowBacking::Rings(rings) => rings.wait(rings.begun()),
            ShadowBacking::ReadOnly(_) => Ok(()),
        }
    }

    /// Makes the marker durable: every atomic group up to `number` was published, and none up to it will follow. A
    /// crash keeps them, and threads that wait for them continue. One store, one flush, one fence; callers do it in
    /// turn. Does nothing when the marker covers `number` already.
    ///
    /// # Errors
    /// `Poisoned`, or the first error: nothing may be acknowledged.
    ///
    /// # Panics
    /// Without [`Order::Marker`](crate::Order::Marker).
    pub fn mark(&self, number: u64) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(_) | ShadowBacking::ReadOnly(_) => panic!("a marker is for Order::Marker"),
            ShadowBacking::Rings(rings) => rings.mark(number),
        }
    }

    /// Sets the function that tells how far time stamps with [`Order::Gaps`](crate::Order::Gaps) are complete:
    /// every atomic group up to the number that it returns was published, or never will be. The replayer, and every
    /// thread that waits for it, calls the function when it has work; until it is set nothing is replayed, and the
    /// rings fill up. The number may be too small, or any number above those given so far if all of these are
    /// complete. The shadow owns the function, which therefore must not keep the shadow alive.
    ///
    /// # Panics
    /// Without [`Options::stamped`] and `Order::Gaps`; at the second call.
    pub fn set_watermark(&self, complete: impl Fn() -> u64 + Send + Sync + 'static) {
        match &self.backing {
            ShadowBacking::Log(_) | ShadowBacking::ReadOnly(_) => {
                panic!("a watermark is for time stamps with gaps")
            }
            ShadowBacking::Rings(rings) => rings.set_watermark(Box::new(complete)),
        }
    }

    /// Waits until the atomic group and every one before it is durable, in every durability mode.
    ///
    /// # Errors
    /// As `wait`.
    pub fn sync_to(&self, ticket: Ticket) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.sync_to(ticket.0),
            ShadowBacking::Rings(rings) => rings.wait(ticket.0),
            ShadowBacking::ReadOnly(_) => Ok(()),
        }
    }

    /// Everything up to this ticket is durable. Costs one load, or one for each log.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> Ticket {
        Ticket(match &self.backing {
            ShadowBacking::Log(log) => log.region.medium().durable(),
            ShadowBacking::Rings(rings) => rings.handover.watermark(),
            ShadowBacking::ReadOnly(_) => 0,
        })
    }

    /// Whether the atomic group and every one before it is durable. Costs one load once a thread has found it so, by
    /// asking or by waiting. With [`Order::Gaps`](crate::Order::Gaps) it is true of all that was sealed, and costs
    /// none.
    #[inline(always)]
    #[must_use]
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.medium().durable() >= ticket.0,
            ShadowBacking::Rings(rings) => rings.is_durable(ticket.0),
            ShadowBacking::ReadOnly(_) => true,
        }
    }

    /// Everything that any thread has committed so far. With [`Options::stamped`] everything that is known to be
    /// complete; at first the greatest number of the openings before.
    #[inline(always)]
    #[must_use]
    pub fn committed(&self) -> Ticket {
        Ticket(match &self.backing {
            ShadowBacking::Log(log) => log.region.appended(),
            ShadowBacking::Rings(rings) => rings.handover.begun(),
            ShadowBacking::ReadOnly(_) => 0,
        })
    }

    /// The error that poisoned the shadow, if any: from then on nothing is committed.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.medium().poisoned(),
            ShadowBacking::Rings(rings) => rings.poisoned().or_else(|| rings.region.medium().poisoned()),
            ShadowBacking::ReadOnly(_) => None,
        }
    }

    /// Applies everything committed so far to the durable copy and frees the log.
    ///
    /// # Errors
    /// The first I/O error, which poisons the shadow.
    pub fn checkpoint(&self) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(log) => log.region.medium().checkpoint(),
            ShadowBacking::Rings(rings) => rings.checkpoint(),
            ShadowBacking::ReadOnly(_) => Ok(()),
        }
    }

    /// True when a checkpoint has not yet ended the load of a pool that is filled without a log.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::is_loading)
    }

    /// Ends a load without a log, if there is one: when this returns, no thread of the shadow reads the working copy
    /// any more. Without a checkpoint before it nothing is left of the load.
    pub fn end_load(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.end_load();
        }
    }

    /// Applies one batch of durable atomic groups to the durable copy, as the replayer does. False when there was
    /// nothing to do, or the medium replays by itself.
    pub fn replay(&self) -> bool {
        match &self.backing {
            ShadowBacking::Log(_) | ShadowBacking::ReadOnly(_) => false,
            ShadowBacking::Rings(rings) => rings.replay_once(),
        }
    }

    /// False in a child of fork(2): log and durable copy are its parent's. One load.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.process.is_here()
    }

    /// True when it was opened read-only: it takes no commit, and what is stored to the working copy is lost.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.backing, ShadowBacking::ReadOnly(_))
    }

    /// Where it lies; none for one on a region that the caller keeps.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.pool.as_ref().map(|pool| &*pool.info().path)
    }

    /// By what it reaches its files; see [`Pool::storage`].
    #[must_use]
    pub fn storage(&self) -> Option<Arc<dyn Storage>> {
        self.pool.as_ref().and_then(Pool::storage)
    }

    /// Whether the callers number the atomic groups of this opening ([`Options::stamped`]).
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        matches!(&self.backing, ShadowBacking::Rings(rings) if rings.stamps.is_some())
    }

    /// Which atomic groups of this opening survive a crash.
    #[must_use]
    pub fn order(&self) -> Order {
        match &self.backing {
            ShadowBacking::Rings(rings) if rings.gaps => Order::Gaps,
            ShadowBacking::Rings(rings) if rings.stamps.is_some() => Order::Marker,
            _ => Order::Dense,
        }
    }

    /// What opening did.
    #[must_use]
    pub fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// True when this call of `open` created the shadow: it is all zero.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.report.created
    }

    /// The medium that it lies on.
    #[must_use]
    pub fn medium(&self) -> MediumKind {
        match &self.pool {
            Some(pool) => pool.info().medium,
            None if matches!(self.backing, ShadowBacking::Log(_)) => MediumKind::File,
            None => MediumKind::Emulated,
        }
    }

    /// Counters.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let mut stat = Stat {
            pool: self.pool.as_ref().map(Pool::stat),
            len: self.len(),
            capacity: self.capacity(),
            logs: self.logs,
            ..Stat::default()
        };
        match &self.backing {
            ShadowBacking::Log(log) => {
                stat.units = log.units();
                if let Some(pool) = &stat.pool {
                    stat.log_bytes = pool.log_bytes;
                    stat.log_used = pool.log_used;
                    stat.log_written = pool.log_written;
                    stat.full_waits = pool.log_full_waits;
                    stat.image_written = pool.image_written;
                }
            }
            ShadowBacking::Rings(rings) => rings.count(&mut stat),
            ShadowBacking::ReadOnly(_) => {
                stat.log_bytes = self.pool.as_ref().map_or(0, |pool| pool.info().log_bytes);
            }
        }
        stat
    }

    /// Reads everything at `path` and lists every damaged place. Takes a shared lock.
    ///
    /// # Errors
    /// When not even the superblock can be read, or a writer holds the shadow.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
        crate::check::check(path.as_ref())
    }

    /// Makes everything committed durable, applies it to the durable copy, and marks the shadow closed. The caller
    /// must have stopped using the working copy. With [`Options::stamped`] everything published counts as complete if
    /// every lease was dropped; otherwise it waits until the caller says so.
    ///
    /// # Errors
    /// The first I/O error: the shadow is then as after a crash, and opens again by recovery. `Unsupported` in a child
    /// of the process that opened it.
    pub fn close(mut self) -> Result<()> {
        let settled = match &self.backing {
            ShadowBacking::Log(_) | ShadowBacking::ReadOnly(_) => Ok(()),
            ShadowBacking::Rings(_) if !self.process.is_here() => {
                Err(Error::forked(self.path().unwrap_or(Path::new("the shadow"))))
            }
            ShadowBacking::Rings(rings) => {
                rings.complete_all().and_then(|()| rings.checkpoint()).map(|()| rings.flush_written())
            }
        };
        self.stop();
        match (settled, self.pool.take()) {
            (Ok(()), Some(pool)) => pool.close(),
            (settled, _) => settled,
        }
    }

    fn stop(&mut self) {
        let ShadowBacking::Rings(rings) = &self.backing else { return };
        if !self.process.is_here() {
            // The threads are the parent's, and may hold any lock. One more owner keeps the rings for ever.
            return std::mem::forget((self.replayer.take(), Arc::clone(rings), self.pool.take()));
        }
        if let Some(thread) = self.replayer.take() {
            rings.stop();
            // If the replayer panicked, every waiting thread has got that error already.
            let _ = thread.join();
        }
        rings.stop_crew();
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Create, Latency, Medium};
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    #[track_caller]
    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
            std::thread::yield_now();
        }
    }

    /// A log writer that needs a quarter of a ring at once does not wait for the replayer's pause, which is an hour
    /// here.
    #[test]
    fn a_long_unit_in_an_idle_shadow_is_applied_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().create(Create::IfMissing).capacity(1 << 20);
        let options = options.medium(Medium::Emulated(Latency::default())).log_bytes(64 << 10);
        let shadow = options.open(dir.path().join("s")).unwrap();
        shadow.grow(64 << 10).unwrap();
        let base = shadow.base() as usize;
        let ShadowBacking::Rings(rings) = &shadow.backing else { panic!("emulated has rings") };
        for _ in 0..200 {
            // Ends the replayer's pauses.
            wait_until("the replayer rests", || {
                rings.handover.is_idle() || {
                    rings.handover.work.notify_all();
                    false
                }
            });
            let applied = shadow.stat().applied_units;
            shadow.commit(0, &[(base, 20 << 10)]).unwrap();
            wait_until("the unit is applied", || shadow.stat().applied_units > applied);
        }
        shadow.close().unwrap();
    }

    /// Pages in `from..to` that this process has mapped. (Linux: /proc/self/pagemap.)
    fn mapped_pages(from: usize, to: usize) -> usize {
        use std::os::unix::fs::FileExt;
        const PRESENT: u64 = 1 << 63;
        let mut entries = vec![0; (to - from) / 4096 * 8];
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        map.read_exact_at(&mut entries, from as u64 / 4096 * 8).unwrap();
        entries.as_chunks::<8>().0.iter().filter(|entry| u64::from_le_bytes(**entry) & PRESENT != 0).count()
    }

    /// The rings were full when the shadow was closed. A page that opening touches is mapped, and up to 64 KiB beside
    /// it (Linux maps around a fault).
    #[test]
    fn opening_a_closed_shadow_touches_no_ring() {
        const RING: usize = 8 << 20;
        const AROUND: usize = 2 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = Options::new().create(Create::IfMissing).capacity(1 << 20).log_bytes(RING as u64);
        let options = options.medium(Medium::Emulated(Latency::default())).background(false);
        let shadow = options.open(&path).unwrap();
        shadow.grow(1 << 20).unwrap();
        let range = (shadow.base() as usize, 1 << 20);
        // SAFETY: the usable part, and no other thread uses it.
        unsafe { shadow.base().write_bytes(7, range.1) };
        for _ in 0..20 {
            shadow.commit(0, &[range]).unwrap();
        }
        let ring = |shadow: &Shadow| {
            let ShadowBacking::Rings(rings) = &shadow.backing else { panic!("emulated has rings") };
            let first = rings.region.at(rings.layout.ring(0, 0)) as usize;
            mapped_pages(first + AROUND, first + RING - AROUND)
        };
        assert_eq!(ring(&shadow), (RING - 2 * AROUND) / 4096);
        shadow.close().unwrap();
        let shadow = options.open(&path).unwrap();
        assert!(shadow.report().was_clean);
        assert_eq!(ring(&shadow), 0);
        // After a crash it does.
        drop(shadow);
        let shadow = options.open(&path).unwrap();
        assert_ne!(ring(&shadow), 0);
    }

    /// This test acts as the replayer: it begins its round before the other log writer publishes, and becomes idle
    /// after that writer's wake-up.
    #[test]
    fn a_front_that_waits_for_space_asks_again_when_nothing_happens() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().create(Create::IfMissing).capacity(1 << 20).log_bytes(4096);
        let options = options.medium(Medium::Emulated(Latency::default())).log_count(2);
        let mut shadow = options.open(dir.path().join("s")).unwrap();
        shadow.grow(4096).unwrap();
        shadow.stop();
        let (shadow, base) = (&shadow, shadow.base() as usize);
        let ShadowBacking::Rings(rings) = &shadow.backing else { panic!("emulated has rings") };
        let handover = &rings.handover;
        handover.begin(1);
        std::thread::scope(|scope| {
            // Two of these atomic groups fill the ring.
            let front = scope.spawn(|| (0..3).try_for_each(|_| shadow.commit(0, &[(base, 1900)]).map(drop)));
            while rings.full_waits.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            let ticket = handover.work.ticket();
            handover.begin_round();
            let worked = rings.replay_once();
            handover.publish(1, handover.tail(1));
            handover.wake_if_idle();
            handover.go_idle();
            let woken = handover.work.wait_for(ticket, Duration::from_secs(60));
            while !front.is_finished() {
                rings.replay_once();
                std::thread::yield_now();
            }
            front.join().unwrap().unwrap();
            assert!(woken && !worked, "the replayer slept on, and the front with it");
        });
    }
}
