//! Names that the driver prints, the run fills in and the goals read.

pub(super) const WRITING: &str = "writing";
pub(super) const READING: &str = "reading";
pub(super) const SYNCED_PUT: &str = "put, synced";
pub(super) const GET: &str = "get";
pub(super) const SCAN: &str = "scan, records";
