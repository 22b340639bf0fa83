//! Walks and snapshots, borrowed from a map or with a share of it.

pub(super) mod bounds;
mod owned;
pub(super) mod range;
pub(super) mod snapshot;
