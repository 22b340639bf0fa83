//! Floor 3: transactions on memory that threads share.
//!
//! An executor isolates the transactions of many threads on one range of addresses ([`TxMemory`]): each is atomic,
//! and sees one consistent state of memory. How a commit becomes durable is another matter: executors hand what a
//! transaction wrote to a [`RedoSink`], in the order that its module states. [`Heap`] is the durable heap, and
//! [`HeapVec`], [`HeapMap`], [`HeapOrderedMap`] and [`HeapQueue`] are collections on it. [`VolatileLog`] keeps
//! nothing.
//!
//! ```
//! use mangrove_txn::{Halt, Isolation, Stm, StmOptions, TxAccess, TxMemory, TxThread, VolatileLog};
//!
//! let mut words = vec![100u64, 0];
//! let base = words.as_mut_ptr();
//! // SAFETY: the vector outlives the executor, and only transactions use it meanwhile.
//! let memory = unsafe { TxMemory::new(base.cast(), 16) };
//! let stm = Stm::new(memory, VolatileLog::new(), StmOptions::default());
//! let (from, to) = (memory.base(), memory.base() + 8);
//!
//! let mut thread = stm.thread();
//! let left = thread.run(|tx| {
//!     let (a, b) = (tx.read_word(from)?, tx.read_word(to)?);
//!     tx.write_word(to, b + 30)?;
//!     if a < 30 {
//!         return Err(Halt::Abort("not covered")); // everything is undone
//!     }
//!     tx.write_word(from, a - 30)?;
//!     Ok(a - 30)
//! });
//! assert_eq!(left, Ok(70));
//! drop(thread);
//! assert_eq!(words, [70, 30]);
//! ```
//!
//! The design and its reasons: docs/decisions/txn.md.

mod access;
mod collections;
mod commit;
mod executor;
mod heap;
mod in_place;
#[cfg(feature = "silenced-steps")]
pub mod lab;
mod left_out;
mod memory;
mod own_stack;
mod run;
mod sink;
mod sync;
mod volatile;

pub use access::{Halt, Interrupted, TxAccess};
pub use bytemuck::{self, Pod, Zeroable};
pub use collections::{
    HeapBytes, HeapKey, HeapMap, HeapOrderedMap, HeapQueue, HeapVec, MapWalk, OrderedWalk, PlainReads,
    QueueWalk, Reads,
};
pub use commit::{
    Group, GroupSink, HeapLog, HeapSink, HtmSgl, HtmSglSink, OneFence, OneFenceSink, Protocol, Spht,
    SphtEadr, SphtEadrFlush, SphtEadrFlushSink, SphtEadrSink, SphtSink, StampedLog, StampedSink,
};
pub use executor::{
    HardwareLimits, HardwareModel, HardwareThread, HardwareTx, Htm, HtmThread, InPlaceTx, RetryBudget, Sgl,
    SglThread, Stm, StmOptions, StmThread, StmTx, ThreadLimit,
};
pub use heap::{
    BackupProgress, Cancel, Executor, Heap, HeapBackup, HeapError, HeapInfo, HeapOptions, HeapResult,
    HeapStat, KIND, MEMORY_BYTES_MIN, Plan, Ptr, ROOT_COUNT_MAX, ROOT_NAME_BYTES_MAX, Root, Stop, Tx,
    TxTicket,
};
pub use in_place::{IN_PLACE_KIND, InPlaceMemory, InPlaceOptions, UNDO_ENTRIES_MAX};
pub use mangrove_shadow::{
    AddressChoice, Create, Domain, Durability, FlushCost, FlushInstruction, LastOpening, Latency, Medium,
    MediumKind, Order, PoolConfig, Start,
};
pub use memory::TxMemory;
pub use own_stack::OwnStack;
pub use run::{Answer, Isolation, TxCounts, TxError, TxThread};
pub use sink::{RedoLog, RedoSink, TxWrites, Unit, UnitSize};
pub use volatile::{VolatileLog, VolatileSink};
