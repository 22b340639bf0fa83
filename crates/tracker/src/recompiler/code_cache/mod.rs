//! Where translated code lies, and which mapped code it came from.

pub(super) mod blocks;
pub(super) mod cache;
pub(super) mod proc_maps;
