//! The map itself: its parts, how it is created, its figures, and what every write does before and after.

use crate::alloc::SlabAllocator;
use crate::concurrency::read_gate::{LSN_NEVER, PendingWrite, ReadGate};
use crate::concurrency::writer_gate::WriterGate;
use crate::format::layout::{
    FORMAT_VERSION, Geometry, MAGIC, ROOT_BATCH, ROOT_BYTES, ROOT_CRC, ROOT_DATA_START, ROOT_DIRECTORY,
    ROOT_HIGH_WATER, ROOT_MAGIC, ROOT_SEGMENT_COUNT, ROOT_VERSION, SEGMENT_SHIFT_MAX, SEGMENT_SHIFT_MIN, Tag,
    seal,
};
use crate::format::leaf::{INLINE_BYTES_MAX, SLOT_BYTES_MAX, value_at};
use crate::format::space::{LeafKeys, MapSpace};
use crate::index::{ENTRY_COUNT, Index, entry_of};
use crate::snapshot::pre_images::SnapshotRegistry;
use crate::{Error, Locking, Options, Result, Stat, WriteMode};
use mangrove_pool::{ByteRange, Lsn, Region, crc32c};
use mangrove_sys::AsymmetricBarrier;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bits of [`Hart::write_flags`]: the map was opened read-only.
const READ_ONLY: u8 = 1;
/// A wait for durability failed: writes are refused from now on.
const FAILED: u8 = 2;
/// Each write must ask the medium first whether it still accepts writes.
const POLL_MEDIUM: u8 = 4;

/// A durable ordered map in a region. Any number of threads share it by reference; it starts none itself.
pub struct Hart {
    pub(crate) space: Arc<MapSpace>,
    pub(crate) alloc: SlabAllocator,
    pub(crate) index: Index<LeafKeys>,
    pub(crate) writer_gate: WriterGate,
    pub(crate) read_gate: ReadGate,
    pub(crate) snapshots: SnapshotRegistry,
    pub(crate) threads: usize,
    /// Number of the last batch whose removals stand in the headers of chunks.
    pub(crate) last_removals: AtomicU64,
    /// Redo lists of more entries than this have the removals in the headers of chunks.
    pub(crate) list_entries_max: usize,
    /// Records of up to so many bytes may have their value behind the key.
    slot_bytes_max: usize,
    /// A batch holds it shared while its blocks are in no leaf and in no redo list. Taken before the gate.
    pub(crate) preparing: RwLock<()>,
    /// Held by the one compaction that runs.
    pub(crate) compacting: Mutex<()>,
    /// Callers that wait for a compaction of their own.
    pub(crate) compactions_asked: AtomicU32,
    trees: Option<Box<[RwLock<()>]>>,
    /// What a writer must look at first; 0 means nothing.
    write_flags: AtomicU8,
}

impl std::fmt::Debug for Hart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hart").field("records", &self.len()).finish_non_exhaustive()
    }
}

impl Hart {
    /// Makes an empty map in a region whose bytes are all zero.
    ///
    /// # Errors
    /// `Unsupported` when the options or the region's size cannot be honoured; errors of the medium.
    pub fn create(region: Region, options: &Options) -> Result<Self> {
        let shift = options.segment_shift;
        if !(SEGMENT_SHIFT_MIN..=SEGMENT_SHIFT_MAX).contains(&shift) {
            return Err(Error::Unsupported {
                what: format!(
                    "a segment of 2^{shift} bytes is not possible; choose 2^{SEGMENT_SHIFT_MIN} to 2^{SEGMENT_SHIFT_MAX}"
                ),
            });
        }
        if options.read_only {
            return Err(Error::ReadOnly);
        }
        let Some(geometry) = Geometry::of_region(region.len(), shift) else {
            return Err(Error::Unsupported {
                what: format!(
                    "{} bytes hold no map with segments of 2^{shift} bytes; give it more",
                    region.len()
                ),
            });
        };
        // The directory gets space as it is used.
        region.provide(ByteRange { offset: 0, len: ROOT_BYTES })?;
        for (at, tag) in
            [(ROOT_HIGH_WATER, Tag::HighWater), (ROOT_BATCH, Tag::Batch), (ROOT_DIRECTORY, Tag::Place)]
        {
            region.store(at, seal(tag, 0), Ordering::Release);
            region.flush(at, 8);
        }
        // Durable-order: these words before the line that makes recovery read them; zero would be damage.
        region.fence();
        region.store(ROOT_VERSION, u64::from(FORMAT_VERSION) | u64::from(shift) << 32, Ordering::Release);
        region.store(ROOT_SEGMENT_COUNT, u64::from(geometry.segment_count), Ordering::Release);
        region.store(ROOT_DATA_START, geometry.data_start, Ordering::Release);
        region.store(ROOT_MAGIC, MAGIC, Ordering::Release);
        region.store(ROOT_CRC, root_crc(&region, FORMAT_VERSION), Ordering::Release);
        // Durable-order: one line, which is whole or fails its CRC after a crash.
        region.flush(0, 64);
        region.fence();
        region.sync()?;
        Self::assemble(region, geometry, 0, options, AsymmetricBarrier::detect())
    }

