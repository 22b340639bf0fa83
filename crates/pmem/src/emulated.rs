//! The emulated medium: DRAM that pretends to be persistent memory, with real flushes and fences.
//! For figures, tests and the simulator; it never claims to survive more than it does.

use crate::{Error, Lsn, Medium, Region, Result, Site};
use mangrove_sys::{FlushInstruction, Reservation, fence, flush_range};
use std::sync::Arc;

/// Injected latencies in nanoseconds, on top of DRAM's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Added to each flushed cache line.
    pub write_ns: u32,
    /// Added to each line read that misses a model of the CPU's last-level cache.
    pub read_ns: u32,
}

/// Anonymous DRAM with real cache-line write-back.
pub struct Emulated {
    memory: Reservation,
    instruction: FlushInstruction,
}

impl Emulated {
    /// A fresh zeroed region of `len` bytes.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub fn region(len: u64) -> Result<Region> {
        let memory = Reservation::anonymous(len as usize).map_err(|e| Error::Unsupported {
            what: format!("cannot reserve {len} bytes of address space: {e}"),
        })?;
        let base = memory.base();
        let medium = Arc::new(Self { memory, instruction: FlushInstruction::detect() });
        // SAFETY: the medium owns the reservation of `len` bytes.
        Ok(unsafe { Region::new(base, len, medium) })
    }
}

impl Medium for Emulated {
    unsafe fn flush(&self, _offset: u64, ptr: *const u8, len: usize, _site: Site) {
        // SAFETY: the caller vouches for the range.
        unsafe { flush_range(self.instruction, ptr, len) };
    }

    fn fence(&self, _site: Site) {
        fence();
    }

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes > self.memory.len() as u64 {
            return Err(Error::NoSpace {
                path: "emulated memory".into(),
                wanted: bytes - self.memory.len() as u64,
            });
        }
        Ok(())
    }
}
