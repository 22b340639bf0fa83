//! The bytes on the medium, as docs/format describes them.

pub(super) mod log;
pub(super) mod page_sums;
pub(super) mod ring_layout;
pub(super) mod superblock;
