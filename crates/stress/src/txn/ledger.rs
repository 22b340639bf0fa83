//! What the two roles need from what lies in the heap: operations that each write all of what they touch in one
//! transaction, so that what a crash splits contradicts itself.

use crate::value::WriterOperation;
use mangrove::heap::{Heap, HeapResult, Stop, Tx};

/// Something in a heap that operations of several threads change.
pub(crate) trait Ledger: Copy + Send + Sync {
    /// The key under which contradictions are reported.
    const NAME: &'static str;

    /// That of the heap; made where there is none. `keys` is its size, where it has one.
    fn open(heap: &Heap, keys: u64) -> HeapResult<Self>;

    /// The operation `of`, chosen by `noise`, in the transaction `tx`.
    fn operate(self, tx: &mut Tx<'_>, of: WriterOperation, noise: u64) -> Result<(), Stop>;

    /// The last operation of `thread`; or what contradicts itself. All of one instant.
    fn look(self, tx: &mut Tx<'_>, thread: u8) -> Result<Result<Option<WriterOperation>, String>, Stop>;

    /// Reads all of a heap that at most this ledger is in.
    fn examine(heap: &Heap) -> HeapResult<Findings>;
}

/// What is in a heap.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The last operation of each thread that made one.
    pub(crate) last: Vec<WriterOperation>,
    /// One sentence for each contradiction.
    pub(crate) problems: Vec<String>,
}

/// An operation as one word. Of one thread the later one has the greater word.
pub(crate) fn stamp(of: WriterOperation) -> u64 {
    u64::from(of.round) << 40 | u64::from(of.thread) << 32 | u64::from(of.number)
}

/// The operation of a stamp.
pub(crate) fn operation(stamp: u64) -> WriterOperation {
    WriterOperation { round: (stamp >> 40) as u16, thread: (stamp >> 32) as u8, number: stamp as u32 }
}
