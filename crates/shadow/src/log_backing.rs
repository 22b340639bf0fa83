//! A shadow on a medium that is log and replayer itself: the file medium.

use crate::Result;
use crate::copy::page_set::FreeSpace;
use crate::layout::PAGE_BYTES;
use mangrove_pool::{ByteRange, Region};
use mangrove_sys::ProcessMark;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shadow on a medium that has a log.
pub(crate) struct LogBacking {
    pub(crate) region: Region,
    /// Usable bytes.
    len: AtomicU64,
    scratch: Mutex<Vec<ByteRange>>,
    units: AtomicU64,
    pub(crate) free_space: FreeSpace,
    /// The process that opened it. In a child of fork a thread of the parent may hold any lock.
    pub(crate) process: ProcessMark,
}

impl LogBacking {
    pub(crate) fn new(region: Region) -> Self {
        let len = AtomicU64::new(region.medium().grown());
        let free_space = FreeSpace::of(&region);
        let (scratch, units) = (Mutex::default(), AtomicU64::new(0));
        Self { region, len, scratch, units, free_space, process: ProcessMark::here() }
    }

    /// Makes the first `bytes` bytes usable.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        self.region.grow(bytes)?;
        // Release pairs with the Acquire in `len`.
        self.len.fetch_max(bytes.next_multiple_of(PAGE_BYTES), Ordering::Release);
        Ok(())
    }

    /// Makes usable what the region has reserved beyond that, as the next opening would.
    pub(crate) fn grow_to_reserved(&self) {
        // Release: as in `grow`.
        self.len.fetch_max(self.region.medium().grown(), Ordering::Release);
    }

    /// As `append`, for ranges that are not a slice yet.
    pub(crate) fn commit(&self, ranges: impl Iterator<Item = ByteRange>) -> Result<u64> {
        if !self.process.is_here() {
            // The medium refuses.
            return self.append(&[]);
        }
        let mut scratch = self.scratch.lock();
        scratch.clear();
        scratch.extend(ranges);
        self.append(&scratch)
    }

    /// Atomic groups appended.
    pub(crate) fn units(&self) -> u64 {
        // Relaxed: a counter.
        self.units.load(Ordering::Relaxed)
    }

    /// Usable bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.len.load(Ordering::Acquire)
    }

    /// Appends the present bytes of `ranges` to the log as one atomic group; returns its number.
    pub(crate) fn append(&self, ranges: &[ByteRange]) -> Result<u64> {
        let seq = self.region.flush_unit(ranges)?;
        // Relaxed: a counter.
        self.units.fetch_add(1, Ordering::Relaxed);
        Ok(seq)
    }
}
