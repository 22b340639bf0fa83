//! The ordered map: a B+tree.
//!
//! 1. Keys in the subtree of a child are at least the separator before it, and less than the one after it.
//! 2. A leaf's link is the leaf with the next keys; leaves may be empty.
//! 3. Of two neighbours under one parent, the smaller one has more than 5 entries, or both together more than a node
//!    should have. So each level has at most 2 nodes in 13 of the one below, and the height is O(log keys).
//! 4. A separator that owns a block is a copy: the key that it was copied from may be removed.

use super::counter::{self, Counter};
use super::handle::{AT_SHAPE, KIND_ORDERED, at_root, handle, shape, steps};
use super::key::HeapKey;
use super::node::{NodePtr, SMALL_MAX, Split};
use super::order::{EntryOrder, WIDTH};
use super::reads::Reads;
use crate::heap::{Ptr, Stop, Tx};
use bytemuck::Pod;
use std::ops::{Bound, RangeBounds};

/// Offsets in the head.
pub(super) const AT_TREE: usize = 8;
pub(super) const AT_COUNTER: usize = 32;
const HEAD_BYTES: usize = AT_COUNTER + counter::BYTES;

/// In the word that describes the tree, the bits of its height; the rest is the root's address.
pub(super) const HEIGHT_MASK: u64 = 15;
/// Levels of inner nodes that a tree can have: more than addresses suffice for.
const HEIGHT_MAX: usize = HEIGHT_MASK as usize;

handle! {
    /// An ordered map in the heap, from keys to plain data: a B+tree.
    ///
    /// The handle is plain data: copy it, store it in the heap, put it into other collections. It does not own the
    /// map: [`free`](Self::free) frees its memory.
    ///
    /// ```
    /// use mangrove_txn::{Heap, HeapOrderedMap};
    ///
    /// # fn main() -> mangrove_txn::HeapResult<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let heap = Heap::open(folder.path().join("tides"))?;
    /// let tides = heap.transaction(|tx| HeapOrderedMap::<u32, u32>::at_root(tx, "tides"))?;
    /// heap.transaction(|tx| {
    ///     (0..24).try_for_each(|hour| tides.insert(tx, &hour, hour * 10).map(drop))
    /// })?;
    /// let noon = heap.read(|tx| tides.range(tx, 12..14).collect::<Result<Vec<_>, _>>())?;
    /// assert_eq!(noon, [(12, 120), (13, 130)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Every operation is a part of its transaction: a crash keeps all of that or nothing. Each takes O(log keys) time.
    /// An insertion writes three words beside key and value, and O(log keys) when it splits nodes. Operations conflict
    /// when they change the same node of 15 keys; splits and merges reach a parent once in some insertions.
    ///
    /// # Errors
    /// Every operation may end with a [`Stop`]. Those that add keys fail the transaction with
    /// [`HeapError::Full`](crate::HeapError::Full) if there is no space.
    ///
    /// # Panics
    /// With a handle that is not one of an ordered map of this heap, which undoes the transaction; at worst it reads
    /// or writes other bytes of the heap.
    HeapOrderedMap<K, V>, shape(KIND_ORDERED, size_of::<K>(), size_of::<V>())
}

/// The root and the height: 0 if the root is a leaf.
#[derive(Clone, Copy)]
struct Tree {
    root: usize,
    height: usize,
}

/// The inner nodes on the way to a leaf, each with the position of the child that was taken.
struct Path {
    steps: [(usize, usize); HEIGHT_MAX],
    len: usize,
}

impl Path {
    fn pop(&mut self) -> Option<(usize, usize)> {
        self.len = self.len.checked_sub(1)?;
        Some(self.steps[self.len])
    }
}

