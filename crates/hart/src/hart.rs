//! The map: what it is made of, how it is made, and its small questions.

use crate::alloc::Allocator;
use crate::gate::Gate;
use crate::index::{ENTRY_COUNT, Index, entry_of};
use crate::layout::{
    FORMAT_VERSION, Geometry, MAGIC, ROOT_CRC, ROOT_DATA_START, ROOT_MAGIC, ROOT_SEGMENT_COUNT, ROOT_VERSION,
    SEGMENT_SHIFT_MAX, SEGMENT_SHIFT_MIN,
};
use crate::overlay::Overlays;
use crate::space::{Leaves, Space};
use crate::visible::{Fate, NEVER, Visible};
use crate::{Error, Locking, Options, Result, Stat, WriteMode};
use mangrove_pmem::{Lsn, Region, crc32c};
use mangrove_sys::AsymmetricBarrier;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bits of [`Hart::caution`]: the map was opened read-only.
const READ_ONLY: u8 = 1;
/// The medium failed a wait: writes are refused from now on.
const FAILED: u8 = 2;
/// The medium is to be asked before each write.
const ASK: u8 = 4;

/// A durable ordered map in a region. Shared by reference between any number of threads; it has none itself.
pub struct Hart {
    pub(crate) space: Arc<Space>,
    pub(crate) alloc: Allocator,
    pub(crate) index: Index<Leaves>,
    pub(crate) gate: Gate,
    pub(crate) visible: Visible,
    pub(crate) overlays: Overlays,
    pub(crate) threads: usize,
    /// Held shared while a batch has blocks that are in no leaf and in no list; outside of the gate.
    pub(crate) preparing: RwLock<()>,
    trees: Option<Box<[RwLock<()>]>>,
    /// What a writer has to look at first; 0 is nothing.
    caution: AtomicU8,
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
    /// `Unsupported` when the options or the region's size cannot be honoured; the medium's errors.
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
        region.grow(geometry.data_start)?;
        region.store(ROOT_VERSION, u64::from(FORMAT_VERSION) | u64::from(shift) << 32, Ordering::Release);
        region.store(ROOT_SEGMENT_COUNT, u64::from(geometry.segment_count), Ordering::Release);
        region.store(ROOT_DATA_START, geometry.data_start, Ordering::Release);
        region.store(ROOT_MAGIC, MAGIC, Ordering::Release);
        region.store(ROOT_CRC, root_crc(&region), Ordering::Release);
        // Durable-order: one line, whole or (its CRC says) not there; nothing else is written before it.
        region.flush(0, 64);
        region.fence();
        region.sync()?;
        Self::assemble(region, geometry, 0, options, AsymmetricBarrier::detect())
    }

    /// True when the region holds no map and never did: its making may have been interrupted.
    #[must_use]
    pub fn is_blank(region: &Region) -> bool {
        region.len() < crate::layout::ROOT_BYTES
            || (0..64).step_by(8).all(|at| region.word(at).load(Ordering::Relaxed) == 0)
    }

    pub(crate) fn assemble(
        region: Region,
        geometry: Geometry,
        high_water: u32,
        options: &Options,
        barrier: AsymmetricBarrier,
    ) -> Result<Self> {
        let gated = options.gate_reads.unwrap_or_else(|| region.medium().has_log());
        let caution = if options.read_only { READ_ONLY } else { 0 };
        let caution = caution | if region.medium().may_refuse() { ASK } else { 0 };
        let space = Arc::new(Space::new(region, geometry, high_water));
        let threads = match options.recovery_threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            n => n,
        };
        Ok(Self {
            alloc: Allocator::new(Arc::clone(&space), high_water, options.grow_bytes)?,
            index: Index::new(Leaves::new(Arc::clone(&space))),
            gate: Gate::new(barrier),
            visible: Visible::new(gated),
            overlays: Overlays::new(options.snapshot_bytes_max),
            threads,
            trees: (options.locking == Locking::PerTree)
                .then(|| (0..ENTRY_COUNT).map(|_| RwLock::new(())).collect()),
            preparing: RwLock::new(()),
            caution: AtomicU8::new(caution),
            space,
        })
    }

    /// The region that the map lives in.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.space.region
    }

    /// Records in the map.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.gate.records()
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

    /// Figures.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let usage = self.alloc.usage();
        let index = self.index.stats();
        let geometry = &self.space.geometry;
        let (snapshots, snapshot_bytes) = self.overlays.figures();
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

    /// Waits until the write of `keys` before `lsn` may be acknowledged; the first failure ends all writing. The caller
    /// has left the gate.
    #[inline]
    #[track_caller]
    pub(crate) fn acknowledge<'k>(
        &self,
        fate: Fate<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        lsn: Lsn,
        mode: WriteMode,
    ) -> Result<()> {
        let answer = self.wait_for(fate, keys, lsn, mode);
        if self.overlays.has_garbage() {
            self.overlays.sweep();
        }
        answer
    }

    #[inline]
    #[track_caller]
    fn wait_for<'k>(
        &self,
        fate: Fate<'_>,
        keys: impl Iterator<Item = &'k [u8]>,
        lsn: Lsn,
        mode: WriteMode,
    ) -> Result<()> {
        if mode != WriteMode::Durable {
            // What the medium has refused to take will never be durable, and nobody else would say so.
            if let Err(e) = self.check_writable() {
                fate.has_failed(keys);
                return Err(e);
            }
            fate.nobody_waits(lsn);
            return Ok(());
        }
        match self.region().wait(lsn) {
            Ok(()) => Ok(()),
            Err(e) => {
                fate.has_failed(keys);
                Err(self.medium_failed(e))
            }
        }
    }

    #[cold]
    fn medium_failed(&self, error: mangrove_pmem::Error) -> Error {
        self.caution.fetch_or(FAILED, Ordering::Relaxed);
        error.into()
    }

    /// Refuses writes that cannot be acknowledged, before they take a lock.
    ///
    /// # Errors
    /// `ReadOnly`; `Poisoned`, or what else the medium says of itself.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        let caution = self.caution.load(Ordering::Relaxed);
        if caution == 0 || (caution == ASK && !self.region().medium().refuses()) {
            return Ok(());
        }
        Err(self.refusal(caution))
    }

    #[cold]
    fn refusal(&self, caution: u8) -> Error {
        use mangrove_pmem::Error as Below;
        if caution & READ_ONLY != 0 {
            return Error::ReadOnly;
        }
        match self.region().medium().poisoned() {
            // It is not this write that met it.
            Some(first @ (Below::Io { .. } | Below::NoSpace { .. })) => {
                Below::Poisoned { first: first.to_string() }.into()
            }
            Some(first) => first.into(),
            None => Below::Poisoned { first: "a wait for durability failed".into() }.into(),
        }
    }

    /// The position that readers are to wait for, of what this thread flushed before `lsn`: one that never comes where the
    /// medium refused a part of it. (All that it took may be durable already, up to `lsn`.)
    #[inline]
    pub(crate) fn flushed(&self, lsn: Lsn) -> Lsn {
        // Whoever's flush was refused sees that the medium refuses.
        let asks = self.visible.is_gated() && self.caution.load(Ordering::Relaxed) & ASK != 0;
        if asks && self.region().medium().refuses() { NEVER } else { lsn }
    }

    /// The paper's lock of the tree of `key`, where it is chosen.
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

/// The CRC word of the root line.
pub(crate) fn root_crc(region: &Region) -> u64 {
    let mut bytes = [0; ROOT_CRC as usize];
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&region.word(index as u64 * 8).load(Ordering::Acquire).to_le_bytes());
    }
    u64::from(crc32c(0, &bytes))
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Hart>();
};
