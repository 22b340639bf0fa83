//! Names of the sections that the run fills and the goals read.

pub(super) const WRITING: &str = "writing";
pub(super) const UNSYNCED: &str = "unsynced";
pub(super) const READING: &str = "reading";