impl<K: HeapKey, V: Pod> HeapOrderedMap<K, V> {
    /// A new, empty map. O(1).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn create(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let head = tx.alloc_bytes(HEAD_BYTES, 64)?;
        tx.write(Ptr::at(head + AT_SHAPE), Self::SHAPE)?;
        tx.write(Ptr::at(head + AT_TREE + 8), [0u64; 2])?;
        Counter(head + AT_COUNTER).clear(tx)?;
        let map = Self::of_head(head);
        map.plant(tx)?;
        Ok(map)
    }

    /// The map at the root `name`; a new one if there is no such root.
    ///
    /// # Errors
    /// See [`HeapOrderedMap`]; the transaction fails with [`HeapError::Root`](crate::HeapError::Root) if the root is
    /// not that of an ordered map with keys and values of these sizes.
    pub fn at_root(tx: &mut Tx<'_>, name: &str) -> Result<Self, Stop> {
        let head = at_root(tx, name, Self::SHAPE, |tx| Ok(Self::create(tx)?.address()))?;
        Ok(Self::of_head(head))
    }

    /// Begins with one empty leaf.
    fn plant(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        let root = NodePtr::<K, V>::make(tx, 0)?.address;
        self.set_tree(tx, Tree { root, height: 0 })
    }

    #[inline(always)]
    fn tree<R: Reads>(self, reads: &mut R) -> Result<Tree, R::Stop> {
        let word = reads.word(self.address() + AT_TREE)?;
        Ok(Tree { root: (word & !HEIGHT_MASK) as usize, height: (word & HEIGHT_MASK) as usize })
    }

    fn set_tree(self, tx: &mut Tx<'_>, tree: Tree) -> Result<(), Stop> {
        assert!(tree.height <= HEIGHT_MAX, "a tree of more keys than addresses");
        tx.write(Ptr::at(self.address() + AT_TREE), tree.root as u64 | tree.height as u64)
    }

    fn count(self, tx: &mut Tx<'_>, leaf: NodePtr<K, V>, delta: i64) -> Result<(), Stop> {
        // Blocks lie at multiples of 16 and have some hundred bytes: these bits differ from leaf to leaf.
        let choice = (leaf.address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Counter(self.address() + AT_COUNTER).add(tx, choice, delta).map(drop)
    }

    /// The leaf where `key` belongs.
    #[inline(always)]
    fn leaf<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<NodePtr<K, V>, R::Stop> {
        let Tree { root, height } = self.tree(reads)?;
        let mut at = root;
        for _ in 0..height {
            at = Self::child(reads, NodePtr::at(at), key)?.1;
        }
        Ok(NodePtr::at(at))
    }

    /// The child of an inner node for `key`: its position, and itself.
    #[inline(always)]
    fn child<R: Reads>(
        reads: &mut R,
        node: NodePtr<K, u64>,
        key: &K::Query,
    ) -> Result<(usize, usize), R::Stop> {
        let order = node.order(reads)?;
        let position = match node.search(reads, order, key)? {
            Ok(equal) => equal + 1,
            Err(position) => position,
        };
        Ok((position, node.child(reads, order, position)?))
    }

    /// As `leaf`, with the way there.
    fn path(self, tx: &mut Tx<'_>, key: &K::Query) -> Result<(Path, NodePtr<K, V>), Stop> {
        let Tree { root, height } = self.tree(tx)?;
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], len: height };
        let mut at = root;
        for step in &mut path.steps[..height] {
            let (position, child) = Self::child(tx, NodePtr::at(at), key)?;
            *step = (at, position);
            at = child;
        }
        Ok((path, NodePtr::at(at)))
    }

    /// Where the value of `key` lies, if the key is there: to read or write a part of it, or to do both with one
    /// search. The pointer is good until its transaction inserts or removes a key, or ends. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    #[inline(always)]
    pub fn get_ptr<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<Option<Ptr<V>>, R::Stop> {
        let leaf = self.leaf(reads, key)?;
        let order = leaf.order(reads)?;
        let found = leaf.search(reads, order, key)?;
        Ok(found.ok().map(|position| leaf.payload_at(order.place(position))))
    }

    /// The value of `key`. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    #[inline]
    pub fn get<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<Option<V>, R::Stop> {
        match self.get_ptr(reads, key)? {
            Some(value) => reads.read(value).map(Some),
            None => Ok(None),
        }
    }

    /// Whether `key` is there. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn contains<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<bool, R::Stop> {
        Ok(self.get_ptr(reads, key)?.is_some())
    }

    /// The number of keys. O(1), and every insertion of a new key meanwhile conflicts with it.
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn len<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        Counter(self.address() + AT_COUNTER).sum(reads)
    }

    /// Whether there is no key. As [`len`](Self::len).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn is_empty<R: Reads>(self, reads: &mut R) -> Result<bool, R::Stop> {
        Ok(self.len(reads)? == 0)
    }

    /// Gives `key` this value, and returns the one that it had. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn insert(self, tx: &mut Tx<'_>, key: &K::Query, value: V) -> Result<Option<V>, Stop> {
        let (path, leaf) = self.path(tx, key)?;
        let order = leaf.order(tx)?;
        let position = match leaf.search(tx, order, key)? {
            Ok(equal) => {
                let at = leaf.payload_at(order.place(equal));
                let old = tx.read(at)?;
                tx.write(at, value)?;
                return Ok(Some(old));
            }
            Err(position) => position,
        };
        if order.len() < WIDTH {
            let key = K::make(tx, key)?;
            self.count(tx, leaf, 1)?;
            leaf.add_to_leaf(tx, position, key, value)?;
        } else {
            tx.whole(|tx| self.add(tx, path, leaf, position, key, value))?;
        }
        Ok(None)
    }

    /// Adds a key to a leaf, and splits the nodes on the way there that are full. Where there is no space, it ends
    /// half-way.
    fn add(
        self,
        tx: &mut Tx<'_>,
        mut path: Path,
        leaf: NodePtr<K, V>,
        position: usize,
        key: &K::Query,
        value: V,
    ) -> Result<(), Stop> {
        let key = K::make(tx, key)?;
        self.count(tx, leaf, 1)?;
        let mut split = leaf.add_to_leaf(tx, position, key, value)?;
        while let Some(Split { separator, right }) = split {
            let Some((parent, position)) = path.pop() else {
                let Tree { root, height } = self.tree(tx)?;
                let new = NodePtr::<K, u64>::make(tx, root as u64)?;
                new.add_child(tx, 0, Split { separator, right })?;
                return self.set_tree(tx, Tree { root: new.address, height: height + 1 });
            };
            split = NodePtr::<K, u64>::at(parent).add_child(tx, position, Split { separator, right })?;
        }
        Ok(())
    }

    /// Removes `key`, and returns its value. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn remove(self, tx: &mut Tx<'_>, key: &K::Query) -> Result<Option<V>, Stop> {
        let (mut path, leaf) = self.path(tx, key)?;
        let order = leaf.order(tx)?;
        let Ok(position) = leaf.search(tx, order, key)? else { return Ok(None) };
        let value = leaf.payload(tx, order, position)?;
        leaf.key(tx, order, position)?.discard(tx)?;
        leaf.take(tx, position)?;
        self.count(tx, leaf, -1)?;
        let (mut len, mut is_leaf) = (order.len() - 1, true);
        while len <= SMALL_MAX {
            let Some((parent, position)) = path.pop() else { break };
            let parent = NodePtr::<K, u64>::at(parent);
            if !Self::merge(tx, parent, position, is_leaf)? {
                break;
            }
            (len, is_leaf) = (parent.order(tx)?.len(), false);
        }
        self.shrink(tx)?;
        Ok(Some(value))
    }

    /// Merges the child at `position` with a neighbour, if both fit into one node.
    fn merge(tx: &mut Tx<'_>, parent: NodePtr<K, u64>, position: usize, is_leaf: bool) -> Result<bool, Stop> {
        let order = parent.order(tx)?;
        for left in [Some(position), position.checked_sub(1)].into_iter().flatten() {
            if left >= order.len() {
                continue;
            }
            let one = parent.child(tx, order, left)?;
            let other = parent.child(tx, order, left + 1)?;
            let separator = parent.key(tx, order, left)?;
            if is_leaf {
                let (one, other) = (NodePtr::<K, V>::at(one), NodePtr::<K, V>::at(other));
                if !one.fits(tx, other, 0)? {
                    continue;
                }
                one.merge_leaf(tx, other)?;
                separator.discard(tx)?;
            } else {
                let (one, other) = (NodePtr::<K, u64>::at(one), NodePtr::<K, u64>::at(other));
                if !one.fits(tx, other, 1)? {
                    continue;
                }
                one.merge_inner(tx, separator, other)?;
            }
            parent.take(tx, left)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Does away with roots that have one child.
    fn shrink(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        loop {
            let Tree { root, height } = self.tree(tx)?;
            let node = NodePtr::<K, u64>::at(root);
            if height == 0 || node.order(tx)?.len() > 0 {
                return Ok(());
            }
            let child = node.link(tx)? as usize;
            self.set_tree(tx, Tree { root: child, height: height - 1 })?;
            tx.free_bytes(root)?;
        }
    }

    /// The smallest key with its value. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn first<R: Reads>(self, reads: &mut R) -> Result<Option<(K, V)>, R::Stop> {
        self.walk().next(reads)
    }

    /// The largest key with its value. O(log keys).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn last<R: Reads>(self, reads: &mut R) -> Result<Option<(K, V)>, R::Stop> {
        let Tree { root, height } = self.tree(reads)?;
        Self::last_below(reads, root, height)
    }

    /// The last entry below a node. Leaves may be empty.
    fn last_below<R: Reads>(reads: &mut R, at: usize, height: usize) -> Result<Option<(K, V)>, R::Stop> {
        if height == 0 {
            let leaf = NodePtr::<K, V>::at(at);
            let order = leaf.order(reads)?;
            let Some(last) = order.len().checked_sub(1) else { return Ok(None) };
            return Ok(Some((leaf.key(reads, order, last)?, leaf.payload(reads, order, last)?)));
        }
        let node = NodePtr::<K, u64>::at(at);
        let order = node.order(reads)?;
        for position in (0..=order.len()).rev() {
            let child = node.child(reads, order, position)?;
            if let Some(found) = Self::last_below(reads, child, height - 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A walk through all keys in their order.
    #[must_use]
    pub const fn walk(self) -> OrderedWalk<K, V, std::ops::RangeFull> {
        self.walk_range(..)
    }

    /// A walk through the keys in `range`, in their order. The bounds of byte strings are a pair of
    /// [`Bound`]s.
    #[must_use]
    pub const fn walk_range<B>(self, range: B) -> OrderedWalk<K, V, B> {
        OrderedWalk { map: self, range, leaf: None, order: EntryOrder::EMPTY, position: 0 }
    }

    /// All keys with their values, in the order of the keys. The transaction is borrowed meanwhile; a loop that needs
    /// it uses [`walk`](Self::walk).
    pub fn iter<R: Reads>(
        self,
        reads: &mut R,
    ) -> impl Iterator<Item = Result<(K, V), R::Stop>> + use<'_, K, V, R> {
        steps(reads, self.walk(), OrderedWalk::next)
    }

    /// The keys in `range` with their values, in the order of the keys. As [`iter`](Self::iter).
    pub fn range<'t, R: Reads, B: RangeBounds<K::Query> + 't>(
        self,
        reads: &'t mut R,
        range: B,
    ) -> impl Iterator<Item = Result<(K, V), R::Stop>> + use<'t, K, V, R, B> {
        steps(reads, self.walk_range(range), OrderedWalk::next)
    }

    /// Removes all keys, and gives memory back. O(keys), in one transaction. Blocks that values own stay: see
    /// [`clear_with`](Self::clear_with).
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn clear(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.clear_with(tx, |_, _| Ok(()))
    }

    /// As [`clear`](Self::clear), and passes each value to `discard`, which frees what the value owns.
    ///
    /// # Errors
    /// See [`HeapOrderedMap`], and those of `discard`.
    pub fn clear_with(
        self,
        tx: &mut Tx<'_>,
        mut discard: impl FnMut(&mut Tx<'_>, V) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        tx.whole(|tx| {
            let Tree { root, height } = self.tree(tx)?;
            Self::fell(tx, root, height, &mut discard)?;
            Counter(self.address() + AT_COUNTER).clear(tx)?;
            self.plant(tx)
        })
    }

    /// Frees the map. O(keys), in one transaction. A root that points to it must be removed or set anew.
    ///
    /// # Errors
    /// See [`HeapOrderedMap`].
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.free_with(tx, |_, _| Ok(()))
    }

    /// As [`free`](Self::free), and passes each value to `discard`, which frees what the value owns.
    ///
    /// # Errors
    /// See [`HeapOrderedMap`], and those of `discard`.
    pub fn free_with(
        self,
        tx: &mut Tx<'_>,
        mut discard: impl FnMut(&mut Tx<'_>, V) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Tree { root, height } = self.tree(tx)?;
        Self::fell(tx, root, height, &mut discard)?;
        tx.free_bytes(self.address())
    }

    /// Frees a node and all below it.
    fn fell(
        tx: &mut Tx<'_>,
        at: usize,
        height: usize,
        discard: &mut impl FnMut(&mut Tx<'_>, V) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if height == 0 {
            let leaf = NodePtr::<K, V>::at(at);
            let order = leaf.order(tx)?;
            for position in 0..order.len() {
                leaf.key(tx, order, position)?.discard(tx)?;
                let value = leaf.payload(tx, order, position)?;
                discard(tx, value)?;
            }
        } else {
            let node = NodePtr::<K, u64>::at(at);
            let order = node.order(tx)?;
            for position in 0..=order.len() {
                let child = node.child(tx, order, position)?;
                Self::fell(tx, child, height - 1, discard)?;
            }
            for position in 0..order.len() {
                node.key(tx, order, position)?.discard(tx)?;
            }
        }
        tx.free_bytes(at)
    }
}

