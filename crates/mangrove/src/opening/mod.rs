//! What an open map consists of, how it is opened, made and recovered, and the threads that serve it.

mod background_compaction;
pub(super) mod background_recovery;
pub(super) mod engine;
pub(super) mod load;
pub(super) mod options;
