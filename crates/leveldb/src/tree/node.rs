//! The blocks of the tree, and the search within one node. docs/format/leveldb.md describes the bytes.
//!
//! The keys of a node often begin alike (decimal numbers, paths). A node stores how many first bytes its keys share
//! (`skip`), and each entry has the eight bytes after those as a number: the `prefix`. So a search follows one or two
//! pointers: to the key at which it ends, and to one that shows whether the sought key begins as all others do.
//!
//! Invariants:
//! 1. Every key of a node has at least `skip` bytes, and all have the same ones. A comparator of the program may
//!    ignore the bytes: then `skip` and all prefixes are 0.
//! 2. An entry's prefix is `KeyOrder::prefix(key, skip)`.
//! 3. A leaf's permutation names each used slot once, in ascending order of keys.

use crate::order::{Direction, KeyOrder};
use mangrove_sys::{CACHE_LINE_BYTES, prefetch_lines};
use std::cmp::Ordering;
use std::ptr;

/// Length of the value of a record that marks a deletion.
const DELETED: u64 = u64::MAX;
/// Slots of a leaf.
pub(crate) const LEAF_SLOTS: usize = 30;
/// Children of an inner node.
pub(crate) const CHILDREN: usize = 22;
/// Bytes of the larger kind of node.
pub(crate) const NODE_BYTES: usize = if size_of::<InnerNode>() > size_of::<LeafNode>() {
    size_of::<InnerNode>()
} else {
    size_of::<LeafNode>()
};
/// A node whose keys share more than this many bytes beyond those it skips is changed to skip them.
const SHARED_BEYOND_MAX: usize = 4;
/// Shared bytes that a node does not skip, so that not every new key changes what it skips.
const SHARED_SPARE: usize = 2;

/// A version of a record; key and value follow it.
#[repr(C)]
pub(crate) struct RecordVersion {
    pub(crate) number: u64,
    pub(crate) older: *mut RecordVersion,
    pub(crate) queue_next: *mut RecordVersion,
    value_len: u64,
    key_len: u32,
    /// [`QUEUED`] and [`QUEUED_BELOW`].
    pub(crate) queued: u32,
}

/// The record stands in the queue.
pub(crate) const QUEUED: u32 = 1;
/// An older version of its key does.
pub(crate) const QUEUED_BELOW: u32 = 2;

impl RecordVersion {
    /// Bytes of a record; none when the key is too long.
    pub(crate) fn bytes(key: &[u8], value: Option<&[u8]>) -> Option<usize> {
        u32::try_from(key.len()).ok()?;
        Some(size_of::<Self>() + key.len() + value.map_or(0, <[u8]>::len))
    }

    /// Writes a record that nothing refers to yet.
    ///
    /// # Safety
    /// A block of [`RecordVersion::bytes`].
    pub(crate) unsafe fn put(block: *mut Self, number: u64, key: &[u8], value: Option<&[u8]>) {
        // SAFETY: the caller's promise.
        unsafe {
            block.write(Self {
                number,
                older: ptr::null_mut(),
                queue_next: ptr::null_mut(),
                value_len: value.map_or(DELETED, |v| v.len() as u64),
                key_len: key.len() as u32,
                queued: 0,
            });
            let at = block.add(1).cast::<u8>();
            ptr::copy_nonoverlapping(key.as_ptr(), at, key.len());
            let value = value.unwrap_or_default();
            ptr::copy_nonoverlapping(value.as_ptr(), at.add(key.len()), value.len());
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.value_len == DELETED
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let start = ptr::from_ref(self).wrapping_add(1).cast::<u8>();
        // SAFETY: `put` wrote the key there.
        unsafe { std::slice::from_raw_parts(start, self.key_len as usize) }
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        let len = if self.is_deleted() { 0 } else { self.value_len as usize };
        let start = ptr::from_ref(self).wrapping_add(1).cast::<u8>().wrapping_add(self.key_len as usize);
        // SAFETY: `put` wrote the value there.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The version that a reader at `number` sees; none when the key was absent.
    ///
    /// # Safety
    /// `newest` begins a chain of live records.
    #[inline]
    pub(crate) unsafe fn seen_at(mut newest: *const Self, number: u64) -> Option<*const Self> {
        // SAFETY: the caller's promise.
        unsafe {
            while !newest.is_null() && (*newest).number > number {
                newest = (*newest).older;
            }
            (!newest.is_null() && !(*newest).is_deleted()).then_some(newest)
        }
    }
}

/// The order of a leaf's slots. Its length makes it one block of the write set.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Permutation {
    pub(crate) slot: [u8; LEAF_SLOTS],
    pub(crate) count: u8,
    pub(crate) skip: u8,
}

impl Permutation {
    pub(crate) const EMPTY: Self = Self { slot: [0; LEAF_SLOTS], count: 0, skip: 0 };

