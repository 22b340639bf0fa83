//! The medium of a pool opened read-only: a private copy, from which nothing is written back.

use crate::stat::{MediumKind, PoolStat};
use crate::sync::Mutex;
use crate::{Capabilities, Durability, Lsn, MediumOps, Region, Result, Site};
use mangrove_sys::Reservation;
use std::sync::Arc;

/// Private memory. Recovery may change it; no change reaches a file.
pub(crate) struct ReadOnlyRegion {
    memory: Reservation,
    kind: MediumKind,
    /// Bytes that may be touched: a mapping may be longer than its file.
    usable: u64,
    /// Bytes of the region that its writer had made usable.
    grown: u64,
    /// What carries shared locks.
    locks: Mutex<Vec<Box<dyn Send + Sync>>>,
}

impl ReadOnlyRegion {
    pub(crate) fn new(memory: Reservation, kind: MediumKind, usable: u64, grown: u64) -> Arc<Self> {
        Arc::new(Self { memory, kind, usable, grown, locks: Mutex::default() })
    }

    /// Keeps what is locked until `release`.
    pub(crate) fn keep(&self, locked: impl Send + Sync + 'static) {
        self.locks.lock().push(Box::new(locked));
    }

    /// Closes the files, which releases their locks.
    pub(crate) fn release(&self) {
        self.locks.lock().clear();
    }

    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the memory.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn MediumOps>) }
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let mut stat = PoolStat::new(self.kind, Durability::Sync);
        stat.read_only = true;
        stat.reserved = self.memory.len() as u64;
        stat.grown = self.grown;
        stat
    }
}

impl MediumOps for ReadOnlyRegion {
    fn capabilities(&self) -> Capabilities {
        Capabilities { read_only: true, ..Capabilities::default() }
    }

    unsafe fn flush(&self, _offset: u64, _ptr: *const u8, _len: usize, _site: Site) {}

    fn fence(&self, _site: Site) {}

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.usable {
            return Ok(());
        }
        Err(crate::Error::NoSpace { path: "a read-only pool".into(), wanted: bytes - self.usable })
    }

    fn grown(&self) -> u64 {
        self.grown
    }
}
