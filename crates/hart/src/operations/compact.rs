//! Compaction: moves records together, so that whole segments become free, and gives the space of free segments back.
//!
//! Records move in batches, each committed as any batch is (`batch_commit.rs`): after a crash a record is at its old
//! place or at its new one. A leaf that moves is written to a new slot, whose bit the batch sets while it clears the
//! old one's. A value that moves is written to a new block, and its leaf's words change as for an update.
//!
//! The gate is closed for a batch at a time, so writers wait for a bounded number of records, not for all. Where the
//! medium or the region has no space left for a record, compaction ends, also for a record that a writer writes; it
//! needs no space of its own, since it moves records only into slots that are free already.
//!
//! No thread waits until a move is durable: a reader's record is as durable as it was before, and the compaction waits
//! once, at its end.

use crate::concurrency::writer_gate::LaneToken;
use crate::error::twice_if_full;
use crate::format::leaf::{LeafValue, key_crc};
use crate::hart::Hart;
use crate::index::Direction;
use crate::operations::batch_commit::{BatchStep, Effect};
use crate::operations::flusher::RangeFlusher;
use crate::operations::read::Read;
use crate::{Compaction, Result};
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How a compaction shares the map with writers.
pub(super) struct Pace<'a> {
    /// Records that one batch moves. Each takes up to three entries of the redo list, and those of fifty fit the root
    /// page.
    pub(super) moves_max: usize,
    /// Records that one batch looks at.
    pub(super) seen_max: usize,
    /// Called after a batch that took so long, while writers run; false ends the compaction.
    pub(super) between: &'a dyn Fn(Duration) -> bool,
}

/// One batch after the other.
const AT_ONCE: Pace<'_> = Pace { moves_max: 50, seen_max: 2000, between: &|_| true };

impl Hart {
    /// Moves records out of sparse segments and gives the space of free segments back to the medium: memory at once,
    /// the data file by the checkpoint with which it ends. Readers and writers go on meanwhile; writers wait for some
    /// fifty moves at a time. Takes time for each record of the map, and moves only those in segments that become free.
    ///
    /// # Errors
    /// `ReadOnly`; those of the medium, which then fails writes, too.
    pub fn compact(&self) -> Result<Compaction> {
        // Before the lock, which a child of fork may find taken for ever.
        self.check_writable()?;
        // Relaxed: it only has a compaction in the background end soon.
        self.compactions_asked.fetch_add(1, Ordering::Relaxed);
        let _alone = self.compacting.lock();
        self.compactions_asked.fetch_sub(1, Ordering::Relaxed);
        self.compact_alone(&AT_ONCE)
    }

    /// As [`Hart::compact`], for the thread that holds `compacting`. It stops between two batches if `pace` says so;
    /// what is free then is given back.
    pub(super) fn compact_alone(&self, pace: &Pace<'_>) -> Result<Compaction> {
        self.check_writable()?;
        self.alloc.begin_moving(&self.writer_gate);
        let moved = self.move_all(pace);
        // What follows empties segments outside the gate, and `check` reads what the allocator has of each.
        let emptying = self.preparing.read();
        self.alloc.end_moving();
        self.alloc.reclaim_idle(&self.writer_gate.close().lane());
        let records_moved = moved?;
        let bytes_given_back = self.alloc.pool.give_back(&self.space)?;
        drop(emptying);
        self.sync()?;
        self.region().medium().checkpoint()?;
        Ok(Compaction { records_moved, bytes_given_back })
    }

    fn move_all(&self, pace: &Pace<'_>) -> Result<u64> {
        let (mut moved, mut after) = (0, None);
        while self.alloc.moving().left > moved {
            self.check_writable()?;
            let begun = Instant::now();
            let (count, next) = self.move_some(after.as_deref(), pace)?;
            moved += count;
            match next {
                Some(_) if (pace.between)(begun.elapsed()) => after = next,
                _ => break,
            }
        }
        Ok(moved)
    }

