//! Removing a key, and tidying afterwards: smaller layouts, collapsed paths, empty nodes unlinked.

use super::directory::entry_of;
use super::layouts::{load, store};
use super::leaf::KeySource;
use super::lock::{HeldLock, Retry};
use super::node::Node;
use super::sync::relax;
use super::tree::{ChildPlace, Index, place_in};
use super::word::{Child, NodeKind};

/// The lock that keeps readers out after a removal, and whether nodes remain to be tidied.
#[derive(Debug)]
#[must_use]
pub(super) struct Erased<'a> {
    locked: HeldLock<'a>,
    untidy: bool,
}

impl<K: KeySource> Index<K> {
    /// Removes the leaf of `key` from `place`, whose lock is held; `above` holds the word of its node. Readers of the
    /// key wait until [`Index::after_erasing`].
    #[inline]
    pub(super) fn erase<'a>(
        &'a self,
        key: &[u8],
        locked: HeldLock<'a>,
        place: ChildPlace<'a>,
        above: ChildPlace<'a>,
    ) -> Erased<'a> {
        if place.holder.is_empty() {
            self.directory.empty(entry_of(key));
            return Erased { locked, untidy: false };
        }
        let node = self.node(place.holder);
        node.take(key.get(node.position()).copied());
        if !node.is_underfull() {
            return Erased { locked, untidy: false };
        }
        // Locks are taken downwards; upwards a thread may only try. If that fails, the node stays as it is (which is
        // sound, only wasteful), and `tidy` finds it again from the root.
        match above.lock.try_lock(above.version) {
            Ok(above_locked) => {
                let untidy = self.tidy_node(key, above, node, locked);
                Erased { locked: above_locked, untidy }
            }
            Err(Retry) => Erased { locked, untidy: true },
        }
    }

    /// Admits readers again, and tidies what [`Index::erase`] could not.
    #[inline]
    pub(super) fn after_erasing(&self, key: &[u8], erased: Erased<'_>) {
        drop(erased.locked);
        if erased.untidy {
            self.tidy(key);
        }
    }

    /// Replaces `node`, whose word is in `above`, by what is left of it; both are locked. True if that may have left
    /// the node above underfull.
    fn tidy_node(&self, key: &[u8], above: ChildPlace<'_>, node: Node<'_>, locked: HeldLock<'_>) -> bool {
        debug_assert_eq!(load(above.slot), node.word());
        let mut more = false;
        match (node.total(), above.holder.is_empty()) {
            (0, true) => self.directory.empty(entry_of(key)),
            (0, false) => {
                let parent = self.node(above.holder);
                parent.take(key.get(parent.position()).copied());
                more = parent.is_underfull();
            }
            // A path collapses: the child knows its own position, so nothing in it changes.
            (1, _) => store(above.slot, node.first()),
            _ => {
                let kind = NodeKind::for_len(node.len());
                let (smaller, smaller_locked) = self.arena.allocate(kind, node.position(), node.tail());
                smaller.copy_from(node);
                drop(smaller_locked);
                store(above.slot, smaller.word());
            }
        }
        self.arena.free(node, locked);
        more
    }

    /// Tidies every underfull node on the path of `key`.
    #[cold]
    fn tidy(&self, key: &[u8]) {
        let mut rounds = 0;
        loop {
            match self.try_tidy(key) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Retry) => relax(&mut rounds),
            }
        }
    }

    /// Tidies the first underfull node on the path of `key`; false if there is none.
    fn try_tidy(&self, key: &[u8]) -> Result<bool, Retry> {
        let mut place = self.root(entry_of(key))?;
        loop {
            let word = place.word();
            let Child::Node = word.child() else {
                place.lock.validate(place.version)?;
                return Ok(false);
            };
            let node = self.node(word);
            let version = node.lock().read()?;
            place.lock.validate(place.version)?;
            if node.is_underfull() {
                let above_locked = place.lock.try_lock(place.version)?;
                match node.lock().try_lock(version) {
                    Ok(locked) => {
                        self.tidy_node(key, place, node, locked);
                        drop(above_locked);
                        return Ok(true);
                    }
                    Err(Retry) => {
                        above_locked.unlock_unchanged();
                        return Err(Retry);
                    }
                }
            }
            match place_in(node, version, key) {
                Some(below) if key.len() >= node.position() => place = below,
                _ => {
                    node.lock().validate(version)?;
                    return Ok(false);
                }
            }
        }
    }
}
