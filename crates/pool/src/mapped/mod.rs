//! The media `dax` and `emulated`: stores go to the mapped data file itself.

pub(super) mod dax;
pub(super) mod domain;
pub(super) mod emulated;
mod flush_queue;
pub(super) mod latency;
pub(super) mod medium;
pub(super) mod open;
