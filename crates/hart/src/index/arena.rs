//! Memory for nodes: a block only ever holds nodes of one kind, and stays mapped while the index lives.
//!
//! Invariants:
//! 1. The first word of a block is a version lock whose value never repeats. A new block is zeroed and free.
//! 2. A free block is obsolete (or was never used). Free blocks are linked through `NodeHeader::tail`, which no
//!    reader takes for a child.
//! 3. Child slots of a free block keep words that were once stored in child slots. So a late reader that follows one
//!    reaches a block again, and finds there that the version has changed.
//!
//! Free blocks move between threads in magazines (Bonwick and Adams, "Magazines and Vmem", USENIX 2001), so that a
//! thread that only frees supplies one that only allocates.

use std::alloc::{Layout as AllocLayout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::layouts::NodeHeader;
use super::lock::HeldLock;
use super::node::Node;
use super::word::{NodeKind, Word};

/// Chunks from the system have this size and alignment, so that they can be huge pages.
const CHUNK_BYTES: usize = 2 << 20;
/// The first chunk of an index: most maps are small.
const FIRST_CHUNK_BYTES: usize = 256 << 10;
/// What a shard takes from a chunk at a time, for one kind of node.
const RUN_BYTES: usize = 16 << 10;
/// Free blocks that move together.
const MAGAZINE_LEN: usize = 64;
const SHARD_COUNT: usize = 16;

/// A list of free blocks, linked through their headers, and its length.
#[derive(Clone, Copy, Debug, Default)]
struct Magazine {
    first: u64,
    len: usize,
}

/// One kind's blocks in one shard.
#[derive(Debug, Default)]
struct Stock {
    free: Magazine,
    spare: Magazine,
    /// The unused rest of a run, as addresses.
    fresh: usize,
    fresh_end: usize,
    /// Blocks allocated minus blocks freed here; negative where blocks of other shards are freed.
    live: i64,
}

/// A shard on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    stocks: Mutex<[Stock; NodeKind::COUNT]>,
}

#[derive(Debug)]
struct Chunk {
    base: NonNull<u8>,
    layout: AllocLayout,
}

// SAFETY: a chunk is plain memory; the stocks decide which thread writes where.
unsafe impl Send for Chunk {}

#[derive(Debug, Default)]
struct Depot {
    chunks: Vec<Chunk>,
    /// The unused rest of the last chunk, as addresses.
    unused: usize,
    unused_end: usize,
    bytes: u64,
    full: [Vec<Magazine>; NodeKind::COUNT],
}

/// The nodes of one index.
#[derive(Debug, Default)]
pub(super) struct NodeArena {
    shards: [Shard; SHARD_COUNT],
    depot: Mutex<Depot>,
}

/// The shard of this thread: threads are assigned to shards in turn.
fn shard_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT);
        }
        mine.get()
    })
}

impl NodeArena {
    /// A new node without children, locked and unreachable, with `tail` before `position`.
    pub(super) fn allocate(&self, kind: NodeKind, position: usize, tail: u64) -> (Node<'_>, HeldLock<'_>) {
        let address = {
            let mut stocks = self.shards[shard_index()].stocks.lock();
            let stock = &mut stocks[kind as usize];
            stock.live += 1;
            if stock.free.len == 0 && stock.fresh == stock.fresh_end {
                self.restock(kind, stock);
            }
            self.pop(kind, stock)
        };
        // SAFETY: the address is a block of `kind` of this arena.
        let node = unsafe { Node::new(Word::node(address, kind, position)) };
        let locked = node.lock().revive();
        node.reset(tail);
        (node, locked)
    }