    /// A slot that is not used; the leaf is not full.
    pub(crate) fn unused(&self) -> usize {
        let used = self.used().iter().fold(0u32, |used, slot| used | 1 << slot);
        (!used).trailing_zeros() as usize
    }

    pub(crate) fn used(&self) -> &[u8] {
        &self.slot[..usize::from(self.count)]
    }

    pub(crate) fn insert(&mut self, at: usize, slot: usize) {
        self.slot.copy_within(at..usize::from(self.count), at + 1);
        self.slot[at] = slot as u8;
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.slot.copy_within(at + 1..usize::from(self.count), at);
        self.count -= 1;
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LeafSlot {
    pub(crate) prefix: u64,
    pub(crate) record: *mut RecordVersion,
}

/// What a slot that was never used holds.
pub(crate) const EMPTY_SLOT: LeafSlot = LeafSlot { prefix: 0, record: ptr::null_mut() };

#[repr(C, align(32))]
pub(crate) struct LeafNode {
    pub(crate) order: Permutation,
    pub(crate) next: *mut LeafNode,
    pub(crate) prev: *mut LeafNode,
    pub(crate) slots: [LeafSlot; LEAF_SLOTS],
}

/// A child, and the least key that may be in it; searches ignore that of the first child.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ChildEntry {
    pub(crate) prefix: u64,
    pub(crate) separator: *mut Separator,
    pub(crate) node: *mut u8,
}

/// What a child's place that was never used holds.
pub(crate) const EMPTY_CHILD: ChildEntry =
    ChildEntry { prefix: 0, separator: ptr::null_mut(), node: ptr::null_mut() };

/// A key; its bytes follow it.
#[repr(C)]
pub(crate) struct Separator {
    len: u64,
}

impl Separator {
    pub(crate) fn bytes(key: &[u8]) -> usize {
        size_of::<Self>() + key.len()
    }

    /// # Safety
    /// A block of [`Separator::bytes`].
    pub(crate) unsafe fn put(block: *mut Self, key: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            block.write(Self { len: key.len() as u64 });
            ptr::copy_nonoverlapping(key.as_ptr(), block.add(1).cast(), key.len());
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let start = ptr::from_ref(self).wrapping_add(1).cast::<u8>();
        // SAFETY: `put` wrote the key there.
        unsafe { std::slice::from_raw_parts(start, self.len as usize) }
    }
}

#[repr(C, align(32))]
pub(crate) struct InnerNode {
    pub(crate) count: u32,
    /// Bytes that all separators share.
    pub(crate) skip: u32,
    pub(crate) children: [ChildEntry; CHILDREN],
}

/// Compares the first `skip` bytes of the node's keys, of which `any` is one, with those of `key`.
#[inline]
fn beginnings(any: &[u8], skip: usize, key: &[u8]) -> Ordering {
    any[..skip].cmp(&key[..skip.min(key.len())])
}

/// What a node that skips `skip` bytes must skip after it got `key`; `any` is a key of the node. None: as many.
fn looser_skip(order: &KeyOrder, any: &[u8], key: &[u8], skip: usize) -> Option<usize> {
    if beginnings(any, skip, key) == Ordering::Equal {
        return None;
    }
    Some(order.shared(any, key).saturating_sub(SHARED_SPARE))
}

/// What a node whose keys share `shared` bytes should skip, if that is worth a change.
fn tighter_skip(shared: usize, skip: usize) -> Option<usize> {
    let sought = shared.saturating_sub(SHARED_SPARE).min(usize::from(u8::MAX));
    (shared > skip + SHARED_BEYOND_MAX && sought > skip).then_some(sought)
}

/// What a new node should skip, whose keys are `first`, `last` and others between them.
pub(crate) fn skip_of(order: &KeyOrder, first: &[u8], last: &[u8]) -> usize {
    // As long as it has one key, nothing is known of those that will come.
    if first == last { 0 } else { tighter_skip(order.shared(first, last), 0).unwrap_or(0) }
}

impl LeafNode {
    /// The last position; -1 when there is none.
    pub(crate) fn last(&self) -> isize {
        isize::from(self.order.count) - 1
    }

