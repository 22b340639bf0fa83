//! Fills the tree from its end: records whose keys ascend become leaves without a search, and a node is written when it
//! is full. So a database that is imported costs a copy and an allocation for each record, and little more.
//!
//! Nothing that was written is read again, because its memory may have been given back.

use crate::change_list::Change;
use crate::tree::node::{
    CHILDREN, ChildEntry, EMPTY_CHILD, EMPTY_SLOT, InnerNode, LEAF_SLOTS, LeafNode, LeafSlot, Permutation,
    RecordVersion, Separator, skip_of,
};
use crate::tree::tree::{HEIGHT_MAX, Readers, RecordTree, Refusal, TreeMemory};
use std::cmp::Ordering;
use std::iter::Peekable;
use std::ptr;

/// The right edge of a tree that is being filled: the last node of each level, with copies of the keys in it.
#[derive(Default)]
pub(crate) struct RightEdge {
    /// The number of the batch after which the tree had this edge.
    number: u64,
    /// Of no leaf: there is nothing here.
    leaf: TailLeaf,
    /// The last inner node of each level, from the leaves up.
    inner: Vec<TailInner>,
}

impl RightEdge {
    /// The tree is about to change in another way.
    pub(crate) fn forget(&mut self) {
        self.leaf.leaf = ptr::null_mut();
    }
}

/// The last leaf. Its records are here, and in the leaf when it is written.
struct TailLeaf {
    leaf: *mut LeafNode,
    prev: *mut LeafNode,
    records: [*mut RecordVersion; LEAF_SLOTS],
    count: usize,
}

impl Default for TailLeaf {
    fn default() -> Self {
        let (leaf, prev) = (ptr::null_mut(), ptr::null_mut());
        Self { leaf, prev, records: [ptr::null_mut(); LEAF_SLOTS], count: 0 }
    }
}

/// The last inner node of a level.
struct TailInner {
    node: *mut InnerNode,
    children: Vec<(Box<[u8]>, *mut Separator, *mut u8)>,
    /// The node has not all of them.
    is_changed: bool,
}

