//! The index itself: its parts, and how a place in it is described.

use std::sync::atomic::AtomicU64;

use super::arena::NodeArena;
use super::directory::Directory;
use super::keys::{self, Parting, tail_of};
use super::layouts::load;
use super::leaf::{KeySource, Leaf};
use super::lock::{NodeVersion, Retry, VersionLock};
use super::node::Node;
use super::word::{Child, Word};

/// The ordered index of all live leaves.
///
/// Invariants:
/// 1. Every key below a node agrees in all bytes before the node's position; a node's position is larger than that of
///    every node above it.
/// 2. A node's position and tail never change while it is in the tree: a path is split above it or collapsed above it
///    by exchanging one child word.
/// 3. A child word, and the content of the leaf that it names, change only under the lock of the node (or directory
///    entry) that holds the word.
/// 4. A node has two children or more, except between a removal and the tidying after it.
pub(crate) struct Index<K> {
    pub(super) keys: K,
    pub(super) directory: Directory,
    pub(super) arena: NodeArena,
}

/// A child slot, with the lock that guards it and the version under which it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildPlace<'a> {
    pub(super) lock: &'a VersionLock,
    pub(super) version: NodeVersion,
    pub(super) slot: &'a AtomicU64,
    /// The word of the node that holds the slot, empty for a directory entry.
    pub(super) holder: Word,
}

/// How a key relates to the path that leads to a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathMatch {
    /// The key goes through the node's position.
    Matches,
    /// They differ before it: at this index the path has this byte, and the key another or none.
    Parts(usize, u8),
}

impl<K: KeySource> Index<K> {
    /// An empty index over the leaves that `keys` can read.
    pub(crate) fn new(keys: K) -> Self {
        Self { keys, directory: Directory::new(), arena: NodeArena::default() }
    }

    /// The node that a word from a child slot names.
    #[inline]
    pub(super) fn node(&self, word: Word) -> Node<'_> {
        // SAFETY: child slots of this index hold only words made by its arena.
        unsafe { Node::new(word) }
    }

    /// The root of a directory entry as a place.
    #[inline]
    pub(super) fn root(&self, entry: usize) -> Result<ChildPlace<'_>, Retry> {
        let entry = self.directory.entry(entry);
        let version = entry.lock.read()?;
        Ok(ChildPlace { lock: &entry.lock, version, slot: &entry.root, holder: Word::EMPTY })
    }

    /// Compares `key`, known to agree in the first `depth` bytes, with the path down to `node`.
    ///
    /// `version` is the node's, read before.
    #[inline]
    pub(super) fn compare_path(
        &self,
        key: &[u8],
        depth: usize,
        node: Node<'_>,
        version: NodeVersion,
    ) -> Result<PathMatch, Retry> {
        let position = node.position();
        let skipped = position.checked_sub(depth).ok_or(Retry)?;
        if skipped == 0 {
            return Ok(PathMatch::Matches);
        }
        if skipped > 8 {
            return self.compare_long_path(key, depth, node, version);
        }
        let tail = node.tail();
        node.lock().validate(version)?;
        let reach = position.min(key.len());
        if reach == position {
            let differing = (tail ^ tail_of(key, position)) >> (8 * (8 - skipped));
            if differing == 0 {
                return Ok(PathMatch::Matches);
            }
            let at = depth + (differing.trailing_zeros() / 8) as usize;
            return Ok(PathMatch::Parts(at, tail_byte(tail, position, at)));
        }
        let at = (depth..reach).find(|at| key[*at] != tail_byte(tail, position, *at)).unwrap_or(reach);
        Ok(PathMatch::Parts(at, tail_byte(tail, position, at)))
    }

    /// The path is longer than the tail in the node; any leaf below has all of it.
    #[cold]
    fn compare_long_path(
        &self,
        key: &[u8],
        depth: usize,
        node: Node<'_>,
        version: NodeVersion,
    ) -> Result<PathMatch, Retry> {
        let (leaf, lock, version) = self.any_leaf(node, version)?;
        let parting = keys::parting(&self.keys, leaf, key, depth);
        lock.validate(version)?;
        match parting {
            Parting::At(at, Some(byte)) if at < node.position() => Ok(PathMatch::Parts(at, byte)),
            _ => Ok(PathMatch::Matches),
        }
    }

    /// Some leaf below `node`, with the lock that guards it and its version.
    fn any_leaf<'a>(
        &'a self,
        node: Node<'a>,
        version: NodeVersion,
    ) -> Result<(Leaf, &'a VersionLock, NodeVersion), Retry> {
        let (mut node, mut version) = (node, version);
        loop {
            let word = node.first();
            match word.child() {
                Child::Leaf(leaf) => {
                    node.lock().validate(version)?;
                    return Ok((leaf, node.lock(), version));
                }
                Child::Node => {
                    let below = self.node(word);
                    let below_version = below.lock().read()?;
                    node.lock().validate(version)?;
                    (node, version) = (below, below_version);
                }
                // The node has lost its last child, and is not tidied yet.
                Child::Empty => return Err(Retry),
            }
        }
    }
}

#[inline]
fn tail_byte(tail: u64, position: usize, at: usize) -> u8 {
    (tail >> (8 * (at + 8 - position))) as u8
}

/// The place of the child that `key` leads to from `node`.
#[inline(always)]
pub(super) fn place_in<'a>(node: Node<'a>, version: NodeVersion, key: &[u8]) -> Option<ChildPlace<'a>> {
    let slot = match key.get(node.position()) {
        Some(byte) => node.find(*byte)?,
        None => node.end(),
    };
    Some(ChildPlace { lock: node.lock(), version, slot, holder: node.word() })
}

impl ChildPlace<'_> {
    /// What the slot holds; to be validated.
    #[inline]
    pub(super) fn word(&self) -> Word {
        load(self.slot)
    }
}
