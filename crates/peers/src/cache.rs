//! The setting that all peers share.

/// Cache of each peer, in bytes: the 1M records of the bench fit into it.
pub(crate) const CACHE_BYTES: usize = 512 << 20;
