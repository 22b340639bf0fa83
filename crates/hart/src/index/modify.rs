//! Changing one key: find its place, lock it, link, let the caller persist, unlock.
//!
//! The caller makes the change durable while it holds the lock of the one node (or directory entry) whose slot
//! changes. So all writers of the key are in order, and no reader sees what a crash could undo (gap 12 of the paper):
//! a reader that reads the slot before the unlocking finds that the version has changed, and waits.
//!
//! The steps of the caller are ordered so that no locked instruction follows a flush, where it would wait until the
//! line is written back: first lookup and memory, then the locks, then flushes and links, and last the fence and the
//! plain stores that unlock.

use super::directory::entry_of;
use super::keys::{self, Parting, tail_of};
use super::layouts::{load, store};
use super::leaf::{KeySource, Leaf};
use super::lock::{HeldLock, NodeVersion, Retry};
use super::node::Node;
use super::sync::relax;
use super::tree::{ChildPlace, Index, PathMatch};
use super::word::{Child, NodeKind, Word};

/// What an [`Index::modify`] callback wants done with the key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafChange {
    /// Leave the index as it is (the leaf's content may have changed in place).
    Keep,
    /// Put this leaf under the key, in place of the one that was there, if any.
    Insert(Leaf),
    /// Take the leaf out.
    Remove,
}

/// Whether a modification may add a key; the index allocates nodes only for those that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The callback may return [`LeafChange::Insert`] for `None`.
    Upsert,
    /// The callback returns [`LeafChange::Keep`] for `None`.
    Existing,
}

/// One change of one key, in steps between which the index does its part.
///
/// The steps share their state in the implementor's fields, each a word or less, and take and return single words. A
/// structure that is stored in parts and copied as a whole would wait in the store buffer, and after a fence as long
/// as the fence takes.
pub(crate) trait Edit {
    /// Gets the leaf of the key before the lock is taken, perhaps several times.
    fn prepare(&mut self, leaf: Option<Leaf>);

    /// Runs once, under the lock that readers of the leaf and other writers of the key wait for. Neither the place
    /// of the key nor its leaf has changed since the last `prepare`. Must not call the index.
    fn change(&mut self, leaf: Option<Leaf>) -> LeafChange;

    /// Runs after the links have changed, still under the lock.
    fn settle(&mut self);
}

/// An [`Edit`] in one step.
struct OneStep<F, R> {
    change: Option<F>,
    result: Option<R>,
}

impl<R, F: FnOnce(Option<Leaf>) -> (LeafChange, R)> Edit for OneStep<F, R> {
    fn prepare(&mut self, _leaf: Option<Leaf>) {}

    fn change(&mut self, leaf: Option<Leaf>) -> LeafChange {
        let (change, result) = (self.change.take().expect("changes run once"))(leaf);
        self.result = Some(result);
        change
    }

    fn settle(&mut self) {}
}

impl<K: KeySource> Index<K> {
    /// Runs `change` exactly once, with the leaf of `key`, under the lock that readers of the leaf and other writers
    /// of the key wait for, and carries out what it returns. `change` must not call the index.
    ///
    /// The index allocates memory for the insertion before. With [`Intent::Existing`] and no such key the callback
    /// runs without a lock.
    pub(crate) fn modify<R>(
        &self,
        key: &[u8],
        intent: Intent,
        change: impl FnOnce(Option<Leaf>) -> (LeafChange, R),
    ) -> R {
        let mut edit = OneStep { change: Some(change), result: None };
        self.edit(key, intent, &mut edit);
        edit.result.expect("the change has run")
    }

    /// As [`Index::modify`], in the steps of `edit`.
    #[inline]
    pub(crate) fn edit(&self, key: &[u8], intent: Intent, edit: &mut impl Edit) {
        let mut rounds = 0;
        while let Err(Retry) = self.try_edit(key, intent, edit) {
            relax(&mut rounds);
        }
    }

    /// An error means that nothing but `prepare` has run.
    #[inline]
    fn try_edit(&self, key: &[u8], intent: Intent, edit: &mut impl Edit) -> Result<(), Retry> {
        let may_insert = intent == Intent::Upsert;
        let root = self.root(entry_of(key))?;
        // The place of the key as far as it is known, and the place above it, in single words.
        let (mut lock, mut version, mut slot, mut holder) = (root.lock, root.version, root.slot, root.holder);
        let (mut above_lock, mut above_version, mut above_slot, mut above_holder) =
            (root.lock, root.version, root.slot, root.holder);
        // Key bytes known to agree with the path; without an insertion the comparison with the leaf suffices.
        let mut depth = if may_insert { key.len().min(2) } else { 0 };
        loop {
            let word = load(slot);
            match word.child() {
                Child::Leaf(leaf) => {
                    let parting = keys::parting(&self.keys, leaf, key, depth);
                    lock.validate(version)?;
                    let place = ChildPlace { lock, version, slot, holder };
                    return match parting {
                        Parting::Never => {
                            let above = ChildPlace {
                                lock: above_lock,
                                version: above_version,
                                slot: above_slot,
                                holder: above_holder,
                            };
                            self.edit_found(key, place, above, leaf, edit)
                        }
                        Parting::At(at, byte) if may_insert => {
                            self.edit_split(key, place, word, at, byte, edit)
                        }
                        Parting::At(..) => {
                            edit_absent(edit);
                            Ok(())
                        }
                    };
                }
                Child::Empty if may_insert => {
                    return self.edit_vacant(key, ChildPlace { lock, version, slot, holder }, edit);
                }
                Child::Empty => {
                    lock.validate(version)?;
                    edit_absent(edit);
                    return Ok(());
                }
                Child::Node => {
                    let node = self.node(word);
                    let node_version = node.lock().read()?;
                    lock.validate(version)?;
                    let position = node.position();
                    if may_insert {
                        if let PathMatch::Parts(at, byte) =
                            self.compare_path(key, depth, node, node_version)?
                        {
                            let place = ChildPlace { lock, version, slot, holder };
                            return self.edit_split(key, place, word, at, Some(byte), edit);
                        }
                        depth = key.len().min(position + 1);
                    } else if key.len() < position {
                        edit_absent(edit);
                        return Ok(());
                    }
                    let below = match key.get(position) {
                        Some(byte) => match node.find(*byte) {
                            Some(below) => below,
                            None if may_insert => {
                                let place = ChildPlace { lock, version, slot, holder };
                                return self.edit_room(place, node, node_version, *byte, edit);
                            }
                            None => {
                                node.lock().validate(node_version)?;
                                edit_absent(edit);
                                return Ok(());
                            }
                        },
                        None => node.end(),
                    };
                    (above_lock, above_version, above_slot, above_holder) = (lock, version, slot, holder);
                    (lock, version, slot, holder) = (node.lock(), node_version, below, word);
                }
            }
        }
    }

