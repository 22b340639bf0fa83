//! Compaction: neighbouring nodes that hold little become one, and blocks move out of memory that holds few others.
//!
//! It goes in steps, each of which leaves a whole tree and is soon done, in the order of the keys. A walk that reads
//! continues by key after a write, so nodes may move while readers live.
//!
//! Invariants:
//! 1. A record moves only if the slot of its leaf is all that refers to it: there is one version of its key, it stands
//!    in no queue, and it is newer than what any reader reads.

use crate::order::Direction;
use crate::tree::node::{CHILDREN, ChildEntry, InnerNode, LEAF_SLOTS, LeafNode, RecordVersion, Separator};
use crate::tree::tree::{NodePath, Readers, RecordTree, TreeMemory, WalkStart};
use std::ptr;

/// Leaves that one step looks at; so many nodes does it merge at most.
const STEP_LEAVES: usize = 64;
/// Records that one step of moves looks at.
const STEP_RECORDS: usize = 512;
/// Bytes that one step of moves copies: so long do other writes wait.
const STEP_BYTES: usize = 64 << 10;
/// A node of two that are merged has room for some more.
const MERGED_SLOTS_MAX: usize = LEAF_SLOTS * 4 / 5;
const MERGED_CHILDREN_MAX: usize = CHILDREN * 4 / 5;

/// Knows which blocks lie where few others do.
pub(crate) trait DenserMemory {
    /// Whether a block should move.
    fn is_sparse(&self, block: *const u8) -> bool;
    /// A block like this one at a better place; null if there is none.
    fn alloc(&mut self, block: *const u8) -> *mut u8;
}

/// What a step of moves left to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MoveOutcome {
    /// The key to continue at.
    pub(crate) next: Option<Vec<u8>>,
    /// A reader keeps a record there that should move.
    pub(crate) kept: bool,
}

impl<M: TreeMemory> RecordTree<M> {
    /// The first leaf with records from `from` on; null if there is none.
    fn leaf_from(&self, from: Option<&[u8]>) -> *mut LeafNode {
        match from {
            Some(key) => Self::with_records(self.descend(key, |_, _| {})),
            None => Self::with_records(self.place(WalkStart::End, Direction::Forward).leaf),
        }
    }

    /// `leaf`, or the next one that has records.
    fn with_records(mut leaf: *mut LeafNode) -> *mut LeafNode {
        // SAFETY: leaves of the tree are live.
        unsafe {
            while !leaf.is_null() && (*leaf).order.count == 0 {
                leaf = (*leaf).next;
            }
        }
        leaf
    }

    /// The path to a leaf; none if the comparator does not lead to it.
    ///
    /// # Safety
    /// A live leaf with records.
    unsafe fn path_to(&self, leaf: *mut LeafNode) -> Option<NodePath> {
        // SAFETY: the caller's promise.
        let (path, found) = self.path(unsafe { (*leaf).key(0) });
        (self.order.answered() && found == leaf).then_some(path)
    }

    /// Merges neighbouring nodes, from the key `from` on (of all if there is none). Needs no memory. Returns the key to
    /// continue at, if anything is left.
    pub(crate) fn merge_nodes(&mut self, from: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut leaf = self.leaf_from(from);
        for _ in 0..STEP_LEAVES {
            // SAFETY: leaves of the tree are live, and this one has records.
            unsafe {
                if leaf.is_null() {
                    return None;
                }
                let path = self.path_to(leaf)?;
                if !self.merge_leaves(&path, leaf) && !self.merge_inner_nodes(&path) {
                    leaf = Self::with_records((*leaf).next);
                }
            }
        }
        // SAFETY: as above.
        (!leaf.is_null()).then(|| unsafe { (*leaf).key(0) }.to_vec())
    }

    /// Moves the records of the next leaf into this one, if both are children of one node and there is room.
    ///
    /// # Safety
    /// A live leaf with records, and the path to it.
    unsafe fn merge_leaves(&mut self, path: &NodePath, leaf: *mut LeafNode) -> bool {
        let Some(level) = path.len.checked_sub(1) else { return false };
        let (inner, at) = path.steps[level];
        // SAFETY: the caller's promise; children and neighbours of nodes are live. Separators and records stay.
        unsafe {
            let next = (*leaf).next;
            if at + 1 >= (*inner).count as usize || (*inner).children[at + 1].node != next.cast() {
                return false;
            }
            let (count, more) = (usize::from((*leaf).order.count), usize::from((*next).order.count));
            if count + more > MERGED_SLOTS_MAX {
                return false;
            }
            for position in 0..more {
                let record = (*next).slot(position).record;
                self.fill_slot(leaf, count + position, (*record).key(), record);
            }
            let after = (*next).next;
            self.set(&raw mut (*leaf).next, after);
            if !after.is_null() {
                self.set(&raw mut (*after).prev, leaf);
            }
            self.memory.free(next.cast());
            self.remove_child(&path.upto(level, at + 1));
        }
        true
    }

    /// Where the path takes the last child of a node, moves the children of the node's neighbour into it, if both are
    /// children of one node and there is room. Does so with one node at most.
    ///
    /// # Safety
    /// A path of live nodes.
    unsafe fn merge_inner_nodes(&mut self, path: &NodePath) -> bool {
        for level in (1..path.len).rev() {
            let ((inner, within), (above, at)) = (path.steps[level], path.steps[level - 1]);
            // SAFETY: the caller's promise; nodes and separators below a node are live.
            unsafe {
                if within + 1 != (*inner).count as usize {
                    return false;
                }
                if at + 1 >= (*above).count as usize {
                    continue;
                }
                let ChildEntry { separator, node, .. } = (*above).children[at + 1];
                let next = node.cast::<InnerNode>();
                let (count, more) = ((*inner).count as usize, (*next).count as usize);
                if count + more > MERGED_CHILDREN_MAX {
                    return false;
                }
                for from in 0..more {
                    let mut child = (*next).children[from];
                    if from == 0 {
                        child.separator = separator;
                    }
                    self.open_gap(inner, count + from, child);
                }
                // Not to be freed with the entry.
                self.set(&raw mut (*above).children[at + 1].separator, ptr::null_mut());
                self.memory.free(next.cast());
                self.remove_child(&path.upto(level - 1, at + 1));
            }
            return true;
        }
        false
    }

