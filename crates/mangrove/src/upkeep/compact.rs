//! The report of a compaction.

/// What [`crate::Map::compact`] did.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CompactReport {
    /// Keys and values that were moved.
    pub moved: u64,
    /// Bytes of the pool whose memory and disk space were given back: free segments that had any.
    pub bytes_given_back: u64,
}

impl CompactReport {
    pub(crate) fn new(compaction: mangrove_hart::Compaction) -> Self {
        Self { moved: compaction.records_moved, bytes_given_back: compaction.bytes_given_back }
    }
}
