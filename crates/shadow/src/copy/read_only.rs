//! The working copy of a shadow opened read-only: private memory, from which nothing is written back.

use crate::copy::working::WorkingCopy;
use crate::layout::{AT_RINGS, BLANK_HEADER, PAGE_BYTES, ShadowLayout};
use crate::order::Order;
use crate::recovery::recover::{last_opening, read_len, recover};
use crate::recovery::scan::LogEnds;
use crate::{Error, RecoveryReport, Result};
use mangrove_pool::Pool;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Private memory at the recorded address.
pub(crate) struct ReadOnlyBacking {
    base: *mut u8,
    /// Usable bytes.
    len: AtomicU64,
    capacity: u64,
    /// On the file medium the pool's region is the working copy.
    _working: Option<WorkingCopy>,
    path: PathBuf,
}

impl ReadOnlyBacking {
    /// On the file medium: opening the pool has applied its log.
    pub(crate) fn of_region(pool: &Pool) -> Self {
        let region = pool.region();
        let len = AtomicU64::new(region.medium().grown());
        let path = pool.info().path.clone();
        Self { base: region.base(), len, capacity: region.len(), _working: None, path }
    }

    /// On dax and emulated: recovery changes a private mapping of the pool's files.
    pub(crate) fn of_rings(pool: &Pool, report: &mut RecoveryReport) -> Result<Self> {
        let (region, usable, info) = (pool.region(), pool.stat().grown, pool.info());
        let damaged = |offset, what: &str| {
            Err(Error::Corrupt { path: info.path.join("image"), offset, what: what.into() })
        };
        let layout = if usable < AT_RINGS { None } else { ShadowLayout::read(region)? };
        let Some(mut layout) = layout else {
            return if info.made { damaged(0, BLANK_HEADER) } else { Err(unfinished(&info.path)) };
        };
        if layout.image_start() > usable {
            return damaged(usable, "the image ends before its logs do");
        }
        if read_len(region, &layout)? > usable - layout.image_start() {
            return damaged(usable, "the image ends before its length");
        }
        report.last = last_opening(region);
        let working = WorkingCopy::reserve(&layout)?;
        let ends = if report.was_clean { LogEnds::Empty } else { LogEnds::Prove };
        let (start, recovery) = recover(region, &mut layout, ends, Order::Dense)?;
        working.load(region, layout.image_start(), start.len);
        report.units = recovery.units;
        report.unit_bytes = recovery.bytes;
        report.dropped = recovery.dropped;
        report.image_bytes = start.len;
        Ok(Self {
            base: working.base(),
            len: AtomicU64::new(start.len),
            capacity: working.len(),
            _working: Some(working),
            path: info.path.clone(),
        })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Makes private memory usable: a crash may have left fewer bytes than an allocator in them counts.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if bytes > self.capacity {
            return Err(Error::NoSpace { path: self.path.clone(), wanted: bytes - self.capacity });
        }
        // Release pairs with the Acquire in `len`.
        self.len.fetch_max(bytes.next_multiple_of(PAGE_BYTES).min(self.capacity), Ordering::Release);
        Ok(())
    }

    /// What every commit gets.
    pub(crate) fn refusal(&self) -> Error {
        Error::ReadOnly { path: self.path.clone() }
    }
}

fn unfinished(path: &Path) -> Error {
    let what = "its creation was interrupted and nothing was stored in it; create it again".into();
    Error::Foreign { path: path.to_owned(), what }
}
