//! What the tracker's tests and its suite share.

pub(crate) mod differential;
pub(crate) mod exact;
pub(crate) mod instructions;
pub(crate) mod library;
pub(crate) mod programs;
pub(crate) mod refusals;
pub(crate) mod speed;
pub(crate) mod strings;
