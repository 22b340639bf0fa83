//! Making room for a new key: a larger layout, or a new node where paths part.

use super::keys::tail_of;
use super::layouts::store;
use super::leaf::KeySource;
use super::lock::{Retry, Version};
use super::modify::Spot;
use super::node::Node;
use super::tree::{Index, Place};
use super::word::{Kind, Word};

impl<K: KeySource> Index<K> {
    /// Locks `node` with room for a child under `byte`; a full node is first replaced, in `place`, by a larger
    /// one.
    ///
    /// The replacement needs the lock of `place`, but only here: the caller's callback runs under the lock of
    /// the larger node alone, so that readers of its siblings are not held up.
    pub(super) fn make_room<'a>(
        &'a self,
        place: Place<'a>,
        node: Node<'a>,
        version: Version,
        byte: u8,
    ) -> Result<Spot<'a>, Retry> {
        if !node.is_full() {
            let locked = node.lock().try_lock(version)?;
            return Ok(Spot::Room { locked, node, byte });
        }
        let kind = Kind::for_len(node.word().kind().capacity() + 1);
        let (larger, larger_locked) = self.arena.allocate(kind, node.position(), node.tail());
        let locks =
            place.lock.try_lock(place.version).and_then(|above| match node.lock().try_lock(version) {
                Ok(locked) => Ok((above, locked)),
                Err(Retry) => {
                    above.unlock_unchanged();
                    Err(Retry)
                }
            });
        let Ok((above, locked)) = locks else {
            self.arena.free(larger, larger_locked);
            return Err(Retry);
        };
        larger.copy_from(node);
        store(place.slot, larger.word());
        self.arena.free(node, locked);
        drop(above);
        Ok(Spot::Room { locked: larger_locked, node: larger, byte })
    }

    /// Locks `place` with a new node prepared for it that holds the present child `word` under `byte` (none: the
    /// child's key ends there), for a key that parts from the child at index `at`.
    pub(super) fn split<'a>(
        &'a self,
        key: &[u8],
        place: Place<'a>,
        word: Word,
        at: usize,
        byte: Option<u8>,
    ) -> Result<Spot<'a>, Retry> {
        let (fresh, fresh_locked) = self.arena.allocate(Kind::N4, at, tail_of(key, at));
        match place.lock.try_lock(place.version) {
            Ok(locked) => {
                fresh.put(byte, word);
                Ok(Spot::Split { locked, place, fresh, fresh_locked, byte: key.get(at).copied() })
            }
            Err(Retry) => {
                self.arena.free(fresh, fresh_locked);
                Err(Retry)
            }
        }
    }
}