/// A walk through keys of a [`HeapOrderedMap`]. Keys must neither be inserted nor removed between two steps, or some
/// are missed or seen twice, and a step may read memory that was freed; values may be changed.
#[derive(Debug)]
pub struct OrderedWalk<K, V, B> {
    map: HeapOrderedMap<K, V>,
    range: B,
    /// The leaf with the next entry; none before the first step.
    leaf: Option<usize>,
    order: EntryOrder,
    position: usize,
}

impl<K: HeapKey, V: Pod, B: RangeBounds<K::Query>> OrderedWalk<K, V, B> {
    /// The next key with its value; none at the end. O(1), the first step O(log keys).
    ///
    /// # Errors
    /// [`Reads::Stop`].
    pub fn next<R: Reads>(&mut self, reads: &mut R) -> Result<Option<(K, V)>, R::Stop> {
        let mut leaf = match self.leaf {
            Some(leaf) => NodePtr::<K, V>::at(leaf),
            None => self.begin(reads)?,
        };
        while self.position >= self.order.len() {
            let link = leaf.link(reads)? as usize;
            if link == 0 {
                return Ok(None);
            }
            leaf = NodePtr::at(link);
            (self.leaf, self.order, self.position) = (Some(link), leaf.order(reads)?, 0);
        }
        let key = leaf.key(reads, self.order, self.position)?;
        let is_inside = match self.range.end_bound() {
            Bound::Included(end) => key.order(reads, end)?.is_le(),
            Bound::Excluded(end) => key.order(reads, end)?.is_lt(),
            Bound::Unbounded => true,
        };
        if !is_inside {
            return Ok(None);
        }
        let value = leaf.payload(reads, self.order, self.position)?;
        self.position += 1;
        Ok(Some((key, value)))
    }

    /// Goes to the first key in the range.
    fn begin<R: Reads>(&mut self, reads: &mut R) -> Result<NodePtr<K, V>, R::Stop> {
        let leaf = match self.range.start_bound() {
            Bound::Included(start) | Bound::Excluded(start) => self.map.leaf(reads, start)?,
            Bound::Unbounded => {
                let Tree { root, height } = self.map.tree(reads)?;
                let mut at = root;
                for _ in 0..height {
                    at = NodePtr::<K, u64>::at(at).link(reads)? as usize;
                }
                NodePtr::at(at)
            }
        };
        self.order = leaf.order(reads)?;
        self.position = match self.range.start_bound() {
            Bound::Included(start) => leaf.search(reads, self.order, start)?.unwrap_or_else(|at| at),
            Bound::Excluded(start) => {
                leaf.search(reads, self.order, start)?.map_or_else(|at| at, |at| at + 1)
            }
            Bound::Unbounded => 0,
        };
        self.leaf = Some(leaf.address);
        Ok(leaf)
    }
}
