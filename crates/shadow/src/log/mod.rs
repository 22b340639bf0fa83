//! From what a caller commits to whole atomic groups in a log.

pub(crate) mod commit;
pub(crate) mod complete;
pub(crate) mod defer;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod log_writer;
pub(crate) mod spill;
pub(crate) mod spill_area;
pub(crate) mod stamps;
