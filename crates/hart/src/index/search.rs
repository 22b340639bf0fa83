//! Lookup: hand over hand down the versions, the leaf's key compared once at the end.

use super::directory::{Entry, entry_of};
use super::keys;
use super::layouts::load;
use super::leaf::{KeySource, Leaf};
use super::lock::Retry;
use super::modify::{Change, Intent};
use super::sync::relax;
use super::tree::Index;
use super::word::Child;

/// Optimistic runs before a reader takes the lock like a writer.
const OPTIMISTIC_RUNS_MAX: u32 = 32;

impl<K: KeySource> Index<K> {
    /// Runs `read` on the leaf of `key`.
    ///
    /// `read` runs optimistically, perhaps several times, on a slot that may change under it; only the answer
    /// of a run during which the leaf and its content stood still is returned. In the end it may run under
    /// the leaf's lock: it must not call the index.
    #[inline]
    pub(crate) fn get<R>(&self, key: &[u8], mut read: impl FnMut(Leaf) -> R) -> Option<R> {
        let entry = self.directory.entry(entry_of(key));
        let mut rounds = 0;
        for _ in 0..OPTIMISTIC_RUNS_MAX {
            match self.try_get(entry, key, &mut read) {
                Ok(result) => return result,
                Err(Retry) => relax(&mut rounds),
            }
        }
        self.modify(key, Intent::Existing, |leaf| (Change::Keep, leaf.map(read)))
    }

    #[inline]
    fn try_get<R>(
        &self,
        entry: &Entry,
        key: &[u8],
        read: &mut impl FnMut(Leaf) -> R,
    ) -> Result<Option<R>, Retry> {
        let mut lock = &entry.lock;
        let mut version = lock.read()?;
        let mut word = load(&entry.root);
        loop {
            match word.child() {
                Child::Empty => {
                    lock.validate(version)?;
                    return Ok(None);
                }
                Child::Leaf(leaf) => {
                    // Paths are skipped on the way down: only the whole key says that this is the leaf.
                    let result = keys::equals(&self.keys, leaf, key).then(|| read(leaf));
                    lock.validate(version)?;
                    return Ok(result);
                }
                Child::Node => {
                    let node = self.node(word);
                    let node_version = node.lock().read()?;
                    let position = node.position();
                    word = match key.get(position) {
                        Some(byte) => node.find(*byte).map_or(super::word::Word::EMPTY, load),
                        None if key.len() == position => load(node.end()),
                        None => super::word::Word::EMPTY,
                    };
                    // Only now: the version of the child was read while it was still the child.
                    lock.validate(version)?;
                    lock = node.lock();
                    version = node_version;
                }
            }
        }
    }
}