impl<M: TreeMemory> RecordTree<M> {
    /// Applies the changes, fast as long as they set keys that ascend and come after all others of the tree. `edge` is
    /// that of earlier calls, or a new one. Returns the number of the last batch. After an error some of the changes
    /// are there.
    pub(crate) fn load<'a>(
        &mut self,
        edge: &mut RightEdge,
        changes: impl Iterator<Item = Change<'a>>,
        readers: &Readers,
    ) -> Result<u64, Refusal> {
        let mut changes = changes.peekable();
        self.load_ascending(edge, &mut changes)?;
        match changes.peek() {
            Some(_) => {
                edge.forget();
                self.apply(changes, readers)
            }
            None => Ok(self.number()),
        }
    }

    /// Takes changes that set ascending keys behind all others, as one batch, and leaves those from the first other one
    /// on.
    fn load_ascending<'a>(
        &mut self,
        edge: &mut RightEdge,
        changes: &mut Peekable<impl Iterator<Item = Change<'a>>>,
    ) -> Result<(), Refusal> {
        // A comparator of the program's may throw an exception, and change its order.
        if !self.order.is_bytewise() {
            return Ok(());
        }
        if edge.number != self.number() || edge.leaf.leaf.is_null() {
            *edge = self.right_edge();
        }
        if edge.leaf.count == 0 && !edge.inner.is_empty() {
            return Ok(());
        }
        let number = self.head().number + 1;
        let (mut records, mut bytes, mut outcome) = (0, 0, Ok(()));
        while let Some(&Change::Put(key, value)) = changes.peek() {
            // SAFETY: records of the tree are live; the edge is the tree's.
            unsafe {
                let last = edge.leaf.count.checked_sub(1).map(|at| (*edge.leaf.records[at]).key());
                if last.is_some_and(|last| self.order.compare(last, key) != Ordering::Less) {
                    break;
                }
                outcome = self.add_record(edge, number, key, value);
            }
            if outcome.is_err() {
                break;
            }
            (records, bytes) = (records + 1, bytes + (key.len() + value.len()) as u64);
            changes.next();
        }
        if records > 0 {
            // SAFETY: as above; no leaf follows the last one.
            unsafe { self.write_edge(edge) };
            self.end_load(number, records, bytes);
            edge.number = number;
        }
        outcome
    }

    /// The right edge of the tree as it is.
    fn right_edge(&self) -> RightEdge {
        let (mut node, mut inner) = (self.head().node, Vec::new());
        let mut leaf = TailLeaf::default();
        // SAFETY: nodes of the tree are live, and so are their separators and records; above the leaves there are inner
        // nodes, with at least one child; the permutation names used slots.
        unsafe {
            for _ in 0..self.head().height {
                let at = node.cast::<InnerNode>();
                let key = |child: &ChildEntry| match child.separator.as_ref() {
                    Some(separator) => separator.key().into(),
                    None => Box::default(),
                };
                let of_child = |child: &ChildEntry| (key(child), child.separator, child.node);
                let children: Vec<_> = (*at).children().iter().map(of_child).collect();
                node = children[children.len() - 1].2;
                inner.push(TailInner { node: at, children, is_changed: false });
            }
            leaf.leaf = node.cast();
            leaf.prev = (*leaf.leaf).prev;
            for &slot in (*leaf.leaf).order.used() {
                leaf.records[leaf.count] = (*leaf.leaf).slots[usize::from(slot)].record;
                leaf.count += 1;
            }
        }
        inner.reverse();
        RightEdge { number: self.number(), leaf, inner }
    }

    /// Adds a record behind all others. After an error it is not there.
    ///
    /// # Safety
    /// The tree's right edge.
    #[inline]
    unsafe fn add_record(
        &mut self,
        edge: &mut RightEdge,
        number: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Refusal> {
        let record = self.record(number, key, Some(value)).ok_or(Refusal::Full)?;
        // SAFETY: the caller's promise.
        if edge.leaf.count == LEAF_SLOTS && unsafe { self.add_leaf(edge, key) }.is_none() {
            // SAFETY: a fresh block, which nothing refers to.
            unsafe { self.memory.free(record.cast()) };
            return Err(Refusal::Full);
        }
        edge.leaf.records[edge.leaf.count] = record;
        edge.leaf.count += 1;
        Ok(())
    }

    /// Writes the last leaf, which is full, and makes one behind it whose first key is `key`. `None`: no memory,
    /// nothing changed.
    ///
    /// # Safety
    /// The tree's right edge.
    unsafe fn add_leaf(&mut self, edge: &mut RightEdge, key: &[u8]) -> Option<()> {
        let separator = self.separator(key)?;
        let leaf = self.memory.alloc(size_of::<LeafNode>(), align_of::<LeafNode>()).cast::<LeafNode>();
        let child = (key.into(), separator, leaf.cast());
        // SAFETY: fresh blocks, which nothing refers to where they are freed; the rest is the caller's promise.
        unsafe {
            if leaf.is_null() || self.add_to_level(&mut edge.inner, 0, child).is_none() {
                if !leaf.is_null() {
                    self.memory.free(leaf.cast());
                }
                self.memory.free(separator.cast());
                return None;
            }
            self.write_leaf(&edge.leaf, leaf);
        }
        (edge.leaf.prev, edge.leaf.leaf, edge.leaf.count) = (edge.leaf.leaf, leaf, 0);
        Some(())
    }

    /// Adds a child behind all others of a level. `None`: no memory, nothing changed.
    ///
    /// # Safety
    /// The inner nodes of the tree's right edge.
    unsafe fn add_to_level(
        &mut self,
        inner: &mut Vec<TailInner>,
        level: usize,
        child: (Box<[u8]>, *mut Separator, *mut u8),
    ) -> Option<()> {
        if let Some(tail) = inner.get_mut(level).filter(|tail| tail.children.len() < CHILDREN) {
            tail.children.push(child);
            tail.is_changed = true;
            return Some(());
        }
        if level + 1 >= HEIGHT_MAX {
            return None;
        }
        let node = self.memory.alloc(size_of::<InnerNode>(), align_of::<InnerNode>()).cast::<InnerNode>();
        if node.is_null() {
            return None;
        }
        let Some(tail) = inner.get(level) else {
            // A new root.
            let first = (Box::default(), ptr::null_mut(), self.head().node);
            inner.push(TailInner { node, children: vec![first, child], is_changed: true });
            let (root, height) = (self.root, self.head().height + 1);
            // SAFETY: the root is the tree's; the node is written before a reader comes to it.
            unsafe {
                self.set(&raw mut (*root).node, node.cast());
                self.set(&raw mut (*root).height, height);
            }
            return Some(());
        };
        // SAFETY: the caller's promise. A node that is written again as it was changes nothing.
        unsafe { self.write_inner(tail) };
        let (key, separator, below) = child;
        // SAFETY: the caller's promise; a fresh block, which nothing refers to where it is freed.
        unsafe {
            if self.add_to_level(inner, level + 1, (key, separator, node.cast())).is_none() {
                self.memory.free(node.cast());
                return None;
            }
        }
        let children = vec![(Box::default(), ptr::null_mut(), below)];
        inner[level] = TailInner { node, children, is_changed: true };
        Some(())
    }

    /// Writes what the last nodes lack.
    ///
    /// # Safety
    /// The tree's right edge, whose leaf has a record.
    unsafe fn write_edge(&self, edge: &mut RightEdge) {
        // SAFETY: the caller's promise.
        unsafe {
            self.write_leaf(&edge.leaf, ptr::null_mut());
            for tail in edge.inner.iter_mut().filter(|tail| tail.is_changed) {
                self.write_inner(tail);
                tail.is_changed = false;
            }
        }
    }

    /// Writes a leaf whole; `next` is the one that follows.
    ///
    /// # Safety
    /// An allocated leaf, for one live record or more.
    unsafe fn write_leaf(&self, tail: &TailLeaf, next: *mut LeafNode) {
        let records = &tail.records[..tail.count];
        // SAFETY: the caller's promise.
        let key = |at: usize| unsafe { (*records[at]).key() };
        let skip = skip_of(&self.order, key(0), key(records.len() - 1));
        let mut order = Permutation { count: records.len() as u8, skip: skip as u8, ..Permutation::EMPTY };
        let mut slots = [EMPTY_SLOT; LEAF_SLOTS];
        for (at, &record) in records.iter().enumerate() {
            order.slot[at] = at as u8;
            slots[at] = LeafSlot { prefix: self.order.prefix(key(at), skip), record };
        }
        self.set(tail.leaf, LeafNode { order, next, prev: tail.prev, slots });
    }

    /// Writes an inner node whole.
    ///
    /// # Safety
    /// An allocated node, for its children.
    unsafe fn write_inner(&self, tail: &TailInner) {
        let separated = &tail.children[1..];
        let skip = match separated {
            [first, .., last] => skip_of(&self.order, &first.0, &last.0),
            _ => 0,
        };
        let mut children = [EMPTY_CHILD; CHILDREN];
        children[0].node = tail.children[0].2;
        for (to, (key, separator, node)) in children[1..].iter_mut().zip(separated) {
            *to = ChildEntry { prefix: self.order.prefix(key, skip), separator: *separator, node: *node };
        }
        self.set(tail.node, InnerNode { count: tail.children.len() as u32, skip: skip as u32, children });
    }

    /// Counts what was loaded as the batch `number`.
    fn end_load(&mut self, number: u64, records: u64, bytes: u64) {
        let (root, size) = (self.root, self.size());
        self.begin_number(number);
        // SAFETY: the root is the tree's.
        unsafe {
            self.set(&raw mut (*root).records, size.0 + records);
            self.set(&raw mut (*root).bytes, size.1 + bytes);
        }
    }
}
