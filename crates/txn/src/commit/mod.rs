//! How a commit becomes durable: one file for each protocol.

mod collect;
mod group;
mod heap_log;
mod leasing;
mod one_fence;
mod read_only;

pub use group::{Group, GroupSink};
pub use heap_log::{HeapLog, HeapSink};
pub use one_fence::{OneFence, OneFenceSink};