    /// The next leaf in this direction; null at the end.
    #[inline]
    pub(crate) fn neighbour(&self, direction: Direction) -> *mut Self {
        match direction {
            Direction::Forward => self.next,
            Direction::Backward => self.prev,
        }
    }

    /// Prefetches the records.
    #[inline]
    pub(crate) fn prefetch_records(&self) {
        for &slot in self.order.used() {
            prefetch_lines(self.slots[usize::from(slot)].record.cast(), 2 * CACHE_LINE_BYTES);
        }
    }

    /// The slot at a position of the permutation.
    #[inline]
    pub(crate) fn slot(&self, position: usize) -> &LeafSlot {
        &self.slots[usize::from(self.order.slot[position])]
    }

    /// The key at a position of the permutation.
    ///
    /// # Safety
    /// The leaf's records are live.
    pub(crate) unsafe fn key(&self, position: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { (*self.slot(position).record).key() }
    }

    /// The position of `key` in the permutation: where it is, or where it would be.
    ///
    /// # Safety
    /// The leaf's records are live.
    #[inline]
    pub(crate) unsafe fn position(&self, order: &KeyOrder, key: &[u8]) -> Result<usize, usize> {
        let (used, skip) = (self.order.used(), usize::from(self.order.skip));
        let prefix = order.prefix(key, skip);
        let prefix_of = |slot: u8| self.slots[usize::from(slot)].prefix;
        // SAFETY: the caller's promise.
        let compare = |slot: u8| order.compare(unsafe { (*self.slots[usize::from(slot)].record).key() }, key);
        let mut at = used.partition_point(|&slot| prefix_of(slot) < prefix);
        if at < used.len() && prefix_of(used[at]) == prefix {
            // The caller reads its value next.
            prefetch_lines(self.slot(at).record.cast(), 3 * CACHE_LINE_BYTES);
            if compare(used[at]) == Ordering::Equal {
                return Ok(at);
            }
        }
        if skip > 0 && !used.is_empty() {
            // SAFETY: the caller's promise.
            match beginnings(unsafe { self.key(at.min(used.len() - 1)) }, skip, key) {
                Ordering::Less => return Err(used.len()),
                Ordering::Greater => return Err(0),
                Ordering::Equal => {}
            }
        }
        at +=
            used[at..].partition_point(|&slot| prefix_of(slot) == prefix && compare(slot) == Ordering::Less);
        let there = at < used.len() && prefix_of(used[at]) == prefix && compare(used[at]) == Ordering::Equal;
        if there { Ok(at) } else { Err(at) }
    }

    /// What the leaf must skip after it gets `key`; none if nothing changes.
    ///
    /// # Safety
    /// The leaf's records are live.
    pub(crate) unsafe fn skip_with(&self, order: &KeyOrder, key: &[u8]) -> Option<usize> {
        let skip = usize::from(self.order.skip);
        if skip == 0 {
            return None;
        }
        if self.order.count == 0 {
            return Some(0);
        }
        // SAFETY: the caller's promise.
        looser_skip(order, unsafe { self.key(0) }, key, skip)
    }

    /// What the leaf should skip, if that is worth a change.
    ///
    /// # Safety
    /// The leaf's records are live.
    pub(crate) unsafe fn skip_sought(&self, order: &KeyOrder) -> Option<usize> {
        let last = usize::from(self.order.count).checked_sub(1).filter(|last| *last > 0)?;
        // SAFETY: the caller's promise.
        let shared = unsafe { order.shared(self.key(0), self.key(last)) };
        tighter_skip(shared, usize::from(self.order.skip))
    }
}

impl InnerNode {
    pub(crate) fn children(&self) -> &[ChildEntry] {
        &self.children[..self.count as usize]
    }

    /// The separator's key of a child that is not the first.
    ///
    /// # Safety
    /// The node's separators are live.
    unsafe fn key(&self, at: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { (*self.children[at].separator).key() }
    }

    /// The child that `key` belongs to.
    ///
    /// # Safety
    /// The node's separators are live.
    #[inline]
    pub(crate) unsafe fn child_of(&self, order: &KeyOrder, key: &[u8]) -> usize {
        let (separated, skip) = (&self.children()[1..], self.skip as usize);
        if skip > 0 && !separated.is_empty() {
            // SAFETY: the caller's promise.
            match beginnings(unsafe { self.key(1) }, skip, key) {
                Ordering::Less => return separated.len(),
                Ordering::Greater => return 0,
                Ordering::Equal => {}
            }
        }
        let prefix = order.prefix(key, skip);
        separated.partition_point(|child| {
            child.prefix < prefix
                || (child.prefix == prefix
                    // SAFETY: the caller's promise.
                    && order.compare(unsafe { (*child.separator).key() }, key) != Ordering::Greater)
        })
    }

