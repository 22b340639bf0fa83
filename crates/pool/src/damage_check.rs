//! The checks by which opening finds that files were damaged, each by its name. A program of the feature
//! `left-out-checks` can leave one out, to show that its damaged pools need the check; no other program can.

/// A check that opening makes. Beside them stand the checksums of the superblock, of the log's groups and of the map's
/// leaves and values, without which nothing could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageCheck {
    /// The data file is at least as long as the superblock records.
    ImageLength,
    /// Each page of the data file has its checksum: on the file medium at every opening, on the others after a close.
    PageChecksum,
    /// The page checksums are those that the pool was closed with.
    ChecksumsDigest,
    /// The log is at least as long as the superblock records.
    LogLength,
    /// No group lies beyond the end of the log that the superblock records.
    GrownLog,
    /// The log contains the group that the superblock records.
    RecordedGroup,
    /// No group follows the tail of a pool that was closed.
    ClosedLog,
    /// No group of the log proves that the place where the log ends had been durable.
    LogHole,
    /// A region in which an object was made is not blank.
    Made,
    /// The map's high water and batch word are not blank.
    BlankRootWord,
    /// A segment below the map's high water has a directory entry.
    BlankSegment,
    /// A chunk of leaves has a header.
    BlankChunk,
    /// A slot that is in service holds a leaf or the mark of a free slot.
    BlankSlot,
    /// The superblock has not changed while a reader read beside a writer, and no checkpoint runs. (This and the next
    /// one are for readers beside a writer; damaged pools do not need them.)
    LookNumber,
    /// Where such a reader found the log to end, and a proof that it continues, it looks again.
    LookAgain,
}

impl DamageCheck {
    /// All of them, except those for readers beside a writer.
    pub const ALL: [Self; 13] = [
        Self::ImageLength,
        Self::PageChecksum,
        Self::ChecksumsDigest,
        Self::LogLength,
        Self::GrownLog,
        Self::RecordedGroup,
        Self::ClosedLog,
        Self::LogHole,
        Self::Made,
        Self::BlankRootWord,
        Self::BlankSegment,
        Self::BlankChunk,
        Self::BlankSlot,
    ];

    /// True unless the process has left the check out.
    #[must_use]
    #[inline]
    pub fn is_on(self) -> bool {
        !left_out::is(self)
    }
}

#[cfg(feature = "left-out-checks")]
pub(crate) mod left_out {
    use super::DamageCheck;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A bit for each check.
    static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

    /// Leaves `check` out of what this process opens from now on.
    pub fn leave_out(check: DamageCheck) {
        // Relaxed: the caller opens pools afterwards, by this thread or by threads that it starts.
        LEFT_OUT.fetch_or(1 << check as u64, Ordering::Relaxed);
    }

    pub(super) fn is(check: DamageCheck) -> bool {
        LEFT_OUT.load(Ordering::Relaxed) >> check as u64 & 1 == 1
    }
}

#[cfg(not(feature = "left-out-checks"))]
mod left_out {
    pub(super) const fn is(_: super::DamageCheck) -> bool {
        false
    }
}
