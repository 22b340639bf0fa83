//! Free segments: the durable directory and its volatile copy.
//!
//! Invariants:
//! 1. A segment is allocated only while its directory entry durably says "free", and its entry says so durably before
//!    the segment becomes free again. So clearing is idempotent, and no crash shows a segment in two uses.
//! 2. Every entry below the high water says what its segment holds, if only "nothing": a zero entry there is damage.
//!    So a segment's first entry is durable before the high water passes it, and the high water before any entry that
//!    says more.
//! 3. Recovery writes no entry: it lists entries that no live record needs as stale, and the allocator clears them
//!    before it allocates the first segment.
//! 4. The medium has space for a segment from before it is allocated until its entry says "free" again: space that was
//!    given back, or that a crash may have taken, is asked for before the segment is used. The directory gets space
//!    with the segments whose entries it holds; the rest of it has none.

use super::without_space::{WithoutSpace, is_blank};
use crate::format::layout::{DIRECTORY, ROOT_HIGH_WATER, SegmentKind, Tag, encode_kind, seal};
use crate::format::space::MapSpace;
use crate::{Error, Options, Result};
use mangrove_pool::{ByteRange, Error as MediumError, fits_memory};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Up to this size the map grows by half of itself; beyond by half of this size or, if that is more, by an eighth of
/// itself.
const GROW_BY_HALF_BYTES: u64 = 32 << 20;
/// Space on the medium comes in pages of this many bytes.
const PAGE_BYTES: u64 = 4096;

/// Bytes that the index and the allocator take from the system at a time, for several threads.
const INDEX_PIECES_BYTES: u64 = 8 << 20;

#[derive(Debug, Default)]
struct FreeRuns {
    /// First segment and length of each run of free segments; runs never touch.
    free: BTreeMap<u32, u32>,
    /// Segments that the medium provides.
    high_water: u32,
    /// Free segments whose durable entry is not clear yet.
    stale: Vec<u32>,
    /// Free segments that must be provided before they are used, and for how many bytes of each space may lack.
    unprovided: BTreeMap<u32, u64>,
    /// Those of them whose space this process gave back.
    given_back: BTreeSet<u32>,
}

impl FreeRuns {
    /// The lowest run that is long enough; the rest of it stays free.
    fn first_fit(&mut self, count: u32) -> Option<u32> {
        let (start, len) = self.free.iter().find(|(_, len)| **len >= count).map(|(s, l)| (*s, *l))?;
        self.free.remove(&start);
        if len > count {
            self.free.insert(start + count, len - count);
        }
        Some(start)
    }

    /// The bytes for which `count` segments from `start` on may lack space.
    fn lacking(&self, start: u32, count: u32) -> u64 {
        self.unprovided.range(start..start + count).map(|(_, bytes)| bytes).sum()
    }

    /// Takes the `count` consecutive segments that lack the least space, if that is less than `most`. O(segments).
    fn least_lacking(&mut self, count: u32, mut most: u64) -> Option<u32> {
        let mut found = None;
        for (&run, &len) in self.free.iter().filter(|(_, len)| **len >= count) {
            let mut bytes = vec![0; len as usize];
            for (segment, lacking) in self.unprovided.range(run..run + len) {
                bytes[(segment - run) as usize] = *lacking;
            }
            let mut lacking: u64 = bytes[..count as usize].iter().sum();
            for start in 0..=len - count {
                if lacking < most {
                    (found, most) = (Some((run, len, run + start)), lacking);
                }
                let next = bytes.get((start + count) as usize).copied().unwrap_or(0);
                lacking = lacking + next - bytes[start as usize];
            }
            if most == 0 {
                break;
            }
        }
        let (run, len, start) = found?;
        self.free.remove(&run);
        if start > run {
            self.free.insert(run, start - run);
        }
        if run + len > start + count {
            self.free.insert(start + count, run + len - start - count);
        }
        Some(start)
    }

    fn put_back(&mut self, mut start: u32, mut count: u32) {
        if let Some((&before, &len)) = self.free.range(..start).next_back() {
            assert!(before + len <= start, "segment {start} was free already");
            if before + len == start {
                self.free.remove(&before);
                (start, count) = (before, len + count);
            }
        }
        if let Some(&len) = self.free.get(&(start + count)) {
            self.free.remove(&(start + count));
            count += len;
        }
        assert!(self.free.insert(start, count).is_none(), "segment {start} was free already");
    }
}

