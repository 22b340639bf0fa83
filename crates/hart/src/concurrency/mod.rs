//! Which writers run at the same time, and when a reader may return what it read.

pub(super) mod lane;
pub(super) mod pause;
pub(super) mod read_gate;
pub(super) mod writer_gate;
