//! Blocks of any size, and the shards they are allocated from.

pub(crate) mod blocks;
pub(crate) mod plain;
pub(crate) mod realloc;
pub(crate) mod shards;
pub(crate) mod slab;
pub(crate) mod sparse;
