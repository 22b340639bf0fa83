//! An ordered structure in memory: a B+-tree of records with versions, in one thread's hands at a time
//! when it is written.
//!
//! It knows nothing of durability, except that it says what it writes (`Memory::wrote`), and that all of
//! it, the root included, lies in blocks of one `Memory`: whoever keeps those blocks keeps the tree.
//!
//! Versions, as in LevelDB's memtable: each batch has a number; a record carries the number of its
//! batch and leads to the older version of its key, as long as somebody who reads at an older number may
//! need it. What nobody needs is freed at once; the rest stands in a queue by number.
//!
//! Leaves keep their slots in the order of arrival and a permutation of them in one 32-byte block, so
//! that an insertion writes little (after Masstree). Inner nodes are sorted arrays. A node that becomes
//! empty is freed; nodes are not merged otherwise. `node.rs` has their layout, and the search within one.
//!
//! One file, long as it is: descent, split, versions and removal share the invariants below, and each
//! unsafe access rests on them.
//!
//! Invariants:
//! 1. Along a leaf's permutation, and along the chain of leaves, keys strictly ascend.
//! 2. Along a chain of versions numbers descend or, within one batch, stay equal.
//! 3. A record with an older version stands in the queue (its `queued` flag is set), and the numbers in
//!    the queue ascend.

use crate::batch::Change;
use crate::node::{
    CHILDREN, Child, Direction, Inner, LEAF_SLOTS, Leaf, NODE_BYTES, Permutation, Record, Separator, Slot,
};
use crate::order::KeyOrder;
use mangrove_sys::prefetch_lines;
use std::cmp::Ordering;
use std::ptr;

/// Where the tree's blocks come from, and who hears what is written to them.
pub(crate) trait Memory {
    /// A block at a multiple of `align`, or null when there is no more.
    fn alloc(&self, bytes: usize, align: usize) -> *mut u8;
    /// Frees a block of `alloc`.
    ///
    /// # Safety
    /// The block is from `alloc` and not used any more.
    unsafe fn free(&self, block: *mut u8);
    /// Bytes of a block were or will be written by the present call.
    fn wrote(&self, at: *const u8, bytes: usize);
}

/// Why a write did not happen. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no more memory.
    Full,
    /// The comparator does not order the keys as it did.
    Disordered,
}

/// Records of the queue that each batch looks at.
const SWEEP_MAX: usize = 8;
/// More levels than any address space can fill.
const HEIGHT_MAX: usize = 40;

/// Marks a root, and its format.
const MAGIC: u64 = u64::from_le_bytes(*b"MGLDBT02");
/// The format before: the same, and no node skips anything.
const MAGIC_BEFORE: u64 = u64::from_le_bytes(*b"MGLDBT01");

/// What leads to everything.
#[repr(C, align(32))]
pub(crate) struct Root {
    magic: u64,
    /// The last batch.
    number: u64,
    /// Records that a reader sees now, and their bytes.
    records: u64,
    bytes: u64,
    queue_first: *mut Record,
    queue_last: *mut Record,
    node: *mut u8,
    /// Levels of inner nodes above the leaves.
    height: u64,
}

/// Who reads at older numbers: the least and the greatest of those, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readers {
    pub(crate) span: Option<(u64, u64)>,
}

impl Readers {
    /// Nobody reads at a number from `number` on.
    fn none_from(self, number: u64) -> bool {
        self.span.is_none_or(|(_, newest)| newest < number)
    }

    /// Everybody reads at a number from `number` on.
    fn all_from(self, number: u64) -> bool {
        self.span.is_none_or(|(oldest, _)| oldest >= number)
    }
}

/// The inner nodes above a leaf, from the root down, and which child was taken.
struct Path {
    steps: [(*mut Inner, usize); HEIGHT_MAX],
    len: usize,
}

