//! How a commit becomes durable: one file for each protocol.

mod collect;
mod group;
mod heap_log;
mod htm_sgl;
mod leasing;
mod one_fence;
mod precedence;
mod protocol;
mod read_only;
mod spht;
mod spht_eadr;
mod spht_eadr_flush;
mod stamp_clock;

pub use group::{Group, GroupSink};
pub use heap_log::{HeapLog, HeapSink, StampedLog, StampedSink};
pub use htm_sgl::{HtmSgl, HtmSglSink};
pub use one_fence::{OneFence, OneFenceSink};
pub use protocol::Protocol;
pub use spht::{Spht, SphtSink};
pub use spht_eadr::{SphtEadr, SphtEadrSink};
pub use spht_eadr_flush::{SphtEadrFlush, SphtEadrFlushSink};
