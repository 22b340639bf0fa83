//! What an operator does to a map: check, compact, back up, copy and salvage it.

mod backup;
pub(super) mod check;
pub(super) mod compact;
pub(super) mod copy;
pub(super) mod salvage;