    /// Moves some records behind `after`. Returns how many slots became free, and the last key that it looked at; none
    /// where there is nothing left to do.
    fn move_some(&self, after: Option<&[u8]>, pace: &Pace<'_>) -> Result<(u64, Option<Vec<u8>>)> {
        let exclusive = self.writer_gate.close();
        let lane = &exclusive.lane();
        let (mut keys, mut found, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let mut flusher = RangeFlusher::new(self.region());
        let mut cursor =
            self.index.cursor(after.map_or(Bound::Unbounded, Bound::Excluded), Direction::Forward);
        let (mut seen, mut next) = (0, None);
        while let Some(leaf) = cursor.advance(|leaf| leaf) {
            seen += 1;
            let slot = self.space.offset(leaf);
            match self.plan_move(lane, cursor.key(), slot, &mut value, &mut flusher) {
                Ok(None) => {}
                Ok(Some(effect)) => {
                    let from = keys.len();
                    keys.extend_from_slice(cursor.key());
                    found.push((from..keys.len(), effect));
                }
                // What has been moved so far is worth keeping.
                Err(e) if e.is_full() => break,
                Err(e) => {
                    flusher.finish();
                    self.free_moves(lane, &found);
                    return Err(e);
                }
            }
            if found.len() == pace.moves_max || seen == pace.seen_max {
                next = Some(cursor.key().to_vec());
                break;
            }
        }
        flusher.finish();
        let step =
            |(key, effect): &(Range<usize>, Effect)| BatchStep { key: &keys[key.clone()], effect: *effect };
        let steps: Vec<BatchStep<'_>> = found.iter().map(step).collect();
        if let Err(e) = self.commit(&exclusive, &steps) {
            self.free_moves(lane, &found);
            return Err(e);
        }
        let mut freed = 0;
        let mut moving = self.alloc.moving();
        for (_, effect) in &found {
            for old in effect.moved_from() {
                self.alloc.set_aside(&mut moving, old);
                freed += 1;
            }
        }
        drop(moving);
        drop(exclusive);
        self.region().medium().leave_unawaited();
        if self.snapshots.has_garbage() {
            self.snapshots.sweep();
        }
        Ok((freed, next))
    }

    /// Writes a record that must move to its new place. The gate is closed.
    fn plan_move(
        &self,
        exclusive: &LaneToken<'_>,
        key: &[u8],
        slot: u64,
        buffer: &mut Vec<u8>,
        flusher: &mut RangeFlusher<'_>,
    ) -> Result<Option<Effect>> {
        let (meta, word) = self.space.leaf_words(slot);
        let old = LeafValue { kind: meta.kind(), word };
        let moves_value = old.block_offset().is_some_and(|block| self.alloc.is_moving(block));
        let moves_leaf = self.alloc.is_moving(slot);
        if !moves_value && !moves_leaf {
            return Ok(None);
        }
        let mut value = old;
        buffer.clear();
        if (moves_value || old.is_in_slot()) && !matches!(self.append_value(slot, buffer), Read::Copied) {
            // A damaged value stays where it is: each read of it returns the error.
            return Ok(None);
        }
        if moves_value {
            let (block, bytes) = self.place_block(exclusive, buffer)?;
            flusher.add(block, bytes);
            value = LeafValue::block(block);
        }
        let planned = if moves_leaf {
            let make_room = || self.alloc.reclaim_idle(exclusive);
            let attempt = || self.prepare_leaf(exclusive, key, Some(meta), value, Some(buffer), flusher);
            twice_if_full(make_room, attempt).map(|insert| insert.moving_from(slot, old))
        } else {
            // Once in 2^44 updates no meta word fits: such a value stays, too.
            let meta = meta.updated(key_crc(key), old, value);
            Ok(meta.map(|meta| Effect::MoveValue { slot, meta: meta.0, word: value.word, old }))
        };
        if moves_value && !matches!(planned, Ok(Some(_))) {
            self.alloc.free(exclusive, value.word);
        }
        planned
    }

    /// Frees what moves that are not carried out have allocated.
    fn free_moves(&self, exclusive: &LaneToken<'_>, moves: &[(Range<usize>, Effect)]) {
        for new in moves.iter().flat_map(|(_, effect)| effect.moved_to()) {
            self.alloc.free(exclusive, new);
        }
    }
}