/// The free segments of a map.
#[derive(Debug, Default)]
pub(crate) struct SegmentPool {
    runs: Mutex<FreeRuns>,
    segment_bytes: u64,
    grow_segments: u32,
    memory_bytes_max: Option<u64>,
    /// The map, in messages.
    path: PathBuf,
}

impl SegmentPool {
    /// An empty pool that asks the medium for `grow_bytes` at a time.
    pub(crate) fn new(space: &MapSpace, high_water: u32, options: &Options) -> Self {
        let grow_segments = (options.grow_bytes >> space.geometry.shift).clamp(1, 1 << 20) as u32;
        Self {
            runs: Mutex::new(FreeRuns { high_water, ..FreeRuns::default() }),
            segment_bytes: space.geometry.segment_bytes(),
            grow_segments,
            memory_bytes_max: options.memory_bytes_max,
            path: options.path.clone(),
        }
    }

    /// Segments that the medium provides.
    pub(crate) fn high_water(&self) -> u32 {
        self.runs.lock().high_water
    }

    /// Free segments that the medium provides.
    pub(crate) fn free_count(&self) -> u64 {
        self.runs.lock().free.values().map(|len| u64::from(*len)).sum()
    }

    /// Of them, those that the medium is known to have space for; space for parts of segments counts together.
    pub(crate) fn provided_count(&self) -> u64 {
        let runs = self.runs.lock();
        let free: u64 = runs.free.values().map(|len| u64::from(*len)).sum();
        let lacking: u64 = runs.unprovided.values().sum();
        (free * self.segment_bytes).saturating_sub(lacking) / self.segment_bytes
    }

    /// Allocates `count` consecutive segments, whose entries are durably free. Returns the first; they may hold
    /// anything.
    pub(crate) fn alloc(&self, space: &MapSpace, count: u32) -> Result<u32> {
        let mut runs = self.runs.lock();
        clear_stale(space, &mut runs.stale);
        let mut start = runs.first_fit(count);
        if start.is_none() {
            self.grow(space, &mut runs, count)?;
            start = runs.first_fit(count);
        }
        let start = start.ok_or_else(|| unreachable_growth(space))?;
        let Err(full) = provide(space, &mut runs, start..start + count) else { return Ok(start) };
        runs.put_back(start, count);
        if !is_no_space(&full) {
            return Err(full.into());
        }
        // The lowest segments may be holes, and others have space.
        let lacking = runs.lacking(start, count);
        let Some(start) = runs.least_lacking(count, lacking) else { return Err(full.into()) };
        provide(space, &mut runs, start..start + count).map(|()| start).map_err(|e| {
            runs.put_back(start, count);
            e.into()
        })
    }

    /// Frees segments whose entries are durably free, or listed in `stale`.
    pub(crate) fn release(&self, start: u32, count: u32) {
        self.runs.lock().put_back(start, count);
    }

    /// As `release`, for recovery; the entry of `segment` must be cleared before any segment is allocated.
    pub(crate) fn release_stale(&self, segment: u32, count: u32) {
        let mut runs = self.runs.lock();
        runs.stale.push(segment);
        runs.put_back(segment, count);
    }

    /// Notes for which free segments the medium may have no space. For recovery, once it has released all.
    pub(crate) fn note_without_space(&self, space: &MapSpace, without: &WithoutSpace) {
        let runs = &mut *self.runs.lock();
        for (&start, &len) in &runs.free {
            let range = bytes_of(space, start..start + len);
            for part in without.within(range.offset..range.offset + range.len) {
                let mut at = part.start;
                while at < part.end {
                    let (segment, _) = space.geometry.locate(at);
                    let end = part.end.min(space.geometry.start(segment + 1));
                    *runs.unprovided.entry(segment).or_default() += end - at;
                    at = end;
                }
            }
        }
    }

    /// Gives the space of all free segments back to the medium. Returns the bytes.
    pub(crate) fn give_back(&self, space: &MapSpace) -> Result<u64> {
        let mut runs = self.runs.lock();
        // Durable-order 1: the entries say "free" before the segments are blank.
        clear_stale(space, &mut runs.stale);
        let free: Vec<u32> = runs.free.iter().flat_map(|(start, len)| *start..start + len).collect();
        let mut bytes = 0;
        for segment in free {
            if runs.given_back.contains(&segment) {
                continue;
            }
            let range = bytes_of(space, segment..segment + 1);
            // SAFETY: the segment is free, and to allocate it a writer needs the lock that is held. A reader of an old
            // record there finds that the record is gone, and drops what it read.
            if !unsafe { space.region.give_back(range) }? {
                break;
            }
            bytes += range.len;
            runs.unprovided.insert(segment, range.len);
            runs.given_back.insert(segment);
        }
        Ok(bytes)
    }

