//! Collections on the durable heap: vector, hash map, ordered map, queue, byte strings.

mod bytes;
mod counter;
#[cfg(test)]
mod format_tests;
mod handle;
mod hash;
mod key;
mod map;
mod map_table;
mod node;
mod order;
mod ordered;
mod queue;
mod reads;
mod vector;

pub use bytes::HeapBytes;
pub use key::HeapKey;
pub use map::{HeapMap, MapWalk};
pub use ordered::{HeapOrderedMap, OrderedWalk};
pub use queue::{HeapQueue, QueueWalk};
pub use reads::{PlainReads, Reads};
pub use vector::HeapVec;
