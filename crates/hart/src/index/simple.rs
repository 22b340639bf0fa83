//! Interim: the interface over a locked `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;

use super::leaf::{KeySource, Leaf};

/// Directory entries: the empty key, and for each first byte its one-byte key and 256 second bytes.
pub(crate) const ENTRY_COUNT: usize = 1 + 256 * 257;

/// The directory entry of `key`; entries are ordered as their keys are.
#[inline]
pub(crate) fn entry_of(key: &[u8]) -> usize {
    match *key {
        [] => 0,
        [a] => 1 + usize::from(a) * 257,
        [a, b, ..] => 2 + usize::from(a) * 257 + usize::from(b),
    }
}

/// What a [`Index::modify`] callback wants done with the key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Leave the index as it is (the leaf's content may have changed in place).
    Keep,
    /// Put this leaf where none was.
    Insert(Leaf),
    /// Put this leaf where another of the same key was.
    Replace(Leaf),
    /// Take the leaf out.
    Remove,
}

/// Whether a modification may add a key: room is made only for those that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The callback may answer [`Change::Insert`] to `None`.
    Upsert,
    /// The callback answers [`Change::Keep`] to `None`.
    Existing,
}

/// The order in which a cursor walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// A leaf to build from, with the key bytes 2..10 (those the directory has not consumed) in hand, big-endian,
/// zero behind the end of the key.
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

/// Nodes and bytes of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Bytes of nodes in use, the directory included.
    pub(crate) bytes_used: u64,
    /// Bytes taken from the system.
    pub(crate) bytes_reserved: u64,
}

/// The ordered index of all live leaves.
pub(crate) struct Index<K> {
    keys: K,
    map: RwLock<BTreeMap<Vec<u8>, Leaf>>,
}

impl<K: KeySource> Index<K> {
    /// An empty index over the leaves that `keys` can read.
    pub(crate) fn new(keys: K) -> Self {
        Self { keys, map: RwLock::new(BTreeMap::new()) }
    }

    /// The reader of keys given to [`Index::new`].
    pub(crate) fn keys(&self) -> &K {
        &self.keys
    }

    /// Runs `read` on the leaf of `key`.
    ///
    /// `read` runs optimistically, perhaps several times, on a slot that may change under it; only the answer
    /// of a run during which the leaf and its content stood still is returned.
    pub(crate) fn get<R>(&self, key: &[u8], mut read: impl FnMut(Leaf) -> R) -> Option<R> {
        self.map.read().get(key).map(|leaf| read(*leaf))
    }

    /// Runs `change` exactly once, with the leaf of `key`, under the lock that readers of the leaf and other
    /// writers of the key wait for, and then does what it says.
    ///
    /// Memory for the insertion is allocated before; with [`Intent::Existing`] and no such key the callback
    /// runs without a lock.
    pub(crate) fn modify<R>(
        &self,
        key: &[u8],
        intent: Intent,
        change: impl FnOnce(Option<Leaf>) -> (Change, R),
    ) -> R {
        let mut map = self.map.write();
        let (change, result) = change(map.get(key).copied());
        match change {
            Change::Keep => {}
            Change::Insert(leaf) | Change::Replace(leaf) => {
                debug_assert!(intent == Intent::Upsert || map.contains_key(key));
                map.insert(key.to_vec(), leaf);
            }
            Change::Remove => {
                map.remove(key);
            }
        }
        result
    }

    /// A cursor that will walk from `start` (lower bound forward, upper bound backward).
    pub(crate) fn cursor(&self, start: Bound<&[u8]>, direction: Direction) -> Cursor<'_, K> {
        Cursor { index: self, bound: start.map(<[u8]>::to_vec), direction, key: Vec::new() }
    }

    /// Fills the empty directory entry `entry` with `items`, all of whose keys belong there, in any order.
    ///
    /// Entries may be filled from several threads at once.
    ///
    /// # Errors
    /// Two of the items have the same key; the entry stays empty.
    pub(crate) fn build_entry(&self, entry: usize, items: &mut [BuildItem]) -> Result<(), DuplicateKey> {
        for item in items {
            let len = self.keys.key_len(item.leaf);
            let mut key = Vec::new();
            for index in 0..len.div_ceil(8) {
                key.extend(self.keys.key_word(item.leaf, index).to_le_bytes());
            }
            key.truncate(len);
            debug_assert_eq!(entry_of(&key), entry);
            if let Some(other) = self.map.write().insert(key, item.leaf) {
                return Err(DuplicateKey(other, item.leaf));
            }
        }
        Ok(())
    }

    /// Counts nodes and bytes.
    pub(crate) fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A place between two keys that moves in one direction.
///
/// Every key that is in the index for as long as the cursor lives is returned exactly once, in order; one that
/// comes or goes meanwhile may or may not be. The cursor holds nothing: it may live as long as the index.
pub(crate) struct Cursor<'a, K> {
    index: &'a Index<K>,
    bound: Bound<Vec<u8>>,
    direction: Direction,
    key: Vec<u8>,
}

impl<K: KeySource> Cursor<'_, K> {
    /// Moves to the next key, runs `read` on its leaf (as [`Index::get`] does) and returns the answer; `None`
    /// behind the last key.
    pub(crate) fn advance<R>(&mut self, mut read: impl FnMut(Leaf) -> R) -> Option<R> {
        let map = self.index.map.read();
        let bound = self.bound.as_ref().map(Vec::as_slice);
        let next = match self.direction {
            Direction::Forward => map.range::<[u8], _>((bound, Bound::Unbounded)).next(),
            Direction::Backward => map.range::<[u8], _>((Bound::Unbounded, bound)).next_back(),
        };
        let (key, leaf) = next?;
        self.key.clone_from(key);
        self.bound = Bound::Excluded(key.clone());
        Some(read(*leaf))
    }

    /// The key that the last [`Cursor::advance`] moved to.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}
