//! The emulated medium without files: DRAM in place of persistent memory, with real flushes and fences. For figures
//! and tests; its content is lost with the process.

use crate::config::Domain;
use crate::mapped::domain::PersistenceDomain;
use crate::mapped::latency::{Latency, LatencyModel};
use crate::mapped::medium::MappedRegion;
use crate::{Error, Region, Result};
use mangrove_sys::Reservation;

/// Anonymous DRAM with real cache-line write-back.
#[derive(Debug)]
pub struct Emulated;

impl Emulated {
    /// A fresh zeroed region of `len` bytes, without injected latencies.
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub fn region(len: u64) -> Result<Region> {
        Self::region_with(len, Latency::default(), Domain::Auto)
    }

    /// A fresh zeroed region of `len` bytes.
    ///
    /// # Errors
    /// When the address space cannot be reserved, or the environment asks for an instruction that this CPU lacks.
    pub fn region_with(len: u64, latency: Latency, domain: Domain) -> Result<Region> {
        let domain = PersistenceDomain::resolve(domain, None)?;
        let unsupported =
            |e| Error::Unsupported { what: format!("cannot reserve {len} bytes of address space: {e}") };
        let memory = Reservation::anonymous(len as usize).map_err(unsupported)?;
        Ok(MappedRegion::anonymous(memory, domain, model(latency)?).region())
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
