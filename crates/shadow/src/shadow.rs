//! The shadow: a region at its address, and units committed to it.
//!
//! Invariants:
//! 1. The working copy never moves, and is never written by this crate once it has been opened.
//! 2. Tickets grow in the order of commits; a unit is durable only with every one before it.

use crate::{Error, Options, Result, Stat};
use mangrove_pmem::{CheckReport, MediumKind, OpenReport, Pool, Range, Region};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a committed unit, and with it everything committed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A durable region with a working copy at a fixed address. See the crate's page.
///
/// Dropping it without [`Shadow::close`] is a tidy crash: nothing more is written, the next opening recovers
/// what was durable.
pub struct Shadow {
    pool: Pool,
    region: Region,
    /// Usable bytes.
    len: AtomicU64,
    logs: usize,
    scratch: Mutex<Vec<Range>>,
    units: AtomicU64,
    unit_bytes: AtomicU64,
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow").field("base", &self.base()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Shadow {
    /// Opens or creates the shadow in the folder `path`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let pool = options.pool.clone().capacity(options.capacity).log_bytes(options.log_bytes);
        let pool = pool.address(options.address).open(path)?;
        if pool.info().medium != MediumKind::File {
            return Err(Error::Unsupported {
                what: format!("a shadow on the medium {} is not there yet", pool.info().medium),
            });
        }
        let region = pool.region().clone();
        Ok(Self {
            len: AtomicU64::new(pool.stat().grown),
            region,
            pool,
            logs: options.log_count.max(1),
            scratch: Mutex::default(),
            units: AtomicU64::new(0),
            unit_bytes: AtomicU64::new(0),
        })
    }

    /// First byte of the working copy: the same in every process, unless created `Anywhere`.
    #[inline]
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.region.base()
    }

    /// Bytes that may be used; they begin as zeros. Grows only.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.len.load(Ordering::Acquire)
    }

    /// True when nothing has been grown yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of address space reserved: what it may ever grow to.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.region.len()
    }

    /// Makes at least the first `bytes` bytes usable and durable-able. What was never committed reads as zeros
    /// after the next opening.
    ///
    /// # Errors
    /// `NoSpace` when the medium or the address space is full: nothing is poisoned, the caller goes on.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        self.region.grow(bytes)?;
        // Release pairs with the Acquire in `len`.
        self.len.fetch_max(bytes.next_multiple_of(4096), Ordering::Release);
        Ok(())
    }

    /// Takes the present bytes of all `ranges` (address, length) into the log `log` as one unit, and returns
    /// without waiting for durability. Blocks while the log is full. Ranges may overlap or be empty; nobody may
    /// store to them during the call. Units of different logs keep the order of their commits where one call
    /// returned before the other began.
    ///
    /// # Errors
    /// `NoSpace` for a unit that does not fit into the log, when there is no room beside it: nothing is
    /// poisoned, the unit is not there. `Poisoned`, or the first error, for ever after the medium failed.
    ///
    /// # Panics
    /// When a range lies outside the usable part of the working copy, or there is no such log.
    pub fn commit(&self, log: usize, ranges: &[(usize, usize)]) -> Result<Ticket> {
        assert!(log < self.logs, "log {log} of {}", self.logs);
        let (base, len) = (self.base() as usize, self.len());
        let mut scratch = self.scratch.lock();
        scratch.clear();
        let mut bytes = 0;
        for &(address, count) in ranges {
            let offset = address.wrapping_sub(base) as u64;
            assert!(offset <= len && count as u64 <= len - offset, "a range outside the working copy");
            if count > 0 {
                scratch.push(Range { offset, len: count as u64 });
                bytes += count as u64;
            }
        }
        let lsn = self.region.flush_unit(&scratch)?;
        drop(scratch);
        // Relaxed: counters.
        self.units.fetch_add(1, Ordering::Relaxed);
        self.unit_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Ticket(lsn))
    }

    /// Waits until the unit and every one before it is durable. With durability by interval it returns at once;
    /// see [`Shadow::sync`].
    ///
    /// # Errors
    /// `Poisoned`, or the first error: nothing may be acknowledged.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.region.wait(ticket.0)
    }

    /// Waits until everything committed so far is durable, in every durability mode.
    ///
    /// # Errors
    /// As `wait`.
    pub fn sync(&self) -> Result<()> {
        self.region.sync()
    }

    /// Everything up to this ticket is durable. One load.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> Ticket {
        Ticket(self.region.medium().durable())
    }

    /// Everything committed so far, by anybody.
    #[inline]
    #[must_use]
    pub fn committed(&self) -> Ticket {
        Ticket(self.region.appended())
    }

    /// The error that latched, if any: from then on nothing is committed.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        self.region.medium().poisoned()
    }

    /// Applies everything committed so far to the image and frees the log.
    ///
    /// # Errors
    /// The first I/O error, which latches.
    pub fn checkpoint(&self) -> Result<()> {
        self.pool.checkpoint()
    }

    /// What opening had to do.
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        self.pool.open_report()
    }

    /// True when this call of `open` made it: it is all zero.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.pool.was_created()
    }

    /// What it lies on.
    #[must_use]
    pub fn medium(&self) -> MediumKind {
        self.pool.info().medium
    }

    /// Counters.
    #[must_use]
    pub fn stat(&self) -> Stat {
        Stat {
            pool: self.pool.stat(),
            len: self.len(),
            capacity: self.capacity(),
            logs: self.logs,
            // Relaxed: counters.
            units: self.units.load(Ordering::Relaxed),
            unit_bytes: self.unit_bytes.load(Ordering::Relaxed),
        }
    }

    /// Reads everything at `path` and lists every damaged place. Takes a shared lock.
    ///
    /// # Errors
    /// When not even the superblock can be read, or somebody has it open.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
        Pool::check(path)
    }

    /// Makes everything committed durable, applies it to the image, and marks it closed. Nobody uses the working
    /// copy any more.
    ///
    /// # Errors
    /// The first I/O error: it is then as after a crash, and opens again by recovery.
    pub fn close(self) -> Result<()> {
        self.pool.close()
    }
}
