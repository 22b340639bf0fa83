//! A counting medium: what an operation of any structure costs in flushes and fences.

use mangrove_pool::{Error, Lsn, MediumOps, Region, Site};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Flushes, flushed lines and fences so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) flushes: u64,
    pub(crate) lines: u64,
    pub(crate) fences: u64,
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            flushes: self.flushes - earlier.flushes,
            lines: self.lines - earlier.lines,
            fences: self.fences - earlier.fences,
        }
    }
}

/// Reads the counters of a counting region.
#[derive(Clone)]
pub(crate) struct RegionCounter(Arc<Counting>);

impl RegionCounter {
    pub(crate) fn now(&self) -> Counts {
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Counts { flushes: load(&self.0.flushes), lines: load(&self.0.lines), fences: load(&self.0.fences) }
    }
}

struct Counting {
    inner: Region,
    flushes: AtomicU64,
    lines: AtomicU64,
    fences: AtomicU64,
}

impl MediumOps for Counting {
    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, site: Site) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let lines = (offset + len as u64).div_ceil(64) - offset / 64;
        self.lines.fetch_add(lines, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.medium().flush(offset, ptr, len, site) };
    }

    fn fence(&self, site: Site) {
        self.fences.fetch_add(1, Ordering::Relaxed);
        self.inner.medium().fence(site);
    }

    fn wait(&self, lsn: Lsn, site: Site) -> Result<(), Error> {
        self.inner.medium().wait(lsn, site)
    }

    fn leave_unawaited(&self) {
        self.inner.medium().leave_unawaited();
    }

    fn grow(&self, bytes: u64) -> Result<(), Error> {
        self.inner.medium().grow(bytes)
    }
}

/// The same memory as `inner`, with its flushes and fences counted.
pub(crate) fn counting(inner: Region) -> (Region, RegionCounter) {
    let base = std::ptr::NonNull::new(inner.base()).expect("regions have an address");
    let len = inner.len();
    let medium = Arc::new(Counting {
        inner,
        flushes: AtomicU64::new(0),
        lines: AtomicU64::new(0),
        fences: AtomicU64::new(0),
    });
    // SAFETY: the medium owns the region whose memory this is.
    (unsafe { Region::new(base, len, medium.clone()) }, RegionCounter(medium))
}
