//! The emulated medium without files: DRAM that pretends to be persistent memory, with real flushes
//! and fences. For figures and tests; it never claims to survive more than it does.

use crate::domain::Domain;
use crate::latency::LatencyModel;
use crate::mapped::Mapped;
use crate::options::DomainChoice;
use crate::{Error, Region, Result};
use mangrove_sys::Reservation;

/// Injected latencies in nanoseconds, on top of DRAM's own. How they are spent: `latency.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Added to each flushed cache line.
    pub write_ns: u32,
    /// Added to each line read that misses a model of the CPU's last-level cache.
    pub read_ns: u32,
}

/// Anonymous DRAM with real cache-line write-back.
#[derive(Debug)]
pub struct Emulated;

impl Emulated {
    /// A fresh zeroed region of `len` bytes, without injected latencies.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub fn region(len: u64) -> Result<Region> {
        Self::region_with(len, Latency::default(), DomainChoice::Auto)
    }

    /// A fresh zeroed region of `len` bytes.
    ///
    /// # Errors
    /// When the address space cannot be reserved, or the environment asks for what this CPU lacks.
    pub fn region_with(len: u64, latency: Latency, domain: DomainChoice) -> Result<Region> {
        let domain = Domain::resolve(domain, None)?;
        let unsupported =
            |e| Error::Unsupported { what: format!("cannot reserve {len} bytes of address space: {e}") };
        let memory = Reservation::anonymous(len as usize).map_err(unsupported)?;
        Ok(Mapped::anonymous(memory, domain, model(latency)?).region())
    }
}

/// The model of `latency`; none for zero.
pub(crate) fn model(latency: Latency) -> Result<Option<LatencyModel>> {
    if latency == Latency::default() {
        return Ok(None);
    }
    LatencyModel::new(latency)
        .map(Some)
        .map_err(|e| Error::Unsupported { what: format!("cannot reserve memory for the latency model: {e}") })
}