/// A place in the chain of leaves; good until the tree is written.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    leaf: *mut Leaf,
    /// Position in the permutation; may be one beyond either end.
    at: isize,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From<'a> {
    End,
    /// The key itself counts.
    At(&'a [u8]),
    /// The key itself does not.
    Beyond(&'a [u8]),
}

/// A tree, reached from its root.
pub(crate) struct Tree<M> {
    root: *mut Root,
    order: KeyOrder,
    memory: M,
}

/// What a batch has done to one key so far: enough to take it back.
struct Step {
    record: *mut Record,
    /// The newest version before; null where there was none.
    before: *mut Record,
}

impl<M: Memory> Tree<M> {
    /// A new, empty tree; its root is the first block that it allocates.
    pub(crate) fn create(order: KeyOrder, memory: M) -> Result<Self, Refused> {
        let root = memory.alloc(size_of::<Root>(), align_of::<Root>()).cast::<Root>();
        let mut tree = Self { root, order, memory };
        if root.is_null() {
            return Err(Refused::Full);
        }
        let Some(leaf) = tree.new_leaf() else {
            // SAFETY: just allocated.
            unsafe { tree.memory.free(root.cast()) };
            return Err(Refused::Full);
        };
        let empty = Root {
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

    /// The tree of a root that `create` made; `None` when this is none.
    ///
    /// # Safety
    /// `root` has the bytes of a root, and if they are one's, the tree is whole.
    pub(crate) unsafe fn open(root: *mut Root, order: KeyOrder, memory: M) -> Option<Self> {
        // SAFETY: the caller's promise.
        let found = unsafe { !root.is_null() && matches!((*root).magic, MAGIC | MAGIC_BEFORE) };
        found.then_some(Self { root, order, memory })
    }

    pub(crate) fn root(&self) -> *mut Root {
        self.root
    }

    fn head(&self) -> &Root {
        // SAFETY: the root lives as long as the tree.
        unsafe { &*self.root }
    }

    /// The number of the last batch.
    pub(crate) fn number(&self) -> u64 {
        self.head().number
    }

    /// Records and their bytes, as seen now.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.head().records, self.head().bytes)
    }

    /// True when there are versions that nobody may need any more.
    pub(crate) fn has_leftovers(&self) -> bool {
        !self.head().queue_first.is_null()
    }

    /// The first of them.
    pub(crate) fn first_leftover(&self) -> *const Record {
        self.head().queue_first
    }

    pub(crate) fn order(&self) -> &KeyOrder {
        &self.order
    }

    /// Writes a part of the tree, and says so.
    #[inline]
    fn set<T>(&self, at: *mut T, value: T) {
        self.memory.wrote(at.cast(), size_of::<T>());
        // SAFETY: every caller passes a place in one of the tree's blocks.
        unsafe { at.write(value) };
    }

    fn new_leaf(&self) -> Option<*mut Leaf> {
        let leaf = self.memory.alloc(size_of::<Leaf>(), align_of::<Leaf>()).cast::<Leaf>();
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

    /// A record that nothing leads to yet.
    fn record(&self, number: u64, key: &[u8], value: Option<&[u8]>) -> Option<*mut Record> {
        let bytes = Record::bytes(key, value)?;
        let record = self.memory.alloc(bytes, align_of::<Record>()).cast::<Record>();
        if record.is_null() {
            return None;
        }
        self.memory.wrote(record.cast(), bytes);
        // SAFETY: a fresh block of that many bytes.
        unsafe { Record::put(record, number, key, value) };
        Some(record)
    }

    fn separator(&self, key: &[u8]) -> Option<*mut Separator> {
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

    /// The leaf that `key` belongs to, and the way there.
    fn descend(&self, key: &[u8], mut step: impl FnMut(*mut Inner, usize)) -> *mut Leaf {
        let (mut node, height) = (self.head().node, self.head().height);
        for _ in 0..height {
            let inner = node.cast::<Inner>();
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

    fn path(&self, key: &[u8]) -> (Path, *mut Leaf) {
        let mut path = Path { steps: [(ptr::null_mut(), 0); HEIGHT_MAX], len: 0 };
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
    unsafe fn position(&self, leaf: *const Leaf, key: &[u8]) -> Result<usize, usize> {
        // SAFETY: the caller's promise; records in leaves are live.
        unsafe { (*leaf).position(&self.order, key) }
    }

    /// The slot at a position of the permutation.
    ///
    /// # Safety
    /// A live leaf with that many records.
    unsafe fn slot(leaf: *mut Leaf, position: usize) -> *mut Slot {
        // SAFETY: the caller's promise.
        unsafe { &raw mut (*leaf).slots[usize::from((*leaf).order.slot[position])] }
    }

    /// Makes a leaf skip `skip` bytes.
    ///
    /// # Safety
    /// A live leaf whose keys share that many.
    unsafe fn skip_in_leaf(&self, leaf: *mut Leaf, skip: usize) {
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
    unsafe fn skip_in_inner(&self, inner: *mut Inner, skip: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            for at in 1..(*inner).count as usize {
                let child = &raw mut (*inner).children[at];
                self.set(&raw mut (*child).prefix, self.order.prefix((*(*child).separator).key(), skip));
            }
            self.set(&raw mut (*inner).skip, skip as u32);
        }
    }

    /// The newest version of a key.
    fn newest(&self, key: &[u8]) -> *mut Record {
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
    pub(crate) fn get(&self, key: &[u8], number: u64) -> Option<&Record> {
        // SAFETY: records that the tree leads to are live.
        unsafe { Record::seen_at(self.newest(key), number).map(|record| &*record) }
    }

    /// Applies the changes as one batch, whose number it answers.
    pub(crate) fn apply<'a>(
        &mut self,
        changes: impl Iterator<Item = Change<'a>>,
        readers: Readers,
    ) -> Result<u64, Refused> {
        let root = self.root;
        let number = self.head().number + 1;
        let mut steps = Vec::with_capacity(changes.size_hint().0);
        for change in changes {
            let done = match change {
                Change::Put(key, value) => self.supersede(number, key, Some(value)),
                Change::Delete(key) => self.supersede(number, key, None),
            };
            match done {
                Ok(step) => steps.push(step),
                Err(refused) => {
                    self.take_back(steps);
                    return Err(refused);
                }
            }
        }
        // SAFETY: the root is the tree's.
        unsafe {
            self.set(&raw mut (*root).number, number);
            if self.head().magic != MAGIC {
                self.set(&raw mut (*root).magic, MAGIC);
            }
        }
        for step in steps {
            self.finish(step, readers);
        }
        self.sweep(readers, SWEEP_MAX);
        Ok(number)
    }

    /// Puts a new version of a key in front of the others.
    fn supersede(&mut self, number: u64, key: &[u8], value: Option<&[u8]>) -> Result<Step, Refused> {
        let record = self.record(number, key, value).ok_or(Refused::Full)?;
        let leaf = self.descend(key, |_, _| {});
        // SAFETY: a live leaf, and positions in it; the record is fresh.
        unsafe {
            if let Ok(at) = self.position(leaf, key) {
                let slot = Self::slot(leaf, at);
                let before = (*slot).record;
                (*record).older = before;
                self.set(&raw mut (*slot).record, record);
                return Ok(Step { record, before });
            }
            if let Err(refused) = self.insert(key, record) {
                self.memory.free(record.cast());
                return Err(refused);
            }
        }
        Ok(Step { record, before: ptr::null_mut() })
    }

    /// Takes steps back, the last first. Needs no memory.
    fn take_back(&mut self, mut steps: Vec<Step>) {
        steps.reverse();
        steps.retain(|&Step { record, before }| {
            // SAFETY: the step's record is live, and so is the one before it.
            unsafe {
                let gone = if before.is_null() { self.remove(record) } else { self.replace(record, before) };
                if gone {
                    self.memory.free(record.cast());
                }
                !gone
            }
        });
        if !steps.is_empty() {
            self.take_back_unordered(steps);
        }
    }

    /// Puts `new` where `old` is, if a search for its key ends there; says whether it did.
    ///
    /// # Safety
    /// Both live.
    unsafe fn replace(&mut self, old: *mut Record, new: *mut Record) -> bool {
        // SAFETY: the caller's promise; nodes that the tree leads to are live.
        unsafe {
            let leaf = self.descend((*old).key(), |_, _| {});
            match self.position(leaf, (*old).key()) {
                Ok(at) if (*Self::slot(leaf, at)).record == old => {
                    self.set(&raw mut (*Self::slot(leaf, at)).record, new);
                    true
                }
                _ => false,
            }
        }
    }

    /// Takes steps back without asking for the order, which is not what it was: looks at every record once. Leaves stay,
    /// also empty ones.
    #[cold]
    fn take_back_unordered(&mut self, mut steps: Vec<Step>) {
        steps.sort_unstable_by_key(|step| step.record.addr());
        let step_of = |record: *mut Record| {
            steps.binary_search_by_key(&record.addr(), |step| step.record.addr()).ok().map(|at| &steps[at])
        };
        let mut leaf = self.place(From::End, Direction::Forward).leaf;
        // SAFETY: nodes that the tree leads to are live, and so is what a step's record took the place of. What no leaf leads
        // to stays allocated: something else may.
        unsafe {
            while !leaf.is_null() {
                let mut at = 0;
                while at < usize::from((*leaf).order.count) {
                    let slot = Self::slot(leaf, at);
                    let newest = (*slot).record;
                    let mut record = newest;
                    while let Some(step) = step_of(record) {
                        self.memory.free(record.cast());
                        record = step.before;
                    }
                    if record.is_null() {
                        let mut order = (*leaf).order;
                        order.remove(at);
                        self.set(&raw mut (*leaf).order, order);
                        continue;
                    }
                    if record != newest {
                        self.set(&raw mut (*slot).record, record);
                    }
                    at += 1;
                }
                leaf = (*leaf).next;
            }
        }
    }

    /// Ends a step of a batch that stands: counts it, and frees what it superseded or queues it.
    fn finish(&mut self, step: Step, readers: Readers) {
        let root = self.root;
        let Step { record, before } = step;
        // SAFETY: both live until freed here; `before` is not the newest of its key any more.
        unsafe {
            let bytes = |r: *const Record| ((*r).key().len() + (*r).value().len()) as u64;
            let there = !before.is_null() && !(*before).is_deleted();
            let (mut records, mut sum) = self.size();
            if there {
                (records, sum) = (records - 1, sum - bytes(before));
            }
            if !(*record).is_deleted() {
                (records, sum) = (records + 1, sum + bytes(record));
            }
            self.set(&raw mut (*root).records, records);
            self.set(&raw mut (*root).bytes, sum);
            if !before.is_null() {
                if (*before).queued != 0 || !readers.none_from((*before).number) {
                    self.enqueue(record);
                    return;
                }
                self.set(&raw mut (*record).older, ptr::null_mut());
                self.memory.free(before.cast());
            }
            if (*record).is_deleted() && self.remove(record) {
                self.memory.free(record.cast());
            }
        }
    }

    /// # Safety
    /// A live record that is not in the queue, whose number is the greatest.
    unsafe fn enqueue(&mut self, record: *mut Record) {
        let root = self.root;
        // SAFETY: the caller's promise; the queue's records are live.
        unsafe {
            self.set(&raw mut (*record).queued, 1);
            let last = self.head().queue_last;
            if last.is_null() {
                self.set(&raw mut (*root).queue_first, record);
            } else {
                self.set(&raw mut (*last).queue_next, record);
            }
            self.set(&raw mut (*root).queue_last, record);
        }
    }

    /// Frees versions that nobody needs any more, of at most `count` records of the queue.
    pub(crate) fn sweep(&mut self, readers: Readers, count: usize) {
        let root = self.root;
        for _ in 0..count {
            let record = self.head().queue_first;
            // SAFETY: the queue's records are live, and so is what they lead to.
            unsafe {
                if record.is_null() || !readers.all_from((*record).number) {
                    return;
                }
                let next = (*record).queue_next;
                self.set(&raw mut (*root).queue_first, next);
                if next.is_null() {
                    self.set(&raw mut (*root).queue_last, next);
                }
                self.set(&raw mut (*record).queued, 0);
                self.set(&raw mut (*record).queue_next, ptr::null_mut());
                // What is older has left the queue before this one: its chain ends with it.
                let mut older = (*record).older;
                self.set(&raw mut (*record).older, ptr::null_mut());
                while !older.is_null() {
                    let further = (*older).older;
                    self.memory.free(older.cast());
                    older = further;
                }
                if (*record).is_deleted() && self.remove(record) {
                    self.memory.free(record.cast());
                }
            }
        }
    }

    /// Inserts the first record of a key. After an error nothing has changed.
    ///
    /// # Safety
    /// A live record, of this key, which is not in the tree.
    unsafe fn insert(&mut self, key: &[u8], record: *mut Record) -> Result<(), Refused> {
        let (path, mut leaf) = self.path(key);
        // SAFETY: nodes that the tree leads to are live; the permutation names each slot once.
        unsafe {
            if usize::from((*leaf).order.count) == LEAF_SLOTS {
                self.split_leaf(&path, leaf).ok_or(Refused::Full)?;
                leaf = self.descend(key, |_, _| {});
                // The way led to a half of the split leaf, or the separators are not in order.
                if usize::from((*leaf).order.count) == LEAF_SLOTS {
                    return Err(Refused::Disordered);
                }
            }
            if let Some(skip) = (*leaf).skip_with(&self.order, key) {
                self.skip_in_leaf(leaf, skip);
            }
            let mut order = (*leaf).order;
            let (at, free) = (self.position(leaf, key).unwrap_or_else(|at| at), order.unused());
            let prefix = self.order.prefix(key, usize::from(order.skip));
            order.insert(at, free);
            self.set(&raw mut (*leaf).slots[free], Slot { prefix, record });
            self.set(&raw mut (*leaf).order, order);
        }
        Ok(())
    }

    /// Moves the upper part of a full leaf into a new one behind it.
    ///
    /// # Safety
    /// A live, full leaf and the path to it.
    unsafe fn split_leaf(&mut self, path: &Path, leaf: *mut Leaf) -> Option<()> {
        // SAFETY: the caller's promise; fresh nodes are this function's until they are linked.
        unsafe {
            let order = (*leaf).order;
            // Ascending insertions fill leaves whole: behind the last leaf only one record moves.
            let keep = if (*leaf).next.is_null() { LEAF_SLOTS - 1 } else { LEAF_SLOTS / 2 };
            let first = (*leaf).slots[usize::from(order.slot[keep])];
            let separator = self.separator((*first.record).key())?;
            let Some(new) = self.new_leaf() else {
                self.memory.free(separator.cast());
                return None;
            };
            let child = Child { prefix: 0, separator, node: new.cast() };
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

    /// Adds a child behind the one that the path took at `level` (0: a new root above everything), which
    /// finds out the child's prefix. `None`: no memory, nothing changed.
    ///
    /// # Safety
    /// A path of live nodes.
    unsafe fn add_child(&mut self, path: &Path, level: usize, child: Child) -> Option<()> {
        let root = self.root;
        // SAFETY: the caller's promise; fresh nodes are this function's until they are linked.
        unsafe {
            let Some(level) = level.checked_sub(1) else {
                if self.head().height as usize + 1 >= HEIGHT_MAX {
                    return None;
                }
                let top = self.memory.alloc(size_of::<Inner>(), align_of::<Inner>()).cast::<Inner>();
                if top.is_null() {
                    return None;
                }
                let only = Child { prefix: 0, separator: ptr::null_mut(), node: self.head().node };
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
            // Split: the upper half moves, its first separator goes up.
            let new = self.memory.alloc(size_of::<Inner>(), align_of::<Inner>()).cast::<Inner>();
            if new.is_null() {
                return None;
            }
            let keep = if at + 1 == count { CHILDREN - 1 } else { CHILDREN / 2 };
            let up = (*inner).children[keep];
            if self.add_child(path, level, Child { node: new.cast(), ..up }).is_none() {
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
    /// A live inner node with room, and a position in it.
    unsafe fn open_gap(&mut self, inner: *mut Inner, at: usize, mut child: Child) {
        // SAFETY: the caller's promise; the child's separator is live.
        unsafe {
            let key = (*child.separator).key();
            if let Some(skip) = (*inner).skip_with(&self.order, key) {
                self.skip_in_inner(inner, skip);
            }
            child.prefix = self.order.prefix(key, (*inner).skip as usize);
            let count = (*inner).count as usize;
            let from = &raw mut (*inner).children[at];
            self.memory.wrote(from.cast(), (count + 1 - at) * size_of::<Child>());
            (*inner).children.copy_within(at..count, at + 1);
            (*inner).children[at] = child;
            self.set(&raw mut (*inner).count, count as u32 + 1);
        }
    }

    /// Removes the slot of a record, which stays, if a search for its key ends there; says whether it did. Needs no memory.
    ///
    /// # Safety
    /// A live record.
    unsafe fn remove(&mut self, record: *const Record) -> bool {
        // SAFETY: the caller's promise; nodes that the tree leads to are live.
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

    /// Removes the child that the path ends with, and every inner node that becomes empty by it.
    ///
    /// # Safety
    /// A path of live nodes; the child has been freed.
    unsafe fn remove_child(&mut self, path: &Path) {
        let root = self.root;
        // SAFETY: the caller's promise.
        unsafe {
            for level in (0..path.len).rev() {
                let (inner, at) = path.steps[level];
                let count = (*inner).count as usize;
                // Of the first child the separator is not its own: the next child becomes the first.
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
                self.memory.wrote(from.cast(), (count - at) * size_of::<Child>());
                (*inner).children.copy_within(at + 1..count, at);
                if at == 0 {
                    ((*inner).children[0].prefix, (*inner).children[0].separator) = (0, ptr::null_mut());
                }
                self.set(&raw mut (*inner).count, count as u32 - 1);
                break;
            }
            // A root with one child is none. It never loses its last: the tree keeps one leaf.
            while self.head().height > 0 {
                let top = self.head().node.cast::<Inner>();
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

    /// The place where a walk begins.
    pub(crate) fn place(&self, from: From<'_>, direction: Direction) -> Place {
        // SAFETY: nodes that the tree leads to are live.
        unsafe {
            match from {
                From::End => {
                    let mut node = self.head().node;
                    for _ in 0..self.head().height {
                        let inner = node.cast::<Inner>();
                        let last = (*inner).count as usize - 1;
                        node = (*inner).children[if direction == Direction::Forward { 0 } else { last }].node;
                    }
                    let leaf = node.cast::<Leaf>();
                    let at = if direction == Direction::Forward { 0 } else { (*leaf).last() };
                    Place { leaf, at }
                }
                From::At(key) | From::Beyond(key) => {
                    let leaf = self.descend(key, |_, _| {});
                    let includes = matches!(from, From::At(_));
                    let at = match (self.position(leaf, key), direction) {
                        (Ok(at), _) if includes => at as isize,
                        (Ok(at), Direction::Forward) => at as isize + 1,
                        (Ok(at) | Err(at), Direction::Backward) => at as isize - 1,
                        (Err(at), Direction::Forward) => at as isize,
                    };
                    Place { leaf, at }
                }
            }
        }
    }

    /// Collects up to `count` records as seen at `number`, from `place` on, which it moves on.
    pub(crate) fn collect(
        &self,
        place: &mut Place,
        direction: Direction,
        number: u64,
        count: usize,
        records: &mut Vec<*const Record>,
    ) {
        // SAFETY: the place is good: leaves that it leads to, and records in them, are live.
        unsafe {
            let mut near = ptr::null_mut();
            while !place.leaf.is_null() && records.len() < count {
                let leaf = place.leaf;
                if near != leaf {
                    // Records lie anywhere: let the cache misses overlap, also those of a page's first leaf.
                    if near.is_null() {
                        (*leaf).draw_records_near();
                    }
                    near = leaf;
                    let next = (*leaf).neighbour(direction);
                    if !next.is_null() && records.len() + LEAF_SLOTS < count {
                        (*next).draw_records_near();
                        prefetch_lines((*next).neighbour(direction).cast(), NODE_BYTES);
                    }
                }
                if place.at < 0 || place.at > (*leaf).last() {
                    let leaf = (*leaf).neighbour(direction);
                    let backward = direction == Direction::Backward && !leaf.is_null();
                    *place = Place { leaf, at: if backward { (*leaf).last() } else { 0 } };
                    continue;
                }
                let newest = (*Self::slot(leaf, place.at as usize)).record;
                if let Some(record) = Record::seen_at(newest, number) {
                    records.push(record);
                }
                place.at += if direction == Direction::Forward { 1 } else { -1 };
            }
        }
    }

    /// Reads everything; one sentence for each rule that is broken. Time: all records.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let (mut records, mut bytes) = (0, 0);
        let mut last: Option<&[u8]> = None;
        let mut leaf = self.place(From::End, Direction::Forward).leaf;
        // SAFETY: nodes and records that the tree leads to are live; a tree that is not whole was
        // refused by the checksums below it.
        unsafe {
            while !leaf.is_null() {
                for position in 0..usize::from((*leaf).order.count) {
                    let slot = *Self::slot(leaf, position);
                    let record = &*slot.record;
                    let key = record.key();
                    if slot.prefix != self.order.prefix(key, usize::from((*leaf).order.skip)) {
                        problems.push(format!("the key {key:?} has not the prefix that its leaf says"));
                    }
                    if last.is_some_and(|last| self.order.compare(last, key) != Ordering::Less) {
                        problems
                            .push(format!("the key {key:?} stands behind one that does not come before it"));
                    }
                    if self.newest(key) != slot.record {
                        problems.push(format!("the key {key:?} is not found where it is"));
                    }
                    if !record.older.is_null() && record.queued == 0 {
                        problems.push(format!("the key {key:?} has versions that will never be freed"));
                    }
                    if !record.is_deleted() {
                        (records, bytes) = (records + 1, bytes + (key.len() + record.value().len()) as u64);
                    }
                    last = Some(key);
                }
                leaf = (*leaf).next;
            }
        }
        if (records, bytes) != self.size() {
            problems.push(format!(
                "there are {records} records of {bytes} bytes, and the root says {:?}",
                self.size()
            ));
        }
        problems
    }

    /// Every block that the tree leads to, as often as it does, but for the queue.
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> Vec<usize> {
        let mut blocks = vec![self.root as usize];
        let mut nodes = vec![(self.head().node, self.head().height)];
        while let Some((node, height)) = nodes.pop() {
            blocks.push(node as usize);
            // SAFETY: what the tree leads to is live.
            unsafe {
                if height > 0 {
                    let children = (*node.cast::<Inner>()).children();
                    blocks.extend(children[1..].iter().map(|child| child.separator as usize));
                    nodes.extend(children.iter().map(|child| (child.node, height - 1)));
                    continue;
                }
                let leaf = node.cast::<Leaf>();
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

    /// Neighbours in leaves that only their records tell apart.
    #[cfg(test)]
    pub(crate) fn neighbours_of_one_prefix(&self) -> usize {
        let (mut leaf, mut count) = (self.place(From::End, Direction::Forward).leaf, 0);
        while !leaf.is_null() {
            // SAFETY: leaves that the tree leads to are live.
            let here = unsafe { &*leaf };
            count += (1..=here.last() as usize)
                .filter(|at| here.slot(at - 1).prefix == here.slot(*at).prefix)
                .count();
            leaf = here.next;
        }
        count
    }
}
