//! An ordered structure in memory: a B+-tree of records with versions. One thread at a time writes it.
//!
//! It knows nothing of durability, except that it reports what it writes (`TreeMemory::wrote`), and that all of it,
//! the root included, lies in blocks of one `TreeMemory`: to keep those blocks is to keep the tree.
//!
//! Leaves keep their slots in the order of arrival and a permutation of them in one 32-byte block, so that an
//! insertion writes little (after Masstree). Inner nodes are sorted arrays. A node that becomes empty is freed; nodes
//! are not merged otherwise. `node.rs` has their layout, and the search within one; `structure.rs` inserts and
//! removes, `versions.rs` applies batches.
//!
//! Invariants, which descent, split, versions and removal share, and on which each unsafe access rests:
//! 1. Along a leaf's permutation, and along the chain of leaves, keys strictly ascend.
//! 2. Along a chain of versions numbers descend or, within one batch, stay equal.
//! 3. In a chain of several versions at least one stands in the queue; `RecordVersion::queued` tells which. Each
//!    version but the newest and those in the queue is one that a reader saw when its key was last written or swept.

use crate::order::{Direction, KeyOrder};
use crate::tree::node::{InnerNode, LEAF_SLOTS, LeafNode, LeafSlot, NODE_BYTES, Permutation, RecordVersion};
use mangrove_sys::prefetch_lines;
use std::ptr;

/// Allocates the tree's blocks, and learns what is written to them.
pub(crate) trait TreeMemory {
    /// A block at a multiple of `align`, or null when memory is exhausted.
    fn alloc(&self, bytes: usize, align: usize) -> *mut u8;
    /// Frees a block of `alloc`.
    ///
    /// # Safety
    /// The block is from `alloc` and not used any more.
    unsafe fn free(&self, block: *mut u8);
    /// Reports that the present call wrote, or will write, these bytes of a block.
    fn wrote(&self, at: *const u8, bytes: usize);
}

/// Why a write did not happen; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Memory is exhausted.
    Full,
    /// The comparator does not order the keys as it did.
    Disordered,
    /// The comparator threw an exception.
    NoAnswer,
}

/// More levels than any address space can fill.
pub(super) const HEIGHT_MAX: usize = 40;

/// Marks a root, and its format.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"MGLDBT02");
/// The previous format: the same, but no node skips anything.
const MAGIC_BEFORE: u64 = u64::from_le_bytes(*b"MGLDBT01");

/// The root, from which everything is reached.
#[repr(C, align(32))]
pub(crate) struct TreeRoot {
    pub(super) magic: u64,
    /// The number of the last batch.
    pub(super) number: u64,
    /// Records in the present state, and their bytes.
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) queue_first: *mut RecordVersion,
    pub(super) queue_last: *mut RecordVersion,
    pub(super) node: *mut u8,
    /// Levels of inner nodes above the leaves.
    pub(super) height: u64,
}

/// The numbers at which readers read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readers {
    ascending: Vec<u64>,
}

impl Readers {
    /// Of numbers in ascending order.
    pub(crate) fn at(ascending: impl Iterator<Item = u64>) -> Self {
        Self { ascending: ascending.collect() }
    }

    /// True when a reader sees a version of the number `from` that one of the number `to` replaced.
    pub(super) fn see(&self, from: u64, to: u64) -> bool {
        let at = self.ascending.partition_point(|&number| number < from);
        self.ascending.get(at).is_some_and(|&number| number < to)
    }

    /// True when a reader may see, and hold, a record of this number.
    pub(super) fn keep(&self, number: u64) -> bool {
        self.ascending.last().is_some_and(|&newest| newest >= number)
    }

    /// True when every reader reads at `number` or later.
    pub(super) fn all_from(&self, number: u64) -> bool {
        self.ascending.first().is_none_or(|&oldest| oldest >= number)
    }
}

/// The inner nodes above a leaf, from the root down, each with the child that was taken.
pub(super) struct NodePath {
    pub(super) steps: [(*mut InnerNode, usize); HEIGHT_MAX],
    pub(super) len: usize,
}

