//! How the tree grows and shrinks: insertion splits full nodes, removal frees empty ones.

use crate::tree::node::{
    CHILDREN, ChildEntry, InnerNode, LEAF_SLOTS, LeafNode, LeafSlot, Permutation, RecordVersion, Separator,
};
use crate::tree::tree::{HEIGHT_MAX, NodePath, RecordTree, Refusal, TreeMemory};
use std::cmp::Ordering;
use std::ptr;

impl<M: TreeMemory> RecordTree<M> {
    /// A separator for a child whose keys begin with `key`.
    pub(super) fn separator(&self, key: &[u8]) -> Option<*mut Separator> {
        let bytes = Separator::bytes(key);
        let separator = self.memory.alloc(bytes, align_of::<Separator>()).cast::<Separator>();
        if separator.is_null() {
            return None;
        }
        self.memory.wrote(separator.cast(), bytes);
        // SAFETY: a fresh block of that many bytes.
        unsafe { Separator::put(separator, key) };
        Some(separator)
    }

    /// Makes a leaf skip `skip` bytes.
    ///
    /// # Safety
    /// A live leaf whose keys share that many.
    unsafe fn skip_in_leaf(&self, leaf: *mut LeafNode, skip: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            for position in 0..usize::from((*leaf).order.count) {
                let slot = Self::slot(leaf, position);
                self.set(&raw mut (*slot).prefix, self.order.prefix((*(*slot).record).key(), skip));
            }
            self.set(&raw mut (*leaf).order.skip, skip as u8);
        }
    }

    /// Makes an inner node skip `skip` bytes.
    ///
    /// # Safety
    /// A live node whose separators share that many.
    unsafe fn skip_in_inner(&self, inner: *mut InnerNode, skip: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            for at in 1..(*inner).count as usize {
                let child = &raw mut (*inner).children[at];
                self.set(&raw mut (*child).prefix, self.order.prefix((*(*child).separator).key(), skip));
            }
            self.set(&raw mut (*inner).skip, skip as u32);
        }
    }

    /// Inserts the first record of a key, at the place that a search for the key found. After an error nothing has
    /// changed.
    ///
    /// # Safety
    /// A live record, of this key, which is not in the tree; the path to a live leaf, and a position in it.
    pub(super) unsafe fn insert(
        &mut self,
        key: &[u8],
        record: *mut RecordVersion,
        path: &NodePath,
        mut leaf: *mut LeafNode,
        mut at: usize,
    ) -> Result<(), Refusal> {
        // SAFETY: nodes of the tree are live; the permutation names each slot once.
        unsafe {
            if usize::from((*leaf).order.count) == LEAF_SLOTS {
                self.split_leaf(path, leaf).ok_or(Refusal::Full)?;
                leaf = self.descend(key, |_, _| {});
                // The descent reached a half of the split leaf, or the separators are not in order.
                if usize::from((*leaf).order.count) == LEAF_SLOTS {
                    return Err(Refusal::Disordered);
                }
                at = self.position(leaf, key).unwrap_or_else(|at| at);
            }
            self.fill_slot(leaf, at, key, record);
        }
        Ok(())
    }

    /// Inserts the first record of a key behind all others, if `leaf` is the last one, has room, and holds a key that
    /// is less. Returns whether it did. So keys that ascend need no search.
    ///
    /// # Safety
    /// A live leaf, or null; a live record, of this key.
    #[inline]
    pub(super) unsafe fn append(
        &mut self,
        leaf: *mut LeafNode,
        key: &[u8],
        record: *mut RecordVersion,
    ) -> bool {
        // SAFETY: the caller's promise; records in leaves are live.
        unsafe {
            if leaf.is_null() || !(*leaf).next.is_null() {
                return false;
            }
            let count = usize::from((*leaf).order.count);
            let fits = (1..LEAF_SLOTS).contains(&count)
                && self.order.compare((*leaf).key(count - 1), key) == Ordering::Less;
            if fits {
                self.fill_slot(leaf, count, key, record);
            }
            fits
        }
    }

    /// Puts a record into an unused slot, at a position of the permutation.
    ///
    /// # Safety
    /// A live leaf that is not full; a live record, of this key, which belongs there.
    #[inline]
    pub(super) unsafe fn fill_slot(
        &mut self,
        leaf: *mut LeafNode,
        at: usize,
        key: &[u8],
        record: *mut RecordVersion,
    ) {
        // SAFETY: the caller's promise; the permutation names each slot once.
        unsafe {
            if let Some(skip) = (*leaf).skip_with(&self.order, key) {
                self.skip_in_leaf(leaf, skip);
            }
            let mut order = (*leaf).order;
            let free = order.unused();
            let prefix = self.order.prefix(key, usize::from(order.skip));
            order.insert(at, free);
            self.set(&raw mut (*leaf).slots[free], LeafSlot { prefix, record });
            self.set(&raw mut (*leaf).order, order);
        }
    }

    /// Moves the upper part of a full leaf into a new leaf after it.
    ///
    /// # Safety
    /// A live, full leaf and the path to it.
    unsafe fn split_leaf(&mut self, path: &NodePath, leaf: *mut LeafNode) -> Option<()> {
        // SAFETY: the caller's promise; only this function uses the fresh nodes until they are linked.
        unsafe {
            let order = (*leaf).order;
            // Ascending insertions fill leaves whole: at the end of the chain only one record moves.
            let keep = if (*leaf).next.is_null() { LEAF_SLOTS - 1 } else { LEAF_SLOTS / 2 };
            let first = (*leaf).slots[usize::from(order.slot[keep])];
            let separator = self.separator((*first.record).key())?;
            let Some(new) = self.new_leaf() else {
                self.memory.free(separator.cast());
                return None;
            };
            let child = ChildEntry { prefix: 0, separator, node: new.cast() };
            if self.add_child(path, path.len, child).is_none() {
                self.memory.free(separator.cast());
                self.memory.free(new.cast());
                return None;
            }
            let mut moved = Permutation { skip: order.skip, ..Permutation::EMPTY };
            for (to, from) in order.slot[keep..].iter().enumerate() {
                self.set(&raw mut (*new).slots[to], (*leaf).slots[usize::from(*from)]);
                moved.slot[to] = to as u8;
                moved.count += 1;
            }
            self.set(&raw mut (*new).order, moved);
            self.set(&raw mut (*leaf).order.count, keep as u8);
            let next = (*leaf).next;
            self.set(&raw mut (*new).next, next);
            self.set(&raw mut (*new).prev, leaf);
            if !next.is_null() {
                self.set(&raw mut (*next).prev, new);
            }
            self.set(&raw mut (*leaf).next, new);
            for half in [leaf, new] {
                if let Some(skip) = (*half).skip_sought(&self.order) {
                    self.skip_in_leaf(half, skip);
                }
            }
        }
        Some(())
    }

    /// Adds a child after the one that the path took at `level` (0: a new root above everything), and computes the
    /// child's prefix. `None`: no memory, nothing changed.
    ///
    /// # Safety
    /// A path of live nodes.
    unsafe fn add_child(&mut self, path: &NodePath, level: usize, child: ChildEntry) -> Option<()> {
        let root = self.root;
        // SAFETY: the caller's promise; only this function uses the fresh nodes until they are linked.
        unsafe {
            let Some(level) = level.checked_sub(1) else {
                if self.head().height as usize + 1 >= HEIGHT_MAX {
                    return None;
                }
                let top =
                    self.memory.alloc(size_of::<InnerNode>(), align_of::<InnerNode>()).cast::<InnerNode>();
                if top.is_null() {
                    return None;
                }
                let only = ChildEntry { prefix: 0, separator: ptr::null_mut(), node: self.head().node };
                self.set(&raw mut (*top).children[0], only);
                self.set(&raw mut (*top).count, 1);
                self.set(&raw mut (*top).skip, 0);
                self.open_gap(top, 1, child);
                let height = self.head().height + 1;
                self.set(&raw mut (*root).node, top.cast());
                self.set(&raw mut (*root).height, height);
                return Some(());
            };
            let (inner, at) = path.steps[level];
            let count = (*inner).count as usize;
            if count < CHILDREN {
                self.open_gap(inner, at + 1, child);
                return Some(());
            }
            // Split: the upper half moves, and its first separator goes to the level above.
            let new = self.memory.alloc(size_of::<InnerNode>(), align_of::<InnerNode>()).cast::<InnerNode>();
            if new.is_null() {
                return None;
            }
            let keep = if at + 1 == count { CHILDREN - 1 } else { CHILDREN / 2 };
            let up = (*inner).children[keep];
            if self.add_child(path, level, ChildEntry { node: new.cast(), ..up }).is_none() {
                self.memory.free(new.cast());
                return None;
            }
            for from in keep..count {
                let mut moved = (*inner).children[from];
                if from == keep {
                    (moved.prefix, moved.separator) = (0, ptr::null_mut());
                }
                self.set(&raw mut (*new).children[from - keep], moved);
            }
            self.set(&raw mut (*new).count, (count - keep) as u32);
            self.set(&raw mut (*new).skip, (*inner).skip);
            self.set(&raw mut (*inner).count, keep as u32);
            if at < keep {
                self.open_gap(inner, at + 1, child);
            } else {
                self.open_gap(new, at + 1 - keep, child);
            }
            for half in [inner, new] {
                if let Some(skip) = (*half).skip_sought(&self.order) {
                    self.skip_in_inner(half, skip);
                }
            }
        }
        Some(())
    }

    /// # Safety
    /// A live inner node that is not full, and a position in it.
    pub(super) unsafe fn open_gap(&mut self, inner: *mut InnerNode, at: usize, mut child: ChildEntry) {
        // SAFETY: the caller's promise; the child's separator is live.
        unsafe {
            let key = (*child.separator).key();
            if let Some(skip) = (*inner).skip_with(&self.order, key) {
                self.skip_in_inner(inner, skip);
            }
            child.prefix = self.order.prefix(key, (*inner).skip as usize);
            let count = (*inner).count as usize;
            let from = &raw mut (*inner).children[at];
            self.memory.wrote(from.cast(), (count + 1 - at) * size_of::<ChildEntry>());
            (*inner).children.copy_within(at..count, at + 1);
            (*inner).children[at] = child;
            self.set(&raw mut (*inner).count, count as u32 + 1);
        }
    }

    /// Removes the slot of a record, which stays allocated, if a search for its key ends there. Returns whether it
    /// did. Needs no memory.
    ///
    /// # Safety
    /// A live record.
    pub(super) unsafe fn remove(&mut self, record: *const RecordVersion) -> bool {
        // SAFETY: the caller's promise; nodes of the tree are live.
        unsafe {
            let (path, leaf) = self.path((*record).key());
            let at = match self.position(leaf, (*record).key()) {
                Ok(at) if ptr::eq((*Self::slot(leaf, at)).record, record) => at,
                _ => return false,
            };
            let mut order = (*leaf).order;
            order.remove(at);
            self.set(&raw mut (*leaf).order, order);
            if order.count > 0 || path.len == 0 {
                return true;
            }
            let (prev, next) = ((*leaf).prev, (*leaf).next);
            if !prev.is_null() {
                self.set(&raw mut (*prev).next, next);
            }
            if !next.is_null() {
                self.set(&raw mut (*next).prev, prev);
            }
            self.memory.free(leaf.cast());
            self.remove_child(&path);
        }
        true
    }

    /// Removes the child at the end of the path, and every inner node that becomes empty by it.
    ///
    /// # Safety
    /// A path of live nodes; the child has been freed.
    pub(super) unsafe fn remove_child(&mut self, path: &NodePath) {
        let root = self.root;
        // SAFETY: the caller's promise.
        unsafe {
            for level in (0..path.len).rev() {
                let (inner, at) = path.steps[level];
                let count = (*inner).count as usize;
                // The first child has no separator of its own: the next child becomes the first, and loses its own.
                let gone = if at == 0 && count > 1 { 1 } else { at };
                let separator = (*inner).children[gone].separator;
                if !separator.is_null() {
                    self.memory.free(separator.cast());
                }
                if count == 1 {
                    self.memory.free(inner.cast());
                    continue;
                }
                let from = &raw mut (*inner).children[at];
                self.memory.wrote(from.cast(), (count - at) * size_of::<ChildEntry>());
                (*inner).children.copy_within(at + 1..count, at);
                if at == 0 {
                    ((*inner).children[0].prefix, (*inner).children[0].separator) = (0, ptr::null_mut());
                }
                self.set(&raw mut (*inner).count, count as u32 - 1);
                break;
            }
            // A root with one child is superfluous. It never loses its last child, because the tree keeps one leaf.
            while self.head().height > 0 {
                let top = self.head().node.cast::<InnerNode>();
                if (*top).count != 1 {
                    break;
                }
                let (node, height) = ((*top).children[0].node, self.head().height - 1);
                self.set(&raw mut (*root).node, node);
                self.set(&raw mut (*root).height, height);
                self.memory.free(top.cast());
            }
        }
    }
}