    /// Frees a node that has left the tree or never entered it.
    pub(super) fn free(&self, node: Node<'_>, locked: HeldLock<'_>) {
        locked.retire();
        let kind = node.word().kind();
        let address = node.word().address();
        let mut stocks = self.shards[shard_index()].stocks.lock();
        let stock = &mut stocks[kind as usize];
        stock.live -= 1;
        if stock.free.len == MAGAZINE_LEN {
            if stock.spare.len != 0 {
                self.depot.lock().full[kind as usize].push(stock.spare);
            }
            stock.spare = std::mem::take(&mut stock.free);
        }
        header(address).tail.store(stock.free.first, Ordering::Relaxed);
        stock.free = Magazine { first: address as u64, len: stock.free.len + 1 };
    }

    #[inline]
    fn pop(&self, kind: NodeKind, stock: &mut Stock) -> usize {
        if stock.free.len != 0 {
            let address = stock.free.first as usize;
            let rest = header(address).tail.load(Ordering::Relaxed);
            stock.free = Magazine { first: rest, len: stock.free.len - 1 };
            return address;
        }
        let address = stock.fresh;
        stock.fresh += kind.bytes();
        // SAFETY: the block lies in a run that only this stock uses, and no other thread has seen it yet.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(0, kind.bytes()) };
        address
    }

    /// Finds free blocks for a stock that has none.
    #[cold]
    fn restock(&self, kind: NodeKind, stock: &mut Stock) {
        if stock.spare.len != 0 {
            stock.free = std::mem::take(&mut stock.spare);
            return;
        }
        let mut depot = self.depot.lock();
        if let Some(magazine) = depot.full[kind as usize].pop() {
            stock.free = magazine;
            return;
        }
        if depot.unused_end - depot.unused < RUN_BYTES {
            depot.add_chunk();
        }
        stock.fresh = depot.unused;
        stock.fresh_end = depot.unused + RUN_BYTES / kind.bytes() * kind.bytes();
        depot.unused += RUN_BYTES;
    }

    /// Nodes in use of each kind.
    pub(super) fn live(&self) -> [u64; NodeKind::COUNT] {
        let mut sums = [0_i64; NodeKind::COUNT];
        for shard in &self.shards {
            for (sum, stock) in sums.iter_mut().zip(shard.stocks.lock().iter()) {
                *sum += stock.live;
            }
        }
        // A node may be freed while this visits the shards: the sum is never below zero.
        sums.map(|sum| u64::try_from(sum).unwrap_or(0))
    }

    /// Bytes taken from the system.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.depot.lock().bytes
    }
}

fn header<'a>(address: usize) -> &'a NodeHeader {
    // SAFETY: called with addresses of blocks of a living arena; every block begins with a header of atomics.
    unsafe { &*std::ptr::with_exposed_provenance::<NodeHeader>(address) }
}

impl Depot {
    fn add_chunk(&mut self) {
        let bytes = if self.chunks.is_empty() { FIRST_CHUNK_BYTES } else { CHUNK_BYTES };
        let layout = AllocLayout::from_size_align(bytes, bytes).expect("chunk sizes are powers of two");
        // SAFETY: the layout is not empty.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        if bytes == CHUNK_BYTES {
            // A walk of the tree misses the cache at its last nodes, and with small pages the TLB as well.
            // SAFETY: just allocated.
            unsafe { mangrove_sys::advise_huge_pages(base, bytes) };
        }
        #[cfg(test)]
        CHUNKS_LIVE.with(|live| live.set(live.get() + 1));
        self.unused = base.as_ptr().expose_provenance();
        self.unused_end = self.unused + bytes;
        self.bytes += bytes as u64;
        self.chunks.push(Chunk { base, layout });
    }
}

#[cfg(test)]
thread_local! {
    /// Chunks that this thread has allocated and not freed; the leak test counts them.
    pub(super) static CHUNKS_LIVE: Cell<i64> = const { Cell::new(0) };
}

impl Drop for Depot {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            #[cfg(test)]
            CHUNKS_LIVE.with(|live| live.set(live.get() - 1));
            // SAFETY: allocated with this layout in `add_chunk`; the index is gone, and no node outlives it.
            unsafe { dealloc(chunk.base.as_ptr(), chunk.layout) };
        }
    }
}