impl NodePath {
    /// The path to another child of the node at `level`.
    pub(super) fn upto(&self, level: usize, child: usize) -> Self {
        let mut path = Self { steps: self.steps, len: level + 1 };
        path.steps[level].1 = child;
        path
    }
}

/// A position in the chain of leaves; valid until the tree is written.
#[derive(Clone, Copy)]
pub(crate) struct LeafPosition {
    pub(super) leaf: *mut LeafNode,
    /// Position in the permutation; may be one beyond either end.
    at: isize,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WalkStart<'a> {
    End,
    /// From the key itself on.
    At(&'a [u8]),
    /// From the next key on.
    Beyond(&'a [u8]),
}

/// A tree, reached from its root.
pub(crate) struct RecordTree<M> {
    pub(super) root: *mut TreeRoot,
    pub(super) order: KeyOrder,
    pub(super) memory: M,
}

impl<M: TreeMemory> RecordTree<M> {
    /// A new, empty tree; its root is the first block that it allocates.
    pub(crate) fn create(order: KeyOrder, memory: M) -> Result<Self, Refusal> {
        let root = memory.alloc(size_of::<TreeRoot>(), align_of::<TreeRoot>()).cast::<TreeRoot>();
        let mut tree = Self { root, order, memory };
        if root.is_null() {
            return Err(Refusal::Full);
        }
        let Some(leaf) = tree.new_leaf() else {
            // SAFETY: just allocated.
            unsafe { tree.memory.free(root.cast()) };
            return Err(Refusal::Full);
        };
        let empty = TreeRoot {
            magic: MAGIC,
            number: 0,
            records: 0,
            bytes: 0,
            queue_first: ptr::null_mut(),
            queue_last: ptr::null_mut(),
            node: leaf.cast(),
            height: 0,
        };
        tree.set(root, empty);
        tree.root = root;
        Ok(tree)
    }

    /// The tree of a root that `create` made; `None` when this is not one.
    ///
    /// # Safety
    /// `root` has the bytes of a root, and if they are a root's, the tree is whole.
    pub(crate) unsafe fn open(root: *mut TreeRoot, order: KeyOrder, memory: M) -> Option<Self> {
        // SAFETY: the caller's promise.
        let found = unsafe { !root.is_null() && matches!((*root).magic, MAGIC | MAGIC_BEFORE) };
        found.then_some(Self { root, order, memory })
    }

    /// Orders a tree whose order is byte by byte in the form in which it was written. A program may give a comparator
    /// of its own the name of LevelDB's; what it wrote has no prefixes, and a search in the other form finds nothing.
    pub(crate) fn keep_form(&mut self) {
        match self.has_prefixes() {
            Some(true) => self.order = KeyOrder::new(None),
            Some(false) if self.order.is_bytewise() => self.order = KeyOrder::bytewise_by_calls(),
            // Without records both forms are the same.
            _ => {}
        }
    }

    /// Whether entries have the prefixes of their keys, which are in the order byte by byte. `None`: no key tells.
    fn has_prefixes(&self) -> Option<bool> {
        let bytewise = KeyOrder::new(None);
        let mut leaf = self.place(WalkStart::End, Direction::Forward).leaf;
        // SAFETY: leaves of the tree, and records in them, are live.
        unsafe {
            while !leaf.is_null() {
                if (*leaf).order.skip > 0 {
                    return Some(true);
                }
                for at in 0..usize::from((*leaf).order.count) {
                    let slot = *Self::slot(leaf, at);
                    if bytewise.prefix((*slot.record).key(), 0) != 0 {
                        return Some(slot.prefix != 0);
                    }
                }
                leaf = (*leaf).next;
            }
        }
        None
    }

    pub(crate) fn root(&self) -> *mut TreeRoot {
        self.root
    }

    pub(super) fn head(&self) -> &TreeRoot {
        // SAFETY: the root lives as long as the tree.
        unsafe { &*self.root }
    }

    /// The number of the last batch.
    pub(crate) fn number(&self) -> u64 {
        self.head().number
    }

    /// Records in the present state, and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.head().records, self.head().bytes)
    }

    /// True when there are versions that readers may not need any more.
    pub(crate) fn has_leftovers(&self) -> bool {
        !self.head().queue_first.is_null()
    }

    /// The first of these versions.
    pub(crate) fn first_leftover(&self) -> *const RecordVersion {
        self.head().queue_first
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    pub(crate) fn order(&self) -> &KeyOrder {
        &self.order
    }

    /// Writes a part of the tree, and reports it.
    #[inline]
    pub(super) fn set<T>(&self, at: *mut T, value: T) {
        self.memory.wrote(at.cast(), size_of::<T>());
        // SAFETY: every caller passes a place in one of the tree's blocks.
        unsafe { at.write(value) };
    }

    pub(super) fn new_leaf(&self) -> Option<*mut LeafNode> {
        let leaf = self.memory.alloc(size_of::<LeafNode>(), align_of::<LeafNode>()).cast::<LeafNode>();
        if leaf.is_null() {
            return None;
        }
        // SAFETY: a fresh block of a leaf's size.
        unsafe {
            self.set(&raw mut (*leaf).order, Permutation::EMPTY);
            self.set(&raw mut (*leaf).next, ptr::null_mut());
            self.set(&raw mut (*leaf).prev, ptr::null_mut());
        }
        Some(leaf)
    }

    /// The leaf that `key` belongs to; calls `step` with each inner node on the way and the child taken.
    pub(super) fn descend(&self, key: &[u8], mut step: impl FnMut(*mut InnerNode, usize)) -> *mut LeafNode {
        let (mut node, height) = (self.head().node, self.head().height);
        for _ in 0..height {
            let inner = node.cast::<InnerNode>();
            // SAFETY: above the leaves there are inner nodes, with at least one child and live separators.
            unsafe {
                let at = (*inner).child_of(&self.order, key);
                step(inner, at);
                node = (*inner).children[at].node;
            }
            prefetch_lines(node, NODE_BYTES);
        }
        node.cast()
    }

    pub(super) fn path(&self, key: &[u8]) -> (NodePath, *mut LeafNode) {
        let mut path = NodePath { steps: [(ptr::null_mut(), 0); HEIGHT_MAX], len: 0 };
        let leaf = self.descend(key, |inner, at| {
            path.steps[path.len] = (inner, at);
            path.len += 1;
        });
        (path, leaf)
    }

    /// The position of `key` in a leaf's permutation: where it is, or where it would be.
    ///
    /// # Safety
    /// A live leaf.
    #[inline]
    pub(super) unsafe fn position(&self, leaf: *const LeafNode, key: &[u8]) -> Result<usize, usize> {
        // SAFETY: the caller's promise; records in leaves are live.
        unsafe { (*leaf).position(&self.order, key) }
    }

    /// The slot at a position of the permutation.
    ///
    /// # Safety
    /// A live leaf with that many records.
    pub(super) unsafe fn slot(leaf: *mut LeafNode, position: usize) -> *mut LeafSlot {
        // SAFETY: the caller's promise.
        unsafe { &raw mut (*leaf).slots[usize::from((*leaf).order.slot[position])] }
    }

    /// The newest version of a key.
    pub(super) fn newest(&self, key: &[u8]) -> *mut RecordVersion {
        let leaf = self.descend(key, |_, _| {});
        // SAFETY: a live leaf, and a position in it.
        unsafe {
            match self.position(leaf, key) {
                Ok(at) => (*Self::slot(leaf, at)).record,
                Err(_) => ptr::null_mut(),
            }
        }
    }

    /// The version of `key` that a reader at `number` sees.
    pub(crate) fn get(&self, key: &[u8], number: u64) -> Option<&RecordVersion> {
        // SAFETY: records of the tree are live.
        unsafe { RecordVersion::seen_at(self.newest(key), number).map(|record| &*record) }
    }

    /// The place where a walk begins.
    pub(crate) fn place(&self, from: WalkStart<'_>, direction: Direction) -> LeafPosition {
        // SAFETY: nodes of the tree are live.
        unsafe {
            match from {
                WalkStart::End => {
                    let mut node = self.head().node;
                    for _ in 0..self.head().height {
                        let inner = node.cast::<InnerNode>();
                        let last = (*inner).count as usize - 1;
                        node = (*inner).children[if direction == Direction::Forward { 0 } else { last }].node;
                    }
                    let leaf = node.cast::<LeafNode>();
                    let at = if direction == Direction::Forward { 0 } else { (*leaf).last() };
                    LeafPosition { leaf, at }
                }
                WalkStart::At(key) | WalkStart::Beyond(key) => {
                    let leaf = self.descend(key, |_, _| {});
                    let includes = matches!(from, WalkStart::At(_));
                    let at = match (self.position(leaf, key), direction) {
                        (Ok(at), _) if includes => at as isize,
                        (Ok(at), Direction::Forward) => at as isize + 1,
                        (Ok(at) | Err(at), Direction::Backward) => at as isize - 1,
                        (Err(at), Direction::Forward) => at as isize,
                    };
                    LeafPosition { leaf, at }
                }
            }
        }
    }

    /// Collects up to `count` records as seen at `number`, beginning at `place`, which it advances.
    pub(crate) fn collect(
        &self,
        place: &mut LeafPosition,
        direction: Direction,
        number: u64,
        count: usize,
        records: &mut Vec<*const RecordVersion>,
    ) {
        // SAFETY: the position is valid: leaves reached from it, and records in them, are live.
        unsafe {
            let mut near = ptr::null_mut();
            while !place.leaf.is_null() && records.len() < count {
                let leaf = place.leaf;
                if near != leaf {
                    // Records lie anywhere in memory: their cache misses overlap, also those of a page's first leaf.
                    if near.is_null() {
                        (*leaf).prefetch_records();
                    }
                    near = leaf;
                    let next = (*leaf).neighbour(direction);
                    if !next.is_null() && records.len() + LEAF_SLOTS < count {
                        (*next).prefetch_records();
                        prefetch_lines((*next).neighbour(direction).cast(), NODE_BYTES);
                    }
                }
                if place.at < 0 || place.at > (*leaf).last() {
                    let leaf = (*leaf).neighbour(direction);
                    let backward = direction == Direction::Backward && !leaf.is_null();
                    *place = LeafPosition { leaf, at: if backward { (*leaf).last() } else { 0 } };
                    continue;
                }
                let newest = (*Self::slot(leaf, place.at as usize)).record;
                if let Some(record) = RecordVersion::seen_at(newest, number) {
                    records.push(record);
                }
                place.at += if direction == Direction::Forward { 1 } else { -1 };
            }
        }
    }

    /// Every block of the tree, as often as it is referred to, except by the queue.
    pub(crate) fn blocks(&self) -> Vec<usize> {
        let mut blocks = vec![self.root as usize];
        let mut nodes = vec![(self.head().node, self.head().height)];
        while let Some((node, height)) = nodes.pop() {
            blocks.push(node as usize);
            // SAFETY: blocks of the tree are live.
            unsafe {
                if height > 0 {
                    let children = (*node.cast::<InnerNode>()).children();
                    blocks.extend(children[1..].iter().map(|child| child.separator as usize));
                    nodes.extend(children.iter().map(|child| (child.node, height - 1)));
                    continue;
                }
                let leaf = node.cast::<LeafNode>();
                for at in 0..usize::from((*leaf).order.count) {
                    let mut record = (*Self::slot(leaf, at)).record;
                    while !record.is_null() {
                        blocks.push(record as usize);
                        record = (*record).older;
                    }
                }
            }
        }
        blocks
    }

    /// Counts neighbours in leaves that have the same prefix.
    #[cfg(test)]
    pub(crate) fn neighbours_of_one_prefix(&self) -> usize {
        let (mut leaf, mut count) = (self.place(WalkStart::End, Direction::Forward).leaf, 0);
        while !leaf.is_null() {
            // SAFETY: leaves of the tree are live.
            let here = unsafe { &*leaf };
            count += (1..=here.last() as usize)
                .filter(|at| here.slot(at - 1).prefix == here.slot(*at).prefix)
                .count();
            leaf = here.next;
        }
        count
    }
}
