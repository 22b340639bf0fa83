//! The four shapes of a node and what each does with its children.
//!
//! After Leis, Kemper, Neumann, "The Adaptive Radix Tree" (ICDE 2013), section III. Deviations:
//! - the child of the key that ends at the node has a place of its own (`NodeHeader::end`), so that keys may be
//!   prefixes of each other and hold any byte;
//! - between the array of 16 and the table of 256 the paper has an index of 256 bytes; here it is a bitmap of present
//!   bytes and a dense, ordered array (`Ranked`), which is smaller (448 instead of 656 bytes), needs one cache line
//!   less in a search, and is walked in order;
//! - an array of 10 fills the gap between 4 and 16.
//!
//! Every field is atomic: readers race with one writer, which holds the node's lock, and validate afterwards. So a
//! reader may see any mixture of old and new, and every function for readers must tolerate it: indices are checked,
//! and a word read from a child slot is always one that was once stored in a child slot.

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_sys::{count_ones, equal_bytes};

use super::lock::VersionLock;
use super::word::Word;

/// What every node begins with: half a cache line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct NodeHeader {
    pub(super) lock: VersionLock,
    /// Low half: the keys of an N4, the ranks of a `Ranked`. High half: the number of children.
    meta: AtomicU64,
    /// The last (up to) 8 path bytes before the position, the byte at position - 1 highest. It never changes while
    /// the node lives. In a free node: the link of the free list.
    pub(super) tail: AtomicU64,
    /// The leaf whose key ends at the position.
    pub(super) end: AtomicU64,
}

const COUNT_SHIFT: u32 = 32;
const LANES: u64 = 0x0101_0101_0101_0101;
const LANE_HIGH_BITS: u64 = 0x8080_8080_8080_8080;

impl NodeHeader {
    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.meta.load(Ordering::Relaxed) >> COUNT_SHIFT) as usize
    }

    fn set_len(&self, len: usize) {
        let low = self.meta.load(Ordering::Relaxed) & u64::from(u32::MAX);
        self.meta.store(low | ((len as u64) << COUNT_SHIFT), Ordering::Relaxed);
    }

    fn set_low(&self, low: u32) {
        let high = self.meta.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.meta.store(high | u64::from(low), Ordering::Relaxed);
    }
}

/// Reads a child slot.
#[inline]
pub(super) fn load(slot: &AtomicU64) -> Word {
    // Acquire: partner is the Release store in `store`. A reader that follows the word finds the node initialised.
    Word(slot.load(Ordering::Acquire))
}

/// Writes a child slot; the caller holds its lock.
#[inline]
pub(super) fn store(slot: &AtomicU64, word: Word) {
    // Release: partner is the Acquire load in `load`.
    slot.store(word.0, Ordering::Release);
}

/// The operations of a node on its children. `find` and the walks are for readers, the others for the lock's holder.
pub(super) trait NodeLayout {
    /// The slot of the child under `byte`.
    fn find(&self, byte: u8) -> Option<&AtomicU64>;

    /// Adds a child under a new byte; the node is not full.
    fn put(&self, byte: u8, word: Word);

    /// Removes the child under `byte`, which is there.
    fn take(&self, byte: u8);

    /// Empties the node.
    fn clear(&self);

    /// Passes the children from `byte` upwards to `visit` until it returns false.
    fn walk_up(&self, byte: u8, visit: impl FnMut(u8, Word) -> bool);

    /// Passes the children from `byte` downwards to `visit` until it returns false.
    fn walk_down(&self, byte: u8, visit: impl FnMut(u8, Word) -> bool);
}

/// Index of the first of the eight lanes that equals `byte`, 8 if none does.
#[inline]
fn first_lane(lanes: u64, byte: u8) -> usize {
    let differing = lanes ^ (LANES * u64::from(byte));
    // The lowest set bit is exact: borrows only reach lanes above a lane that matched.
    let matching = differing.wrapping_sub(LANES) & !differing & LANE_HIGH_BITS;
    (matching.trailing_zeros() / 8) as usize
}

/// Up to 4 children in byte order, in one cache line: the header holds the keys.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Small {
    header: NodeHeader,
    children: [AtomicU64; 4],
}

impl Small {
    #[inline]
    fn keys(&self) -> ([u8; 4], usize) {
        let meta = self.header.meta.load(Ordering::Relaxed);
        ((meta as u32).to_le_bytes(), ((meta >> COUNT_SHIFT) as usize).min(4))
    }
}

impl NodeLayout for Small {
    #[inline]
    fn find(&self, byte: u8) -> Option<&AtomicU64> {
        let meta = self.header.meta.load(Ordering::Relaxed);
        let lane = first_lane(meta & u64::from(u32::MAX), byte);
        if lane < (meta >> COUNT_SHIFT) as usize { self.children.get(lane) } else { None }
    }

    fn put(&self, byte: u8, word: Word) {
        let (mut keys, len) = self.keys();
        let at = keys[..len].partition_point(|key| *key < byte);
        for index in (at..len).rev() {
            keys[index + 1] = keys[index];
            store(&self.children[index + 1], load(&self.children[index]));
        }
        keys[at] = byte;
        store(&self.children[at], word);
        self.header.set_low(u32::from_le_bytes(keys));
        self.header.set_len(len + 1);
    }

