//! The medium of a pool opened read-only: a private copy that goes nowhere.

use crate::stat::{MediumKind, PoolStat};
use crate::{Durability, Lsn, Medium, Region, Result, Site};
use mangrove_sys::Reservation;
use std::sync::Arc;

/// Private memory. Recovery may change it; nothing leaves it.
pub(crate) struct ReadOnly {
    memory: Reservation,
    kind: MediumKind,
}

impl ReadOnly {
    pub(crate) fn new(memory: Reservation, kind: MediumKind) -> Arc<Self> {
        Arc::new(Self { memory, kind })
    }

    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the memory.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn Medium>) }
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let mut stat = PoolStat::new(self.kind, Durability::Sync);
        stat.read_only = true;
        stat.reserved = self.memory.len() as u64;
        stat
    }
}

impl Medium for ReadOnly {
    unsafe fn flush(&self, _offset: u64, _ptr: *const u8, _len: usize, _site: Site) {}

    fn fence(&self, _site: Site) {}

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        true
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.memory.len() as u64 {
            return Ok(());
        }
        Err(crate::Error::NoSpace {
            path: "a read-only pool".into(),
            wanted: bytes - self.memory.len() as u64,
        })
    }
}
