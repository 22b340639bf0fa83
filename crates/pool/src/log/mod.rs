//! The redo log: its ring, group commit, the scan that recovery makes, and spill files.

pub(super) mod group_commit;
pub(super) mod recent;
pub(super) mod ring;
pub(super) mod scan;
pub(super) mod spill;