    fn take(&self, byte: u8) {
        let (mut keys, len) = self.keys();
        let at = keys[..len].iter().position(|key| *key == byte).expect("the child is there");
        for index in at + 1..len {
            keys[index - 1] = keys[index];
            store(&self.children[index - 1], load(&self.children[index]));
        }
        self.header.set_low(u32::from_le_bytes(keys));
        self.header.set_len(len - 1);
    }

    fn clear(&self) {
        self.header.meta.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn walk_up(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let (keys, len) = self.keys();
        for (key, child) in keys.iter().zip(&self.children).take(len) {
            if *key >= byte && !visit(*key, load(child)) {
                return;
            }
        }
    }

    #[inline]
    fn walk_down(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let (keys, len) = self.keys();
        for (key, child) in keys.iter().zip(&self.children).take(len).rev() {
            if *key <= byte && !visit(*key, load(child)) {
                return;
            }
        }
    }
}

/// Up to `CAPACITY` (at most 16) children in byte order.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Sorted<const CAPACITY: usize> {
    header: NodeHeader,
    keys: [AtomicU64; 2],
    children: [AtomicU64; CAPACITY],
}

impl<const CAPACITY: usize> Sorted<CAPACITY> {
    #[inline]
    fn keys(&self) -> ([u8; 16], usize) {
        let low = u128::from(self.keys[0].load(Ordering::Relaxed));
        let high = u128::from(self.keys[1].load(Ordering::Relaxed));
        ((low | (high << 64)).to_le_bytes(), self.header.len().min(CAPACITY))
    }

    fn set_keys(&self, keys: [u8; 16]) {
        let both = u128::from_le_bytes(keys);
        self.keys[0].store(both as u64, Ordering::Relaxed);
        self.keys[1].store((both >> 64) as u64, Ordering::Relaxed);
    }
}

impl<const CAPACITY: usize> NodeLayout for Sorted<CAPACITY> {
    #[inline]
    fn find(&self, byte: u8) -> Option<&AtomicU64> {
        // Which lane it is cannot be predicted, so there is no branch on it.
        let keys = self.keys.each_ref().map(|word| word.load(Ordering::Relaxed));
        let lane = equal_bytes(keys, byte).trailing_zeros() as usize;
        if lane < self.header.len() { self.children.get(lane) } else { None }
    }

    fn put(&self, byte: u8, word: Word) {
        let (mut keys, len) = self.keys();
        let at = keys[..len].partition_point(|key| *key < byte);
        for index in (at..len).rev() {
            keys[index + 1] = keys[index];
            store(&self.children[index + 1], load(&self.children[index]));
        }
        keys[at] = byte;
        store(&self.children[at], word);
        self.set_keys(keys);
        self.header.set_len(len + 1);
    }

    fn take(&self, byte: u8) {
        let (mut keys, len) = self.keys();
        let at = keys[..len].iter().position(|key| *key == byte).expect("the child is there");
        for index in at + 1..len {
            keys[index - 1] = keys[index];
            store(&self.children[index - 1], load(&self.children[index]));
        }
        self.set_keys(keys);
        self.header.set_len(len - 1);
    }

    fn clear(&self) {
        self.header.meta.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn walk_up(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let (keys, len) = self.keys();
        for (key, child) in keys.iter().zip(&self.children).take(len) {
            if *key >= byte && !visit(*key, load(child)) {
                return;
            }
        }
    }

    #[inline]
    fn walk_down(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let (keys, len) = self.keys();
        for index in (0..len).rev() {
            if keys[index] <= byte && !visit(keys[index], load(&self.children[index])) {
                return;
            }
        }
    }
}

/// A bit for each byte that has a child, in four words.
type Present = [AtomicU64; 4];

/// Passes the present bytes from `byte` upwards to `visit` until it returns false.
#[inline]
fn each_up(present: &Present, byte: u8, mut visit: impl FnMut(u8) -> bool) {
    let mut below = u64::MAX << (byte % 64);
    for (at, bits) in present.iter().enumerate().skip(usize::from(byte / 64)) {
        let mut bits = bits.load(Ordering::Relaxed) & below;
        below = u64::MAX;
        while bits != 0 {
            if !visit((at as u32 * 64 + bits.trailing_zeros()) as u8) {
                return;
            }
            bits &= bits - 1;
        }
    }
}

/// The highest present byte that is `byte` or less.
#[inline]
fn next_down(present: &Present, byte: u8) -> Option<u8> {
    let mut at = usize::from(byte / 64);
    let mut bits = present[at].load(Ordering::Relaxed) & (u64::MAX >> (63 - byte % 64));
    loop {
        if bits != 0 {
            return Some((at as u32 * 64 + 63 - bits.leading_zeros()) as u8);
        }
        at = at.checked_sub(1)?;
        bits = present[at].load(Ordering::Relaxed);
    }
}

#[inline]
fn flip(present: &Present, byte: u8) {
    let bits = &present[usize::from(byte / 64)];
    bits.store(bits.load(Ordering::Relaxed) ^ (1 << (byte % 64)), Ordering::Relaxed);
}

/// Up to `CAPACITY` children in byte order, found by counting the present bytes before theirs.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Ranked<const CAPACITY: usize> {
    /// Low half of `meta`: for each word of `present`, how many bits are set in the words before it.
    header: NodeHeader,
    present: Present,
    children: [AtomicU64; CAPACITY],
}

