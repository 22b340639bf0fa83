//! The operations of a map: read, write, and commit a batch.

pub(super) mod batch_commit;
mod batch_redo;
mod compact;
mod compact_by_itself;
mod flusher;
pub(super) mod read;
pub(super) mod read_many;
pub(super) mod write;