    /// What the node must skip after it gets `key`; none if nothing changes.
    ///
    /// # Safety
    /// The node's separators are live.
    pub(crate) unsafe fn skip_with(&self, order: &KeyOrder, key: &[u8]) -> Option<usize> {
        let skip = self.skip as usize;
        if skip == 0 {
            return None;
        }
        if self.count < 2 {
            return Some(0);
        }
        // SAFETY: the caller's promise.
        looser_skip(order, unsafe { self.key(1) }, key, skip)
    }

    /// What the node should skip, if that is worth a change.
    ///
    /// # Safety
    /// The node's separators are live.
    pub(crate) unsafe fn skip_sought(&self, order: &KeyOrder) -> Option<usize> {
        if self.count < 3 {
            return None;
        }
        // SAFETY: the caller's promise.
        let shared = unsafe { order.shared(self.key(1), self.key(self.count as usize - 1)) };
        tighter_skip(shared, self.skip as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree::{MAGIC, TreeRoot};
    use std::mem::offset_of;

    /// Each field with its offset, and the bytes up to the next one.
    fn fields(of: &[(&'static str, usize)], end: usize) -> Vec<(usize, usize, String)> {
        let ends = of.iter().skip(1).map(|(_, at)| *at).chain([end]);
        of.iter().zip(ends).map(|((name, at), end)| (*at, end - at, (*name).to_owned())).collect()
    }

    #[test]
    fn the_page_about_the_tree_tells_the_same() {
        let page = include_str!("../../../../docs/format/leveldb.md");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned());
            let (offset, bytes): (usize, usize) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
            Some((offset, bytes, cells.next()?))
        });
        let told: Vec<(usize, usize, String)> = rows.collect();
        let root = [
            ("magic", offset_of!(TreeRoot, magic)),
            ("number", offset_of!(TreeRoot, number)),
            ("records", offset_of!(TreeRoot, records)),
            ("bytes", offset_of!(TreeRoot, bytes)),
            ("queue_first", offset_of!(TreeRoot, queue_first)),
            ("queue_last", offset_of!(TreeRoot, queue_last)),
            ("node", offset_of!(TreeRoot, node)),
            ("height", offset_of!(TreeRoot, height)),
        ];
        let inner = [
            ("count", offset_of!(InnerNode, count)),
            ("skip", offset_of!(InnerNode, skip)),
            ("children", offset_of!(InnerNode, children)),
        ];
        let order = offset_of!(LeafNode, order);
        let leaf = [
            ("slot", order + offset_of!(Permutation, slot)),
            ("count", order + offset_of!(Permutation, count)),
            ("skip", order + offset_of!(Permutation, skip)),
            ("next", offset_of!(LeafNode, next)),
            ("prev", offset_of!(LeafNode, prev)),
            ("slots", offset_of!(LeafNode, slots)),
        ];
        let record = [
            ("number", offset_of!(RecordVersion, number)),
            ("older", offset_of!(RecordVersion, older)),
            ("queue_next", offset_of!(RecordVersion, queue_next)),
            ("value_len", offset_of!(RecordVersion, value_len)),
            ("key_len", offset_of!(RecordVersion, key_len)),
            ("queued", offset_of!(RecordVersion, queued)),
        ];
        let children = offset_of!(InnerNode, children) + CHILDREN * size_of::<ChildEntry>();
        let slots = offset_of!(LeafNode, slots) + LEAF_SLOTS * size_of::<LeafSlot>();
        let code = [
            fields(&root, size_of::<TreeRoot>()),
            fields(&inner, children),
            fields(&leaf, slots),
            fields(&record, size_of::<RecordVersion>()),
        ];
        assert_eq!(told, code.concat());
        assert_eq!((&MAGIC.to_le_bytes(), size_of::<RecordVersion>()), (b"MGLDBT02", 40));
        for sentence in [
            format!("up to {CHILDREN} children"),
            format!("up to {LEAF_SLOTS} keys"),
            format!("{CHILDREN} times {} bytes", size_of::<ChildEntry>()),
            format!("{LEAF_SLOTS} times {} bytes", size_of::<LeafSlot>()),
            format!("{QUEUED}: it stands in the queue; {QUEUED_BELOW}: an older version"),
        ] {
            assert!(page.contains(&sentence), "{sentence}");
        }
    }
}
