//! What recovery, `check` and `stat` report.

/// Damage found by recovery or `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the region.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.what)
    }
}

/// What [`crate::Hart::recover`] did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Records found.
    pub records: u64,
    /// Recovery applied a committed batch again.
    pub batch_replayed: bool,
    /// Segments that no live record needs and that became free.
    pub segments_reclaimed: u64,
    /// Damaged records that were left out (only with `salvage`).
    pub skipped: Vec<Damage>,
    /// Nanoseconds of the scan of leaves and values.
    pub scan_ns: u64,
    /// Nanoseconds of sorting and building the index.
    pub build_ns: u64,
}

/// What [`crate::Hart::compact`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Leaves and values that moved.
    pub records_moved: u64,
    /// Bytes of the region that were given back to the medium.
    pub bytes_given_back: u64,
}

/// What [`crate::Hart::check`] found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Records verified.
    pub records: u64,
    /// Bytes of values verified.
    pub value_bytes: u64,
    /// Segments read.
    pub segments: u64,
    /// What breaks the rules, at most [`CheckReport::DAMAGE_COUNT_MAX`] entries.
    pub damage: Vec<Damage>,
}

impl CheckReport {
    /// Damage beyond this count is not recorded.
    pub const DAMAGE_COUNT_MAX: usize = 1000;

    /// True when nothing breaks the rules.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

/// Figures of a map.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stat {
    /// Records.
    pub records: u64,
    /// Bytes that the region can ever hold.
    pub capacity_bytes: u64,
    /// Bytes that the medium was asked to provide so far.
    pub grown_bytes: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments of leaves.
    pub leaf_segments: u64,
    /// Segments of values by size class.
    pub value_segments: u64,
    /// Segments of extents (large values).
    pub extent_segments: u64,
    /// Segments that the medium provides and nothing uses.
    pub free_segments: u64,
    /// Leaf slots in use, or reserved by a lane for coming inserts.
    pub leaf_slots_used: u64,
    /// Bytes of leaf slots, used and free.
    pub leaf_slot_bytes: u64,
    /// Bytes of value blocks, used and free, extents included.
    pub value_block_bytes: u64,
    /// Bytes of durable state in use by segments, directory and root.
    pub durable_bytes: u64,
    /// DRAM of the allocator's descriptors.
    pub allocator_dram_bytes: u64,
    /// DRAM of the index.
    pub index_dram_bytes: u64,
    /// DRAM that the index took from the system.
    pub index_reserved_bytes: u64,
    /// Live snapshots, ranges included.
    pub snapshots: u64,
    /// DRAM of their pre-images.
    pub snapshot_bytes: u64,
}
