//! What recovery needs to finish a committed batch: its redo list, and the removals that stand beside it.
//!
//! A list that fits the root page takes no space. Where it would not, the removals leave it: each goes into the header
//! of its chunk, under a number that no other batch has, and the list keeps one entry with that number. So batches
//! that only remove records need no space, however many there are, and a full map can be emptied.
//!
//! Removals of a batch that was never committed stay in the headers. Nothing refers to their number, and a later batch
//! has a greater one: recovery finds the greatest in the headers, and those of a fresh segment are zero.

use crate::concurrency::writer_gate::LaneToken;
use crate::error::twice_if_full;
use crate::format::layout::{
    CHUNK_REMOVALS, CHUNK_REMOVALS_SEAL, REDO_ENTRY_BYTES, REMOVALS_NUMBER_BITS, ROOT_BATCH_AREA,
    ROOT_BATCH_AREA_BYTES, removals_seal,
};
use crate::format::redo_list;
use crate::format::redo_list::RedoEntry;
use crate::hart::Hart;
use crate::operations::flusher::RangeFlusher;
use crate::{Error, Result};
use std::sync::atomic::Ordering;

/// The redo list of a batch, and the removals beside it.
pub(super) struct BatchRedo {
    listed: Vec<RedoEntry>,
    /// Chunk headers and the bits that the batch clears there.
    removals: Vec<(u64, u64)>,
    /// The number of these removals.
    number: u64,
}

impl BatchRedo {
    /// The gate is closed: no other batch draws a number.
    pub(super) fn new(hart: &Hart, entries: Vec<RedoEntry>) -> Self {
        let mut redo = Self { listed: entries, removals: Vec::new(), number: 0 };
        if redo.listed.len() <= hart.list_entries_max {
            return redo;
        }
        let removals = &mut redo.removals;
        redo.listed.retain(|entry| match *entry {
            RedoEntry::Bits { header, set: 0, clear } => {
                removals.push((header, clear));
                false
            }
            _ => true,
        });
        if !redo.removals.is_empty() {
            redo.number = (hart.last_removals.load(Ordering::Relaxed) + 1) % (1 << REMOVALS_NUMBER_BITS);
            hart.last_removals.store(redo.number, Ordering::Relaxed);
            redo.listed.push(RedoEntry::Removals { number: redo.number, chunks: redo.removals.len() as u64 });
        }
        redo
    }

    /// Chunk headers with the bits that the batch sets and clears there.
    pub(super) fn bits(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let listed = self.listed.iter().filter_map(|entry| match *entry {
            RedoEntry::Bits { header, set, clear } => Some((header, set, clear)),
            _ => None,
        });
        listed.chain(self.removals.iter().map(|&(header, clear)| (header, 0, clear)))
    }

    /// Writes and flushes the list and the removals. Returns where the list is and which segments it borrowed.
    /// Borrowed segments have no directory entry: only the batch word refers to the list, and recovery applies the
    /// list before it allocates anything.
    pub(super) fn write(&self, hart: &Hart, exclusive: &LaneToken<'_>) -> Result<(u64, Option<(u32, u32)>)> {
        let (area, segments) = self.area(hart, exclusive)?;
        let list = redo_list::encode(area, &self.listed);
        let region = hart.region();
        region.write(area, &list);
        let mut flusher = RangeFlusher::new(region);
        flusher.add(area, list.len() as u64);
        flusher.finish();
        for &(header, clear) in &self.removals {
            let (segment, chunk) = hart.alloc.chunk_place(header);
            let seal = removals_seal(segment, chunk, self.number, clear);
            // One line, the seal last: a crash keeps a prefix of the stores, and without the seal no removals.
            region.store(header + CHUNK_REMOVALS, clear, Ordering::Release);
            region.store(header + CHUNK_REMOVALS_SEAL, seal, Ordering::Release);
            region.flush(header + CHUNK_REMOVALS, 16);
        }
        Ok((area, segments))
    }

    /// The place for the list.
    fn area(&self, hart: &Hart, exclusive: &LaneToken<'_>) -> Result<(u64, Option<(u32, u32)>)> {
        let bytes = redo_list::list_bytes(self.listed.len());
        if bytes <= ROOT_BATCH_AREA_BYTES {
            return Ok((ROOT_BATCH_AREA, None));
        }
        if self.listed.len() as u64 > u64::from(u32::MAX) / REDO_ENTRY_BYTES {
            return Err(Error::Unsupported { what: "the batch is too large; write it in parts".into() });
        }
        let count = bytes.div_ceil(hart.space.geometry.segment_bytes()) as u32;
        // Not for moves, of which a batch has few.
        let make_room = || _ = hart.alloc.reclaim_all(exclusive);
        let first = twice_if_full(make_room, || hart.alloc.alloc_segments(count))?;
        Ok((hart.space.geometry.start(first), Some((first, count))))
    }
}