impl<const CAPACITY: usize> Ranked<CAPACITY> {
    /// Index of the child under `byte`, or where it would be put.
    #[inline]
    fn rank(&self, byte: u8) -> (usize, bool) {
        let word = u32::from(byte / 64);
        let bits = self.present[word as usize].load(Ordering::Relaxed);
        let before = ((self.header.meta.load(Ordering::Relaxed) >> (8 * word)) & 0xff) as usize;
        let from_byte = u64::MAX << (byte % 64);
        (before + count_ones(bits & !from_byte) as usize, (bits >> (byte % 64)) & 1 != 0)
    }

    fn flip_and_rerank(&self, byte: u8, len: usize) {
        flip(&self.present, byte);
        let mut ranks = [0_u8; 4];
        for word in 1..4 {
            let ones = self.present[word - 1].load(Ordering::Relaxed).count_ones() as u8;
            ranks[word] = ranks[word - 1] + ones;
        }
        self.header.set_low(u32::from_le_bytes(ranks));
        self.header.set_len(len);
    }
}

impl<const CAPACITY: usize> NodeLayout for Ranked<CAPACITY> {
    #[inline]
    fn find(&self, byte: u8) -> Option<&AtomicU64> {
        let (rank, present) = self.rank(byte);
        if present { self.children.get(rank) } else { None }
    }

    fn put(&self, byte: u8, word: Word) {
        let len = self.header.len();
        let (at, _) = self.rank(byte);
        for index in (at..len).rev() {
            store(&self.children[index + 1], load(&self.children[index]));
        }
        store(&self.children[at], word);
        self.flip_and_rerank(byte, len + 1);
    }

    fn take(&self, byte: u8) {
        let len = self.header.len();
        let (at, present) = self.rank(byte);
        assert!(present, "the child is there");
        for index in at + 1..len {
            store(&self.children[index - 1], load(&self.children[index]));
        }
        self.flip_and_rerank(byte, len - 1);
    }

    fn clear(&self) {
        self.header.meta.store(0, Ordering::Relaxed);
        for bits in &self.present {
            bits.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn walk_up(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let mut rank = self.rank(byte).0;
        each_up(&self.present, byte, |byte| {
            let Some(child) = self.children.get(rank) else { return false };
            rank += 1;
            visit(byte, load(child))
        });
    }

    #[inline]
    fn walk_down(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let mut next = next_down(&self.present, byte);
        let Some(mut rank) = next.map(|byte| self.rank(byte).0) else { return };
        while let Some(byte) = next {
            let Some(child) = self.children.get(rank) else { return };
            if !visit(byte, load(child)) {
                return;
            }
            let Some(lower) = rank.checked_sub(1) else { return };
            rank = lower;
            next = byte.checked_sub(1).and_then(|byte| next_down(&self.present, byte));
        }
    }
}

/// A slot for every byte.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Full {
    header: NodeHeader,
    present: Present,
    children: [AtomicU64; 256],
}

impl NodeLayout for Full {
    #[inline]
    fn find(&self, byte: u8) -> Option<&AtomicU64> {
        let slot = &self.children[usize::from(byte)];
        if load(slot).is_empty() { None } else { Some(slot) }
    }

    fn put(&self, byte: u8, word: Word) {
        store(&self.children[usize::from(byte)], word);
        flip(&self.present, byte);
        self.header.set_len(self.header.len() + 1);
    }

    fn take(&self, byte: u8) {
        store(&self.children[usize::from(byte)], Word::EMPTY);
        flip(&self.present, byte);
        self.header.set_len(self.header.len() - 1);
    }

    fn clear(&self) {
        self.header.meta.store(0, Ordering::Relaxed);
        for bits in &self.present {
            bits.store(0, Ordering::Relaxed);
        }
        for child in &self.children {
            store(child, Word::EMPTY);
        }
    }

    #[inline]
    fn walk_up(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        each_up(&self.present, byte, |byte| visit(byte, load(&self.children[usize::from(byte)])));
    }

    #[inline]
    fn walk_down(&self, byte: u8, mut visit: impl FnMut(u8, Word) -> bool) {
        let mut next = next_down(&self.present, byte);
        while let Some(byte) = next {
            if !visit(byte, load(&self.children[usize::from(byte)])) {
                return;
            }
            next = byte.checked_sub(1).and_then(|byte| next_down(&self.present, byte));
        }
    }
}

const _: () = {
    assert!(size_of::<NodeHeader>() == 32);
    assert!(size_of::<Small>() == 64);
    assert!(size_of::<Sorted<10>>() == 128);
    assert!(size_of::<Sorted<16>>() == 192);
    assert!(size_of::<Ranked<48>>() == 448);
    assert!(size_of::<Full>() == 2112);
};
