//! Making room for a new key: a larger layout.

use super::layouts::store;
use super::leaf::KeySource;
use super::lock::{Locked, Retry, Version};
use super::node::Node;
use super::tree::{Index, Place};
use super::word::Kind;

impl<K: KeySource> Index<K> {
    /// Replaces the full `node`, in `place`, by a larger one, and locks that.
    ///
    /// The replacement needs the lock of `place`, but only here: the caller's change runs under the lock of the
    /// larger node alone, so that readers of its siblings are not held up.
    #[cold]
    pub(super) fn make_room<'a>(
        &'a self,
        place: Place<'a>,
        node: Node<'a>,
        version: Version,
    ) -> Result<(Locked<'a>, Node<'a>), Retry> {
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
        Ok((larger_locked, larger))
    }
}