    /// True when the creation of a map in the region was interrupted before its end: the checksum of the root line is
    /// stored last.
    #[must_use]
    pub fn is_unfinished(region: &Region) -> bool {
        Self::is_blank(region) || region.word(ROOT_CRC).load(Ordering::Relaxed) == 0
    }

    /// True when the region holds no map and never did: the creation of a map may have been interrupted.
    #[must_use]
    pub fn is_blank(region: &Region) -> bool {
        region.len() < crate::format::layout::ROOT_BYTES
            || (0..64).step_by(8).all(|at| region.word(at).load(Ordering::Relaxed) == 0)
    }

    /// Runs `work` while no write is under way.
    pub fn without_writers<T>(&self, work: impl FnOnce() -> T) -> T {
        let _exclusive = self.writer_gate.close();
        work()
    }

    pub(crate) fn assemble(
        region: Region,
        geometry: Geometry,
        high_water: u32,
        options: &Options,
        barrier: AsymmetricBarrier,
    ) -> Result<Self> {
        let gated = options.gate_reads.unwrap_or_else(|| region.medium().capabilities().has_log);
        let flags = if options.read_only { READ_ONLY } else { 0 };
        let flags = flags | if region.medium().capabilities().may_refuse { POLL_MEDIUM } else { 0 };
        let space = Arc::new(MapSpace::new(region, geometry, high_water));
        let threads = match options.recovery_threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            n => n,
        };
        Ok(Self {
            alloc: SlabAllocator::new(Arc::clone(&space), high_water, options)?,
            index: Index::new(LeafKeys::new(Arc::clone(&space))),
            writer_gate: WriterGate::new(barrier),
            read_gate: ReadGate::new(gated),
            snapshots: SnapshotRegistry::new(options.snapshot_bytes_max),
            threads,
            trees: (options.locking == Locking::PerTree)
                .then(|| (0..ENTRY_COUNT).map(|_| RwLock::new(())).collect()),
            last_removals: AtomicU64::new(0),
            list_entries_max: options.list_entries_max,
            slot_bytes_max: options.slot_bytes_max.min(SLOT_BYTES_MAX),
            preparing: RwLock::new(()),
            compacting: Mutex::new(()),
            compactions_asked: AtomicU32::new(0),
            write_flags: AtomicU8::new(flags),
            space,
        })
    }

    /// The region that the map lies in.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.space.region
    }

    /// True if a value of this length lies behind its key, rather than in the leaf's word or in a block.
    #[inline]
    pub(crate) fn fits_slot(&self, key_len: usize, value_len: usize) -> bool {
        value_len > INLINE_BYTES_MAX && value_at(key_len) + value_len <= self.slot_bytes_max
    }

    /// Records in the map. On a medium with a log this returns when what it counted is durable.
    ///
    /// # Errors
    /// The medium failed: what was counted may never become durable.
    pub fn count(&self) -> Result<u64> {
        let records = self.len();
        self.wait_for_all()?;
        Ok(records)
    }

    /// Waits until a crash undoes no write that took effect before this call.
    ///
    /// # Errors
    /// The medium failed: some may be undone.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        self.read_gate.wait_all_durable(self.region(), |_| true)
    }

    /// Records in the map, whether or not a crash could still undo them, so a caller must not see the number (see
    /// [`Hart::count`]).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.writer_gate.records()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything that took effect before this call is durable.
    ///
    /// # Errors
    /// The medium failed: some of it may not be.
    pub fn sync(&self) -> Result<()> {
        self.region().sync().map_err(|e| self.medium_failed(e))
    }

    /// Figures of the map.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let usage = self.alloc.usage();
        let index = self.index.stats();
        let geometry = &self.space.geometry;
        let (snapshots, snapshot_bytes) = self.snapshots.figures();
        let segment_bytes = geometry.segment_bytes();
        let segments = usage.leaf_segments + usage.value_segments + usage.extent_segments;
        Stat {
            records: self.len(),
            capacity_bytes: self.region().len(),
            grown_bytes: self.space.usable_offset(),
            segment_bytes,
            leaf_segments: usage.leaf_segments,
            value_segments: usage.value_segments,
            extent_segments: usage.extent_segments,
            free_segments: usage.free_segments,
            leaf_slots_used: usage.leaf_slots - usage.leaf_slots_free,
            leaf_slot_bytes: usage.leaf_segments * segment_bytes,
            value_block_bytes: (usage.value_segments + usage.extent_segments) * segment_bytes,
            durable_bytes: geometry.data_start + segments * segment_bytes,
            allocator_dram_bytes: usage.dram_bytes,
            index_dram_bytes: index.bytes_used,
            index_reserved_bytes: index.bytes_reserved,
            snapshots,
            snapshot_bytes,
        }
    }

    /// Waits until the write of `keys` before `lsn` may be acknowledged. The first failure ends all writing. The
    /// caller has left the gate.
    #[inline]
    #[track_caller]
    pub(crate) fn acknowledge<'k>(
        &self,
        pending: PendingWrite<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        lsn: Lsn,
        mode: WriteMode,
    ) -> Result<()> {
        let answer = self.wait_for(pending, keys, lsn, mode);
        if self.snapshots.has_garbage() {
            self.snapshots.sweep();
        }
        answer
    }

    #[inline]
    #[track_caller]
    fn wait_for<'k>(
        &self,
        pending: PendingWrite<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        lsn: Lsn,
        mode: WriteMode,
    ) -> Result<()> {
        if mode != WriteMode::Durable {
            // What the medium refused to take will never be durable, and no later call of this writer would report
            // it.
            if let Err(e) = self.check_writable() {
                pending.record_failure(keys);
                return Err(e);
            }
            pending.leave_unawaited(lsn);
            self.region().medium().leave_unawaited();
            // A medium with a file of recent writes may have failed at this one.
            return self.check_writable();
        }
        match self.region().wait(lsn) {
            Ok(()) => Ok(()),
            Err(e) => {
                pending.record_failure(keys);
                Err(self.medium_failed(e))
            }
        }
    }

    #[cold]
    fn medium_failed(&self, error: mangrove_pool::Error) -> Error {
        self.write_flags.fetch_or(FAILED, Ordering::Relaxed);
        let is_read_only = matches!(error, mangrove_pool::Error::ReadOnly { .. });
        let error = Error::from(error);
        if error.is_full() || is_read_only {
            // A write that gets such an error has changed nothing; one without space is tried again.
            return mangrove_pool::Error::Poisoned { first: error.to_string() }.into();
        }
        error
    }

    /// Refuses a write that could not be acknowledged, before it takes a lock.
    ///
    /// # Errors
    /// `ReadOnly`; `Poisoned`, or another error that the medium reports.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        let flags = self.write_flags.load(Ordering::Relaxed);
        if flags == 0 || (flags == POLL_MEDIUM && !self.region().medium().refuses()) {
            return Ok(());
        }
        Err(self.refusal(flags))
    }

    #[cold]
    fn refusal(&self, flags: u8) -> Error {
        use mangrove_pool::Error as Below;
        if flags & READ_ONLY != 0 {
            return Error::ReadOnly;
        }
        match self.region().medium().poisoned() {
            // An earlier write met this error, not the present one, which may have taken effect by now.
            Some(first) if is_of_one_write(&first) => Below::Poisoned { first: first.to_string() }.into(),
            Some(first) => first.into(),
            None => Below::Poisoned { first: "a wait for durability failed".into() }.into(),
        }
    }

    /// The position that readers must wait for, where this thread flushed its write before `lsn`. It is [`LSN_NEVER`]
    /// when the medium refused a part of the write. (Everything that it took up to `lsn` may be durable already.)
    #[inline]
    pub(crate) fn flushed(&self, lsn: Lsn) -> Lsn {
        // A thread whose flush the medium refused sees here that it refuses.
        let asks = self.read_gate.is_gated() && self.write_flags.load(Ordering::Relaxed) & POLL_MEDIUM != 0;
        if asks && self.region().medium().refuses() { LSN_NEVER } else { lsn }
    }

    /// The paper's lock of the tree of `key`, with [`Locking::PerTree`].
    #[inline]
    pub(crate) fn lock_tree(&self, key: &[u8]) -> Option<RwLockWriteGuard<'_, ()>> {
        self.trees.as_ref().map(|trees| trees[entry_of(key)].write())
    }

    /// As [`Hart::lock_tree`], for readers.
    #[inline]
    pub(crate) fn share_tree(&self, key: &[u8]) -> Option<RwLockReadGuard<'_, ()>> {
        self.trees.as_ref().map(|trees| trees[entry_of(key)].read())
    }
}

/// Whether the error is about the write that met it.
fn is_of_one_write(error: &mangrove_pool::Error) -> bool {
    use mangrove_pool::Error as Below;
    let is_full = matches!(error, Below::NoSpace { .. } | Below::FileLimit { .. });
    is_full || matches!(error, Below::Io { .. } | Below::ReadOnly { .. })
}

/// The CRC word of the root line with this version in it.
pub(crate) fn root_crc(region: &Region, version: u32) -> u64 {
    let mut bytes = [0; ROOT_CRC as usize];
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&region.word(index as u64 * 8).load(Ordering::Acquire).to_le_bytes());
    }
    bytes[ROOT_VERSION as usize..][..4].copy_from_slice(&version.to_le_bytes());
    u64::from(crc32c(0, &bytes))
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Hart>();
};
