//! What the processor offers: its barriers, instructions, clock and topology.

pub(crate) mod barrier;
pub(crate) mod bits;
pub(crate) mod cacheline;
#[cfg(target_arch = "x86_64")]
pub(crate) mod cpuid;
pub(crate) mod crc;
pub(crate) mod rtm;
pub(crate) mod spin;
pub(crate) mod topology;
pub(crate) mod tsc;
