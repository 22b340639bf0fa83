//! Changing one key: find its place, lock it, link, let the caller persist, unlock.
//!
//! The caller makes the change durable while the lock of the one node (or directory entry) whose slot changes is
//! held, so that all writers of the key are in order and no reader sees what a crash could undo (hole 12 of the
//! paper): who reads the slot before the unlocking finds the version gone, and waits.
//!
//! The steps of the caller are spread so that no locked instruction comes behind a flush, where it would have to
//! wait until the line is written back: lookup and memory first, then the locks, then flushes and links, in the
//! end the fence and plain stores that unlock.

use super::directory::entry_of;
use super::keys::{self, Parting, tail_of};
use super::layouts::{load, store};
use super::leaf::{KeySource, Leaf};
use super::lock::{Locked, Retry, Version};
use super::node::Node;
use super::sync::relax;
use super::tree::{Index, Path, Place};
use super::word::{Child, Kind, Word};

/// What a [`Index::modify`] callback wants done with the key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Leave the index as it is (the leaf's content may have changed in place).
    Keep,
    /// Put this leaf under the key, in place of the one that was there, if any.
    Insert(Leaf),
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

/// One change of one key, in steps between which the index does its part.
///
/// The steps share what they know in the implementor's fields, each a word or less, and are given and give back
/// single words: a structure that is stored in parts and copied as a whole has to wait in the store buffer, and behind
/// a fence that is as long as the fence.
pub(crate) trait Edit {
    /// Sees the leaf of the key before the lock is taken, perhaps several times.
    fn prepare(&mut self, leaf: Option<Leaf>);

    /// Runs once, under the lock that readers of the leaf and other writers of the key wait for. Neither the place
    /// of the key nor its leaf has changed since the last `prepare`. Must not call the index.
    fn change(&mut self, leaf: Option<Leaf>) -> Change;

    /// Runs after the links have changed, under the lock still.
    fn settle(&mut self);
}

/// An [`Edit`] of one step.
struct OneStep<F, R> {
    change: Option<F>,
    result: Option<R>,
}

impl<R, F: FnOnce(Option<Leaf>) -> (Change, R)> Edit for OneStep<F, R> {
    fn prepare(&mut self, _leaf: Option<Leaf>) {}

    fn change(&mut self, leaf: Option<Leaf>) -> Change {
        let (change, result) = (self.change.take().expect("changes run once"))(leaf);
        self.result = Some(result);
        change
    }

    fn settle(&mut self) {}
}

impl<K: KeySource> Index<K> {
    /// Runs `change` exactly once, with the leaf of `key`, under the lock that readers of the leaf and other
    /// writers of the key wait for, and does what it says. `change` must not call the index.
    ///
    /// Memory for the insertion is allocated before; with [`Intent::Existing`] and no such key the callback
    /// runs without a lock.
    pub(crate) fn modify<R>(
        &self,
        key: &[u8],
        intent: Intent,
        change: impl FnOnce(Option<Leaf>) -> (Change, R),
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
        // Key bytes known to agree with the path; without an insertion the leaf alone will tell.
        let mut depth = if may_insert { key.len().min(2) } else { 0 };
        loop {
            let word = load(slot);
            match word.child() {
                Child::Leaf(leaf) => {
                    let parting = keys::parting(&self.keys, leaf, key, depth);
                    lock.validate(version)?;
                    let place = Place { lock, version, slot, holder };
                    return match parting {
                        Parting::Never => {
                            let above = Place {
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
                    return self.edit_vacant(key, Place { lock, version, slot, holder }, edit);
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
                        if let Path::Parts(at, byte) = self.compare_path(key, depth, node, node_version)? {
                            let place = Place { lock, version, slot, holder };
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
                                let place = Place { lock, version, slot, holder };
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

    /// The key is there; `above` names the node that holds it.
    #[inline(always)]
    fn edit_found(
        &self,
        key: &[u8],
        place: Place<'_>,
        above: Place<'_>,
        leaf: Leaf,
        edit: &mut impl Edit,
    ) -> Result<(), Retry> {
        edit.prepare(Some(leaf));
        let locked = place.lock.try_lock(place.version)?;
        match edit.change(Some(leaf)) {
            Change::Keep => {
                edit.settle();
                drop(locked);
            }
            Change::Insert(new) => {
                store(place.slot, Word::leaf(new));
                edit.settle();
                drop(locked);
            }
            Change::Remove => {
                let erased = self.erase(key, locked, place, above);
                edit.settle();
                self.after_erasing(key, erased);
            }
        }
        Ok(())
    }

    /// The slot is empty: an entry's root or the end of a path.
    #[inline(never)]
    fn edit_vacant(&self, key: &[u8], place: Place<'_>, edit: &mut impl Edit) -> Result<(), Retry> {
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

    /// The key's child in `node` is missing; `place` names the node.
    #[inline]
    fn edit_room<'a>(
        &'a self,
        place: Place<'a>,
        node: Node<'a>,
        version: Version,
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

    /// The key parts from the child `word` in `place` at index `at`, where that has `byte`, or ends.
    #[inline(never)]
    fn edit_split(
        &self,
        key: &[u8],
        place: Place<'_>,
        word: Word,
        at: usize,
        byte: Option<u8>,
        edit: &mut impl Edit,
    ) -> Result<(), Retry> {
        edit.prepare(None);
        let (fresh, fresh_locked) = self.arena.allocate(Kind::N4, at, tail_of(key, at));
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
    debug_assert_eq!(change, Change::Keep, "nothing is there and no room was made");
    edit.settle();
}

/// Unlocks a place into which `word` was put, if any.
#[inline]
fn unlock(locked: Locked<'_>, word: Option<Word>) {
    if word.is_some() { drop(locked) } else { locked.unlock_unchanged() }
}

/// The child word that `change` adds.
#[inline]
fn inserted(change: Change) -> Option<Word> {
    match change {
        Change::Insert(leaf) => Some(Word::leaf(leaf)),
        Change::Keep | Change::Remove => {
            debug_assert_eq!(change, Change::Keep, "nothing is there to remove");
            None
        }
    }
}