    /// Segments to grow by, where the map has `high_water`.
    fn step(&self, space: &MapSpace, high_water: u32) -> u32 {
        let half = (GROW_BY_HALF_BYTES >> space.geometry.shift).min(u64::from(high_water)) as u32 / 2;
        half.max(high_water / 8).clamp(1, self.grow_segments)
    }

    fn grow(&self, space: &MapSpace, runs: &mut FreeRuns, count: u32) -> Result<()> {
        let old = runs.high_water;
        let at_end = match runs.free.last_key_value() {
            Some((start, len)) if start + len == old => *len,
            _ => 0,
        };
        let needed = count - at_end;
        let left = space.geometry.segment_count - old;
        if needed > left {
            let wanted = u64::from(count) << space.geometry.shift;
            return Err(Error::Full { wanted, capacity: space.region.len() });
        }
        let mut generous = needed.max(self.step(space, old)).min(left);
        if self.fits_memory(space, generous).is_err() {
            self.fits_memory(space, needed)?;
            generous = needed;
        }
        let granted = match provide_new(space, old, generous) {
            Ok(()) => generous,
            // A nearly full medium may still have space for what is needed now.
            Err(e) if is_no_space(&e) && generous > needed => {
                provide_new(space, old, needed)?;
                needed
            }
            Err(e) => return Err(e.into()),
        };
        let high_water = old + granted;
        space.set_usable(high_water);
        for segment in old..high_water {
            let free = encode_kind(segment, SegmentKind::Free);
            space.region.store(space.geometry.directory_entry(segment), free, Ordering::Release);
        }
        space.region.flush(space.geometry.directory_entry(old), granted as usize * 8);
        // Durable-order 2: these entries, the high water, any other entry. Recovery reads the entries below the high
        // water, takes a zero for damage, and reads none beyond.
        space.region.fence();
        space.region.store(ROOT_HIGH_WATER, seal(Tag::HighWater, u64::from(high_water)), Ordering::Release);
        space.region.flush(ROOT_HIGH_WATER, 8);
        space.region.fence();
        runs.high_water = high_water;
        runs.put_back(old, granted);
        Ok(())
    }

    /// Refuses to grow where this process has no memory for the records of `needed` more segments: a request that
    /// cannot be refused later would end the process.
    fn fits_memory(&self, space: &MapSpace, needed: u32) -> Result<()> {
        let Some(limit) = self.memory_bytes_max else { return Ok(()) };
        let bytes = u64::from(needed) << space.geometry.shift;
        // The index takes about as much again for short records, in pieces of 2 MiB.
        Ok(fits_memory(&self.path, Some(limit), bytes, 3 * bytes + INDEX_PIECES_BYTES)?)
    }
}

fn bytes_of(space: &MapSpace, segments: std::ops::Range<u32>) -> ByteRange {
    let offset = space.geometry.start(segments.start);
    ByteRange { offset, len: space.geometry.start(segments.end) - offset }
}

/// Asks for space for `count` more segments, and for the part of the directory that they are the first to use.
fn provide_new(space: &MapSpace, high_water: u32, count: u32) -> mangrove_pool::Result<()> {
    let page_after = |segments: u32| space.geometry.directory_entry(segments).next_multiple_of(PAGE_BYTES);
    let (from, to) = (page_after(high_water), page_after(high_water + count));
    if to > from {
        space.region.provide(ByteRange { offset: from, len: to - from })?;
    }
    space.region.provide(bytes_of(space, high_water..high_water + count))
}

/// Invariant 4, for free segments that are being allocated.
fn provide(
    space: &MapSpace,
    runs: &mut FreeRuns,
    segments: std::ops::Range<u32>,
) -> mangrove_pool::Result<()> {
    if runs.unprovided.range(segments.clone()).next().is_none() {
        return Ok(());
    }
    space.region.provide(bytes_of(space, segments.clone()))?;
    for segment in segments {
        runs.unprovided.remove(&segment);
        runs.given_back.remove(&segment);
    }
    Ok(())
}

