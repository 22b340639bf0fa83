//! Builds trees from all their leaves at once, for recovery: each node is built once, at its final size.

use super::directory::ENTRY_COUNT;
use super::keys;
use super::leaf::{KeySource, Leaf};
use super::tree::Index;
use super::word::{NodeKind, Word};

/// A leaf to build from, and its key bytes 2..10 (the first that the directory has not consumed), big-endian, padded
/// with zeros after the end of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildItem {
    /// Key bytes 2..10.
    pub(crate) head: u64,
    /// The leaf.
    pub(crate) leaf: Leaf,
}

/// Two leaves of one key were given to [`Index::build_entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DuplicateKey(pub(crate) Leaf, pub(crate) Leaf);

/// Key bytes before the head.
const HEAD_START: usize = 2;
const HEAD_LEN: usize = 8;

impl BuildItem {
    /// The head byte for key index `position`, which lies in the head.
    #[inline]
    fn head_byte(self, position: usize) -> u8 {
        (self.head >> (8 * (HEAD_START + HEAD_LEN - 1 - position))) as u8
    }
}

impl<K: KeySource> Index<K> {
    /// Fills the empty directory entry `entry` with `items`, all of whose keys belong there, in any order.
    ///
    /// Entries may be filled from several threads at once.
    ///
    /// # Errors
    /// Two of the items have the same key; the entry stays empty.
    ///
    /// # Panics
    /// The entry is not empty.
    pub(crate) fn build_entry(&self, entry: usize, items: &mut [BuildItem]) -> Result<(), DuplicateKey> {
        assert!(entry < ENTRY_COUNT && self.directory.is_empty(entry), "only an empty entry can be built");
        // By head first, which needs no access to the leaf; few keys agree in it.
        items.sort_unstable_by_key(|item| item.head);
        for same in items.chunk_by_mut(|one, other| one.head == other.head).filter(|same| same.len() > 1) {
            same.sort_unstable_by(|one, other| keys::compare(&self.keys, one.leaf, other.leaf));
        }
        for pair in items.windows(2) {
            let same =
                pair[0].head == pair[1].head && keys::compare(&self.keys, pair[0].leaf, pair[1].leaf).is_eq();
            if same {
                return Err(DuplicateKey(pair[0].leaf, pair[1].leaf));
            }
        }
        if items.is_empty() {
            return Ok(());
        }
        let word = self.build(items, start_of(entry), HEAD_START, &mut Vec::new());
        let root = self.directory.entry(entry);
        let locked = loop {
            // The entry's lock is never obsolete; only a reader's fallback could hold it now.
            if let Ok(locked) = root.lock.read().and_then(|version| root.lock.try_lock(version)) {
                break locked;
            }
        };
        self.directory.fill(entry, word);
        drop(locked);
        Ok(())
    }

    /// Builds the tree of sorted, distinct `items`, which agree in the bytes before `depth` and begin with the bytes
    /// `start` (see [`start_of`]). `children` is scratch space for all levels.
    fn build(
        &self,
        items: &[BuildItem],
        start: u64,
        depth: usize,
        children: &mut Vec<(Option<u8>, Word)>,
    ) -> Word {
        let (first, last) = (items[0], items[items.len() - 1]);
        if items.len() == 1 {
            return Word::leaf(first.leaf);
        }
        let position = self.parting(first, last, depth);
        let mark = children.len();
        let mut rest = items;
        while let Some(item) = rest.first() {
            let byte = self.byte(*item, position);
            let same = rest.iter().take_while(|other| self.byte(**other, position) == byte).count();
            let (group, behind) = rest.split_at(same);
            let word = self.build(group, start, position + 1, children);
            children.push((byte, word));
            rest = behind;
        }
        let ends = usize::from(children[mark].0.is_none());
        let kind = NodeKind::for_len(children.len() - mark - ends);
        let (node, locked) = self.arena.allocate(kind, position, self.tail(first, start, position));
        for (byte, word) in children.drain(mark..) {
            node.put(byte, word);
        }
        drop(locked);
        node.word()
    }

    /// The first index from `depth` on where the keys of the sorted items `first` and `last` differ, or where one
    /// ends.
    fn parting(&self, first: BuildItem, last: BuildItem, depth: usize) -> usize {
        let differing = first.head ^ last.head;
        if differing != 0 {
            let position = HEAD_START + (differing.leading_zeros() / 8) as usize;
            // The heads agree before it; a zero there may be the end of one key and a byte of the other.
            if (depth..position).all(|at| first.head_byte(at) != 0) {
                return position;
            }
        }
        let reach = self.keys.key_len(first.leaf).min(self.keys.key_len(last.leaf));
        (depth..reach).find(|at| self.byte(first, *at) != self.byte(last, *at)).unwrap_or(reach)
    }

    /// The key byte of an item, none after its end.
    #[inline]
    fn byte(&self, item: BuildItem, position: usize) -> Option<u8> {
        if (HEAD_START..HEAD_START + HEAD_LEN).contains(&position) {
            let byte = item.head_byte(position);
            if byte != 0 {
                return Some(byte);
            }
        }
        keys::byte_of(&self.keys, item.leaf, position)
    }

    /// The (up to) 8 bytes before `position`, the last one highest.
    #[inline]
    fn tail(&self, item: BuildItem, start: u64, position: usize) -> u64 {
        if (HEAD_START..=HEAD_START + HEAD_LEN).contains(&position) {
            // Without reading the leaf, which costs a cache miss: the key does not end before the position.
            let before = position - HEAD_START;
            let whole = u128::from(start) << 64 | u128::from(item.head);
            return ((whole >> (8 * (HEAD_LEN - before))) as u64).swap_bytes();
        }
        (position.saturating_sub(8)..position).fold(0, |tail, at| {
            let byte = keys::byte_of(&self.keys, item.leaf, at).unwrap_or(0);
            (tail >> 8) | (u64::from(byte) << 56)
        })
    }
}

/// The two bytes that keys of directory entry `entry` begin with, as a number. For an entry of a shorter key, of
/// which there is one, it means nothing.
fn start_of(entry: usize) -> u64 {
    let within = entry.saturating_sub(1);
    let (first, second) = (within / 257, (within % 257).saturating_sub(1));
    (first as u64) << 8 | second as u64
}
