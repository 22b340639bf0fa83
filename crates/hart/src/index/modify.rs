//! Changing one key: find its place, lock it, make room, let the caller persist, link.
//!
//! The caller's callback makes the change durable while it holds the lock of the one node (or directory
//! entry) whose slot will change, so that all writers of the key are in order and no reader sees what a crash
//! could undo (hole 12 of the paper). All memory is allocated and all copying done before it runs.

use super::directory::entry_of;
use super::keys::{self, Parting};
use super::layouts::store;
use super::leaf::{KeySource, Leaf};
use super::lock::{Locked, Retry};
use super::node::Node;
use super::sync::relax;
use super::tree::{Index, Path, Place, place_in};
use super::word::{Child, Word};

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

/// Where the key is or would be, locked and ready.
#[derive(Debug)]
pub(super) enum Spot<'a> {
    /// The key is there. `above` holds the word of the node that holds it.
    Found { locked: Locked<'a>, place: Place<'a>, above: Option<Place<'a>>, leaf: Leaf },
    /// An empty slot: an entry's root or the end of a path.
    Vacant { locked: Locked<'a>, place: Place<'a> },
    /// A node with room under this byte.
    Room { locked: Locked<'a>, node: Node<'a>, byte: u8 },
    /// A new node that will take the place of the child in `place`, which it already holds.
    Split {
        locked: Locked<'a>,
        place: Place<'a>,
        fresh: Node<'a>,
        fresh_locked: Locked<'a>,
        byte: Option<u8>,
    },
    /// The key is not there and will not be put there.
    Absent,
}

impl<K: KeySource> Index<K> {
    /// Runs `change` exactly once, with the leaf of `key`, under the lock that readers of the leaf and other
    /// writers of the key wait for, and then does what it says. `change` must not call the index.
    ///
    /// Memory for the insertion is allocated before; with [`Intent::Existing`] and no such key the callback
    /// runs without a lock.
    pub(crate) fn modify<R>(
        &self,
        key: &[u8],
        intent: Intent,
        change: impl FnOnce(Option<Leaf>) -> (Change, R),
    ) -> R {
        let mut rounds = 0;
        let spot = loop {
            match self.locate(key, intent) {
                Ok(spot) => break spot,
                Err(Retry) => relax(&mut rounds),
            }
        };
        match spot {
            Spot::Found { locked, place, above, leaf } => {
                let (change, result) = change(Some(leaf));
                match change {
                    Change::Keep => drop(locked),
                    Change::Insert(new) => {
                        store(place.slot, Word::leaf(new));
                        drop(locked);
                    }
                    Change::Remove => self.erase(key, locked, place, above),
                }
                result
            }
            Spot::Vacant { locked, place } => {
                let (change, result) = change(None);
                match inserted(change) {
                    Some(word) if place.node.is_none() => self.directory.fill(entry_of(key), word),
                    Some(word) => store(place.slot, word),
                    None => {
                        locked.unlock_unchanged();
                        return result;
                    }
                }
                drop(locked);
                result
            }
            Spot::Room { locked, node, byte } => {
                let (change, result) = change(None);
                match inserted(change) {
                    Some(word) => {
                        node.put(Some(byte), word);
                        drop(locked);
                    }
                    None => locked.unlock_unchanged(),
                }
                result
            }
            Spot::Split { locked, place, fresh, fresh_locked, byte } => {
                let (change, result) = change(None);
                match inserted(change) {
                    Some(word) => {
                        fresh.put(byte, word);
                        drop(fresh_locked);
                        store(place.slot, fresh.word());
                        drop(locked);
                    }
                    None => {
                        self.arena.free(fresh, fresh_locked);
                        locked.unlock_unchanged();
                    }
                }
                result
            }
            Spot::Absent => {
                let (change, result) = change(None);
                debug_assert_eq!(change, Change::Keep, "nothing is there and no room was made");
                result
            }
        }
    }

    /// Finds and locks the place of `key`.
    #[inline]
    fn locate(&self, key: &[u8], intent: Intent) -> Result<Spot<'_>, Retry> {
        let may_insert = intent == Intent::Upsert;
        let mut above = None;
        let mut place = self.root(entry_of(key))?;
        // Key bytes known to agree with the path; without an insertion the leaf alone will tell.
        let mut depth = if may_insert { key.len().min(2) } else { 0 };
        loop {
            let word = place.word();
            match word.child() {
                Child::Leaf(leaf) => {
                    let parting = keys::parting(&self.keys, leaf, key, depth);
                    place.lock.validate(place.version)?;
                    return match parting {
                        Parting::Never => {
                            let locked = place.lock.try_lock(place.version)?;
                            Ok(Spot::Found { locked, place, above, leaf })
                        }
                        Parting::At(at, byte) if may_insert => self.split(key, place, word, at, byte),
                        Parting::At(..) => Ok(Spot::Absent),
                    };
                }
                Child::Empty if may_insert => {
                    let locked = place.lock.try_lock(place.version)?;
                    return Ok(Spot::Vacant { locked, place });
                }
                Child::Empty => {
                    place.lock.validate(place.version)?;
                    return Ok(Spot::Absent);
                }
                Child::Node => {
                    let node = self.node(word);
                    let version = node.lock().read()?;
                    place.lock.validate(place.version)?;
                    let position = node.position();
                    if may_insert {
                        if let Path::Parts(at, byte) = self.compare_path(key, depth, node, version)? {
                            return self.split(key, place, word, at, Some(byte));
                        }
                        depth = key.len().min(position + 1);
                    } else if key.len() < position {
                        return Ok(Spot::Absent);
                    }
                    match (place_in(node, version, key), key.get(position)) {
                        (Some(below), _) => {
                            above = Some(place);
                            place = below;
                        }
                        (None, Some(byte)) if may_insert => {
                            return self.make_room(place, node, version, *byte);
                        }
                        (None, _) => {
                            node.lock().validate(version)?;
                            return Ok(Spot::Absent);
                        }
                    }
                }
            }
        }
    }
}

/// The child word that `change` adds.
fn inserted(change: Change) -> Option<Word> {
    match change {
        Change::Insert(leaf) => Some(Word::leaf(leaf)),
        Change::Keep | Change::Remove => {
            debug_assert_eq!(change, Change::Keep, "nothing is there to remove");
            None
        }
    }
}
