//! Makes space for a new key by a larger layout.

use super::layouts::store;
use super::leaf::KeySource;
use super::lock::{HeldLock, NodeVersion, Retry};
use super::node::Node;
use super::tree::{ChildPlace, Index};
use super::word::NodeKind;

impl<K: KeySource> Index<K> {
    /// Replaces the full `node`, in `place`, by a larger one, and locks that.
    ///
    /// The replacement needs the lock of `place`, but only here: the caller's change runs under the lock of the
    /// larger node alone, so that readers of its siblings do not wait.
    #[cold]
    pub(super) fn make_room<'a>(
        &'a self,
        place: ChildPlace<'a>,
        node: Node<'a>,
        version: NodeVersion,
    ) -> Result<(HeldLock<'a>, Node<'a>), Retry> {
        let kind = NodeKind::for_len(node.word().kind().capacity() + 1);
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
