//! The set of blocks that tracked calls wrote.

pub(super) mod block_table;
pub(super) mod exact;
pub(super) mod own_vec;
pub(super) mod write_set;