/// Asks once more for the space of what recovery found in use below the high water: a crash may have taken space that
/// was reserved and never written, which a later write needs.
///
/// It cannot have taken space of a segment of which the data file has a page, since the checkpoint that wrote the page
/// synced the file. Of any other segment in use the log has a page that is not zero. Where there is no such page, as
/// after closing, a medium without space is no error: there are file systems where that fails although all of it is
/// reserved. (It is not where the data file was copied without its zeros.)
pub(crate) fn provide_again(
    space: &MapSpace,
    high_water: u32,
    used: &[std::ops::Range<u32>],
    without: &WithoutSpace,
) -> Result<()> {
    let directory = space.geometry.directory;
    let end = space.geometry.directory_entry(high_water).next_multiple_of(PAGE_BYTES);
    // The root page, and the part of the directory that is in use.
    let front = [0..DIRECTORY, directory..end];
    let segments = used.iter().map(|run| {
        let range = bytes_of(space, run.clone());
        range.offset..range.offset + range.len
    });
    let parts: Vec<_> = front.into_iter().chain(segments).flat_map(|range| without.within(range)).collect();
    let is_needed = parts.iter().any(|part| !is_blank(&space.region, part));
    match parts.into_iter().try_for_each(|part| provide_by_halves(space, part)) {
        Err(e) if !is_needed && is_no_space(&e) => Ok(()),
        provided => Ok(provided?),
    }
}

/// Asks for the space of whole pages; where there is none for all, for that of smaller and smaller parts: a file system
/// may want space for all bytes that it is asked for at a time, also for those that have it.
fn provide_by_halves(space: &MapSpace, part: std::ops::Range<u64>) -> mangrove_pool::Result<()> {
    let len = part.end - part.start;
    match space.region.provide(ByteRange { offset: part.start, len }) {
        Err(e) if is_no_space(&e) && len > PAGE_BYTES => {
            let middle = part.start + (len / 2).next_multiple_of(PAGE_BYTES);
            provide_by_halves(space, part.start..middle)?;
            provide_by_halves(space, middle..part.end)
        }
        provided => provided,
    }
}

/// True when the medium is full, or a file may not grow.
fn is_no_space(e: &MediumError) -> bool {
    matches!(e, MediumError::NoSpace { .. } | MediumError::FileLimit { .. })
}

fn clear_stale(space: &MapSpace, stale: &mut Vec<u32>) {
    if stale.is_empty() {
        return;
    }
    for segment in stale.drain(..) {
        set_kind(space, segment, SegmentKind::Free);
    }
    // Durable-order: stale entries are clear before what they claim is first reused.
    space.region.fence();
}

fn unreachable_growth(space: &MapSpace) -> Error {
    Error::Full { wanted: space.geometry.segment_bytes(), capacity: space.region.len() }
}

/// Stores and flushes a directory entry; the caller fences.
#[track_caller]
pub(super) fn set_kind(space: &MapSpace, segment: u32, kind: SegmentKind) {
    let entry = space.geometry.directory_entry(segment);
    space.region.store(entry, encode_kind(segment, kind), Ordering::Release);
    space.region.flush(entry, 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_that_lacks_the_least_space_is_found() {
        let free = BTreeMap::from([(0, 6), (10, 4), (20, 1)]);
        let unprovided = BTreeMap::from([(0, 9), (1, 9), (2, 9), (3, 4), (4, 4), (5, 9), (11, 1)]);
        let runs = || FreeRuns { free: free.clone(), unprovided: unprovided.clone(), ..FreeRuns::default() };
        let take = |count, most| {
            let mut runs = runs();
            runs.least_lacking(count, most).map(|start| (start, runs.free.into_iter().collect::<Vec<_>>()))
        };
        assert_eq!(take(1, 9), Some((10, vec![(0, 6), (11, 3), (20, 1)])));
        assert_eq!(take(2, 18), Some((12, vec![(0, 6), (10, 2), (20, 1)])));
        assert_eq!(take(3, 27), Some((10, vec![(0, 6), (13, 1), (20, 1)])));
        assert_eq!(take(4, 31), Some((10, vec![(0, 6), (20, 1)])));
        assert_eq!(take(5, 36), Some((0, vec![(5, 1), (10, 4), (20, 1)])));
        assert_eq!((take(5, 35), take(7, u64::MAX)), (None, None));
    }

    #[test]
    fn a_run_that_is_taken_from_the_middle_leaves_two() {
        let (free, unprovided) = (BTreeMap::from([(3, 5)]), BTreeMap::from([(3, 8), (4, 7), (7, 8)]));
        let mut runs = FreeRuns { free, unprovided, ..FreeRuns::default() };
        assert_eq!(runs.least_lacking(2, runs.lacking(3, 2)), Some(5));
        assert_eq!(runs.free.into_iter().collect::<Vec<_>>(), [(3, 2), (7, 1)]);
    }
}
