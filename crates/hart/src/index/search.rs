//! Lookup: validates version after version on the way down, and compares the leaf's key once at the end.

use super::directory::entry_of;
use super::keys;
use super::layouts::load;
use super::leaf::{KeySource, Leaf};
use super::lock::Retry;
use super::modify::{Intent, LeafChange};
use super::sync::relax;
use super::tree::Index;
use super::word::{Child, NodeKind, Word};

/// Optimistic attempts before a reader takes the lock like a writer.
const OPTIMISTIC_RUNS_MAX: u32 = 32;

/// Prefetches all lines of a node whose first line determines which of them a search needs.
#[inline(always)]
fn prefetch_node(word: Word) {
    // In the largest layout the byte itself is the index.
    if word.kind() != NodeKind::N256 {
        mangrove_sys::prefetch_lines(std::ptr::without_provenance(word.address()), word.kind().bytes());
    }
}

impl<K: KeySource> Index<K> {
    /// Runs `read` on the leaf of `key`.
    ///
    /// `read` runs optimistically, perhaps several times, on a slot that may change meanwhile; this returns the
    /// result of a run during which the leaf and its content did not change. At last it may run under the leaf's
    /// lock: it must not call the index.
    #[inline]
    pub(crate) fn get<R>(&self, key: &[u8], mut read: impl FnMut(Leaf) -> R) -> Option<R> {
        match self.try_get(key, &mut read) {
            Ok(result) => result,
            Err(Retry) => self.get_again(key, read),
        }
    }

    /// A writer interfered. A function of its own, so that the usual path of `get` stays short.
    #[cold]
    fn get_again<R>(&self, key: &[u8], mut read: impl FnMut(Leaf) -> R) -> Option<R> {
        let mut rounds = 0;
        for _ in 0..OPTIMISTIC_RUNS_MAX {
            relax(&mut rounds);
            if let Ok(result) = self.try_get(key, &mut read) {
                return result;
            }
        }
        self.modify(key, Intent::Existing, |leaf| (LeafChange::Keep, leaf.map(read)))
    }

    #[inline(always)]
    fn try_get<R>(&self, key: &[u8], read: &mut impl FnMut(Leaf) -> R) -> Result<Option<R>, Retry> {
        let entry = self.directory.entry(entry_of(key));
        let mut lock = &entry.lock;
        let mut version = lock.read()?;
        let mut word = load(&entry.root);
        let leaf = loop {
            match word.child() {
                Child::Empty => {
                    lock.validate(version)?;
                    return Ok(None);
                }
                Child::Leaf(leaf) => {
                    // The whole record, while its first line is on its way.
                    leaf.prefetch_further();
                    break leaf;
                }
                Child::Node => {
                    // The first line determines which slot is needed: prefetch the slot's line together with it.
                    prefetch_node(word);
                    let node = self.node(word);
                    let node_version = node.lock().read()?;
                    let position = node.position();
                    word = match key.get(position) {
                        Some(byte) => node.find(*byte).map_or(Word::EMPTY, load),
                        None if key.len() == position => load(node.end()),
                        None => Word::EMPTY,
                    };
                    // Only now: the version of the child was read while it was still the child.
                    lock.validate(version)?;
                    lock = node.lock();
                    version = node_version;
                }
            }
        };
        // Paths are skipped on the way down: only the whole key shows that this is the leaf.
        let result = keys::equals(&self.keys, leaf, key).then(|| read(leaf));
        lock.validate(version)?;
        Ok(result)
    }
}