    /// Moves blocks to where they lie denser, from the key `from` on (of all if there is none). With `waits` it ends at
    /// the first record that a reader keeps.
    pub(crate) fn move_blocks(
        &mut self,
        from: Option<&[u8]>,
        readers: &Readers,
        denser: &mut dyn DenserMemory,
        waits: bool,
    ) -> MoveOutcome {
        let mut leaf = self.leaf_from(from);
        let (mut seen, mut copied) = (0, 0);
        // SAFETY: leaves of the tree are live, and this one has records.
        unsafe {
            while !leaf.is_null() {
                if seen >= STEP_RECORDS || copied >= STEP_BYTES {
                    return MoveOutcome { next: Some((*leaf).key(0).to_vec()), kept: false };
                }
                let Some(mut path) = self.path_to(leaf) else { break };
                leaf = self.move_nodes(&mut path, leaf, denser, &mut copied);
                for position in 0..usize::from((*leaf).order.count) {
                    let slot = Self::slot(leaf, position);
                    let record = (*slot).record;
                    seen += 1;
                    if !(*record).is_alone() || !denser.is_sparse(record.cast()) {
                        continue;
                    }
                    // Invariant 1.
                    if readers.keep((*record).number) {
                        if waits {
                            return MoveOutcome { next: Some((*leaf).key(0).to_vec()), kept: true };
                        }
                        continue;
                    }
                    if let Some(new) = self.copied(record, (*record).len(), denser, &mut copied) {
                        self.set(&raw mut (*slot).record, new);
                        self.memory.free(record.cast());
                    }
                }
                leaf = Self::with_records((*leaf).next);
            }
        }
        MoveOutcome::default()
    }

    /// A copy of a block at a better place, if there is one. `sum` grows by its bytes.
    ///
    /// # Safety
    /// A live block of at least `bytes`.
    unsafe fn copied<T>(
        &self,
        block: *mut T,
        bytes: usize,
        denser: &mut dyn DenserMemory,
        sum: &mut usize,
    ) -> Option<*mut T> {
        let new = denser.alloc(block.cast());
        if new.is_null() {
            return None;
        }
        self.memory.wrote(new, bytes);
        // SAFETY: the caller's promise; a fresh block of the same size.
        unsafe { ptr::copy_nonoverlapping(block.cast::<u8>(), new, bytes) };
        *sum += bytes;
        Some(new.cast())
    }

    /// Moves a leaf, its separator, and each node that the path enters by its first child, with that one's. Returns
    /// where the leaf is then.
    ///
    /// # Safety
    /// A live leaf, and the path to it.
    unsafe fn move_nodes(
        &mut self,
        path: &mut NodePath,
        leaf: *mut LeafNode,
        denser: &mut dyn DenserMemory,
        sum: &mut usize,
    ) -> *mut LeafNode {
        let mut found = leaf;
        // SAFETY: the caller's promise; separators and neighbours of nodes are live. What refers to a node is the entry
        // above it, and for a leaf its neighbours.
        unsafe {
            if let Some(new) = self.copied(leaf, size_of::<LeafNode>(), denser, sum) {
                self.set_node(path, path.len, new.cast());
                let (prev, next) = ((*new).prev, (*new).next);
                if !prev.is_null() {
                    self.set(&raw mut (*prev).next, new);
                }
                if !next.is_null() {
                    self.set(&raw mut (*next).prev, new);
                }
                self.memory.free(leaf.cast());
                found = new;
            }
            for level in (0..path.len).rev() {
                let (inner, at) = path.steps[level];
                if at > 0 {
                    let place = &raw mut (*inner).children[at].separator;
                    let separator = *place;
                    let bytes = Separator::bytes((*separator).key());
                    if let Some(new) = self.copied(separator, bytes, denser, sum) {
                        self.set(place, new);
                        self.memory.free(separator.cast());
                    }
                    break;
                }
                if let Some(new) = self.copied(inner, size_of::<InnerNode>(), denser, sum) {
                    self.set_node(path, level, new.cast());
                    self.memory.free(inner.cast());
                    path.steps[level].0 = new;
                }
            }
        }
        found
    }

    /// Makes the path's node at `level`, the leaf behind the last of them, be `node`.
    ///
    /// # Safety
    /// A path of live nodes.
    unsafe fn set_node(&mut self, path: &NodePath, level: usize, node: *mut u8) {
        let root = self.root;
        // SAFETY: the caller's promise.
        unsafe {
            match level.checked_sub(1) {
                None => self.set(&raw mut (*root).node, node),
                Some(above) => {
                    let (inner, at) = path.steps[above];
                    self.set(&raw mut (*inner).children[at].node, node);
                }
            }
        }
    }
}

impl RecordVersion {
    /// Nothing but a slot refers to the record, and no other version of its key is there.
    fn is_alone(&self) -> bool {
        self.queued == 0 && self.older.is_null() && self.queue_next.is_null()
    }

    /// Bytes of the record.
    fn len(&self) -> usize {
        size_of::<Self>() + self.key().len() + self.value().len()
    }
}