    /// The key is there; `above` holds the word of the node that holds it.
    #[inline(always)]
    fn edit_found(
        &self,
        key: &[u8],
        place: ChildPlace<'_>,
        above: ChildPlace<'_>,
        leaf: Leaf,
        edit: &mut impl Edit,
    ) -> Result<(), Retry> {
        edit.prepare(Some(leaf));
        let locked = place.lock.try_lock(place.version)?;
        match edit.change(Some(leaf)) {
            LeafChange::Keep => {
                edit.settle();
                drop(locked);
            }
            LeafChange::Insert(new) => {
                store(place.slot, Word::leaf(new));
                edit.settle();
                drop(locked);
            }
            LeafChange::Remove => {
                let erased = self.erase(key, locked, place, above);
                edit.settle();
                self.after_erasing(key, erased);
            }
        }
        Ok(())
    }

    /// The slot is empty: an entry's root or the end of a path.
    #[inline(never)]
    fn edit_vacant(&self, key: &[u8], place: ChildPlace<'_>, edit: &mut impl Edit) -> Result<(), Retry> {
        edit.prepare(None);
        let locked = place.lock.try_lock(place.version)?;
        let word = inserted(edit.change(None));
        match word {
            Some(word) if place.holder.is_empty() => self.directory.fill(entry_of(key), word),
            Some(word) => store(place.slot, word),
            None => {}
        }
        edit.settle();
        unlock(locked, word);
        Ok(())
    }

    /// `node`, whose word is in `place`, has no child for the key.
    #[inline]
    fn edit_room<'a>(
        &'a self,
        place: ChildPlace<'a>,
        node: Node<'a>,
        version: NodeVersion,
        byte: u8,
        edit: &mut impl Edit,
    ) -> Result<(), Retry> {
        edit.prepare(None);
        let (locked, node) = if node.is_full() {
            self.make_room(place, node, version)?
        } else {
            (node.lock().try_lock(version)?, node)
        };
        let word = inserted(edit.change(None));
        if let Some(word) = word {
            node.put(Some(byte), word);
        }
        edit.settle();
        unlock(locked, word);
        Ok(())
    }

    /// The key and the child `word` in `place` differ first at index `at`, where the child's path has `byte`, or
    /// ends.
    #[inline(never)]
    fn edit_split(
        &self,
        key: &[u8],
        place: ChildPlace<'_>,
        word: Word,
        at: usize,
        byte: Option<u8>,
        edit: &mut impl Edit,
    ) -> Result<(), Retry> {
        edit.prepare(None);
        let (fresh, fresh_locked) = self.arena.allocate(NodeKind::N4, at, tail_of(key, at));
        let Ok(locked) = place.lock.try_lock(place.version) else {
            self.arena.free(fresh, fresh_locked);
            return Err(Retry);
        };
        fresh.put(byte, word);
        match inserted(edit.change(None)) {
            Some(word) => {
                fresh.put(key.get(at).copied(), word);
                store(place.slot, fresh.word());
                edit.settle();
                drop(fresh_locked);
                drop(locked);
            }
            None => {
                edit.settle();
                self.arena.free(fresh, fresh_locked);
                locked.unlock_unchanged();
            }
        }
        Ok(())
    }
}

/// The key is not there and will not be put there.
#[inline]
fn edit_absent(edit: &mut impl Edit) {
    edit.prepare(None);
    let change = edit.change(None);
    debug_assert_eq!(change, LeafChange::Keep, "nothing is there and no room was made");
    edit.settle();
}

/// Unlocks a place; readers start again only if a `word` was stored in it.
#[inline]
fn unlock(locked: HeldLock<'_>, word: Option<Word>) {
    if word.is_some() { drop(locked) } else { locked.unlock_unchanged() }
}

/// The child word that `change` adds.
#[inline]
fn inserted(change: LeafChange) -> Option<Word> {
    match change {
        LeafChange::Insert(leaf) => Some(Word::leaf(leaf)),
        LeafChange::Keep | LeafChange::Remove => {
            debug_assert_eq!(change, LeafChange::Keep, "nothing is there to remove");
            None
        }
    }
}
