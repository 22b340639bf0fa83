//! The version lock of a node: optimistic readers, one writer, and a count of the node's former lives.
//!
//! Optimistic lock coupling after Leis, Scheibner, Kemper, Neumann, "The ART of Practical Synchronization" (DaMoN
//! 2016). One deviation: nodes are not reclaimed by epochs. The memory of a node is only ever reused for a node of
//! the same kind, and its version never goes back, so that a late reader finds another version and starts again
//! (docs/decisions/index.md, "No epochs").
//!
//! The word: bit 0 locked, bit 1 obsolete (the node has left the tree), bits 2..32 count changes, bits 32..64 count
//! lives. A carry out of the changes looks like another life, which costs a reader one restart.

use super::sync::{AtomicU64, Ordering, fence, relax};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const CHANGE: u64 = 4;
const LIFE: u64 = 1 << 32;

/// The reader saw a node that was changing, had changed or was gone: it must start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retry;

/// The word of an unlocked lock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeVersion(u64);

impl NodeVersion {
    /// True if both were read in one life of the node: its depth and path are then the same.
    pub(super) fn same_life(self, other: Self) -> bool {
        self.0 / LIFE == other.0 / LIFE
    }
}

/// The version word of a node or directory entry.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct VersionLock {
    word: AtomicU64,
}

impl VersionLock {
    /// A lock that was never taken; the same as zeroed memory.
    #[allow(dead_code, reason = "nodes and entries are made of zeroed memory; loom's are not")]
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// The version to validate against later; waits while a writer holds the lock.
    #[inline]
    pub(super) fn read(&self) -> Result<NodeVersion, Retry> {
        // Acquire: partner is the Release store in `HeldLock::drop`, `retire` or `unlock_unchanged`; fields read
        // from here on are at least as new as this version.
        let word = self.word.load(Ordering::Acquire);
        if word & (LOCKED | OBSOLETE) == 0 { Ok(NodeVersion(word)) } else { self.read_slow() }
    }

    #[cold]
    fn read_slow(&self) -> Result<NodeVersion, Retry> {
        let mut rounds = 0;
        loop {
            // Acquire: as in `read`.
            let word = self.word.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return Err(Retry);
            }
            if word & LOCKED == 0 {
                return Ok(NodeVersion(word));
            }
            relax(&mut rounds);
        }
    }

    /// True if nothing protected by the lock has changed since `version` was read.
    #[inline]
    pub(super) fn is_still(&self, version: NodeVersion) -> bool {
        // Acquire fence: partner is the Release fence in `try_lock` and `revive`. If any field read before
        // this came from a later writer, the load below sees that writer's LOCKED or something newer.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == version.0
    }

    /// [`VersionLock::is_still`] for `?`.
    #[inline]
    pub(super) fn validate(&self, version: NodeVersion) -> Result<(), Retry> {
        if self.is_still(version) { Ok(()) } else { Err(Retry) }
    }

    /// Takes the lock if nothing has changed since `version` was read.
    #[inline]
    pub(super) fn try_lock(&self, version: NodeVersion) -> Result<HeldLock<'_>, Retry> {
        // Acquire: partner is the Release store of the previous holder.
        let taken =
            self.word.compare_exchange(version.0, version.0 | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return Err(Retry);
        }
        // Release fence: partner is the Acquire fence in `is_still`. A reader that sees a field which this writer
        // stores later sees LOCKED too.
        fence(Ordering::Release);
        Ok(HeldLock { lock: self })
    }

    /// Begins the next life of a node that no thread can reach: locked, with a version that no earlier life had.
    pub(super) fn revive(&self) -> HeldLock<'_> {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & LOCKED, 0);
        self.word.store(((word & !OBSOLETE) + LIFE) | LOCKED, Ordering::Relaxed);
        // Release fence: as in `try_lock`, for readers of an earlier life.
        fence(Ordering::Release);
        HeldLock { lock: self }
    }
}

/// The lock, held; dropping it publishes a new version.
#[derive(Debug)]
pub(super) struct HeldLock<'a> {
    lock: &'a VersionLock,
}

impl HeldLock<'_> {
    #[inline]
    fn leave(self, word: impl FnOnce(u64) -> u64) {
        let held = self.lock.word.load(Ordering::Relaxed);
        // Release: partner is the Acquire load in `read` and the Acquire exchange in `try_lock`.
        self.lock.word.store(word(held), Ordering::Release);
        std::mem::forget(self);
    }

    /// Unlocks for good: the node has left the tree. Every reader that meets it starts again.
    #[inline]
    pub(super) fn retire(self) {
        self.leave(|held| ((held & !LOCKED) + CHANGE) | OBSOLETE);
    }

    /// Unlocks a node in which nothing was changed, so that no reader starts again.
    #[inline]
    pub(super) fn unlock_unchanged(self) {
        self.leave(|held| held & !LOCKED);
    }
}

impl Drop for HeldLock<'_> {
    #[inline]
    fn drop(&mut self) {
        let held = self.lock.word.load(Ordering::Relaxed);
        // Release: as in `leave`.
        self.lock.word.store((held & !LOCKED) + CHANGE, Ordering::Release);
    }
}
