//! Moves the directory into segments when the region has become larger than the directory has entries for.
//!
//! The new directory begins at the high water, so that it lies in segments which nothing ever used. Its entries are
//! those of the old one, one more that says that it lies there, and room for all segments of the region.
//!
//! Durable-order: all entries of the new directory below its own end, then the word in the root that says where it
//! lies. A crash before that word leaves the old directory, and what was written is space beyond the high water. A
//! crash behind it leaves a high water that is lower than the directory's end, which recovery takes for that end.
//! Last the entries of the directory behind the root page are blanked, since they will be wrong soon: a salvage that
//! does not find the root's words then takes them for damaged, and looks at the segments. What a crash keeps of them,
//! the next opening for writing blanks.

use crate::format::layout::{
    DIRECTORY, Geometry, ROOT_DIRECTORY, ROOT_HIGH_WATER, SegmentKind, Tag, decode_kind, encode_kind, seal,
};
use crate::recovery::scan::RootWords;
use crate::{Error, Result};
use mangrove_pool::{ByteRange, Error as MediumError, Region};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Bytes flushed at a time: a log has a group for them.
const FLUSH_BYTES: usize = 4096;

/// The segments of a directory for all of the region, when that is worth its space.
fn wanted(region: &Region, root: &RootWords) -> Option<u32> {
    let fit = root.geometry.segments_in(region.len());
    let count = (u64::from(fit) * 8).div_ceil(root.geometry.segment_bytes());
    let gained = u64::from(fit).saturating_sub(root.entries);
    (gained > count && u64::from(root.high_water) + count <= u64::from(fit)).then_some(count as u32)
}

/// True when [`run`] would move the directory.
pub(super) fn is_wanted(region: &Region, root: &RootWords) -> bool {
    wanted(region, root).is_some()
}

/// Moves the directory if the region is larger than it, and returns what the root says then. No other thread uses the
/// region. A medium that has no space for it now is no error: the next opening tries again.
///
/// # Errors
/// Those of the medium.
pub(super) fn run(region: &Region, root: RootWords) -> Result<RootWords> {
    if root.geometry.directory != DIRECTORY {
        blank_rest(region, &root);
    }
    let Some(count) = wanted(region, &root) else { return Ok(root) };
    let (old, first) = (root.geometry, root.high_water);
    let entry_of = |segment| region.word(old.directory_entry(segment)).load(Ordering::Acquire);
    if (0..first).any(|segment| decode_kind(segment, entry_of(segment)).is_none()) {
        // Recovery reports the damage; nothing is written to a map that is damaged.
        return Ok(root);
    }
    let end = first + count;
    match region.provide(ByteRange { offset: old.start(first), len: old.start(end) - old.start(first) }) {
        Err(
            MediumError::NoSpace { .. } | MediumError::FileLimit { .. } | MediumError::MemoryLimit { .. },
        ) => {
            return Ok(root);
        }
        grown => grown.map_err(Error::from)?,
    }
    let segment_count = old.segments_in(region.len());
    let new = Geometry { directory: old.start(first), segment_count, ..old };
    for segment in 0..first {
        region.store(new.directory_entry(segment), entry_of(segment), Ordering::Release);
    }
    let own = encode_kind(first, SegmentKind::Directory { count });
    region.store(new.directory_entry(first), own, Ordering::Release);
    for segment in first + 1..end {
        let free = encode_kind(segment, SegmentKind::Free);
        region.store(new.directory_entry(segment), free, Ordering::Release);
    }
    flush(region, new.directory, end);
    region.fence();
    let store = |at, tag, value: u32| {
        region.store(at, seal(tag, u64::from(value)), Ordering::Release);
        region.flush(at, 8);
        region.fence();
    };
    store(ROOT_DIRECTORY, Tag::Place, first + 1);
    store(ROOT_HIGH_WATER, Tag::HighWater, end);
    if old.directory == DIRECTORY {
        blank(region, 0..first);
    }
    let entries = (u64::from(count) << new.shift) / 8;
    Ok(RootWords { geometry: new, high_water: end, entries, ..root })
}

/// Blanks the entries of these segments behind the root page, where the directory was.
fn blank(region: &Region, segments: Range<u32>) {
    let place = |segment: u32| DIRECTORY + u64::from(segment) * 8;
    for segment in segments.clone() {
        region.store(place(segment), 0, Ordering::Release);
    }
    // The next fence serves these, too: until an entry changes, the old ones are right.
    flush(region, place(segments.start), segments.end - segments.start);
}

/// Blanks the pages of entries behind the root page that are not blank, of a map whose directory has moved. Other pages
/// may have no space on the medium.
fn blank_rest(region: &Region, root: &RootWords) {
    const ENTRIES: u32 = FLUSH_BYTES as u32 / 8;
    let entries = (root.geometry.data_start - DIRECTORY) / 8;
    let entries = entries.min(u64::from(root.high_water)) as u32;
    let is_left = |segment: u32| region.word(DIRECTORY + u64::from(segment) * 8).load(Ordering::Acquire) != 0;
    for first in (0..entries).step_by(ENTRIES as usize) {
        let page = first..entries.min(first + ENTRIES);
        if page.clone().any(is_left) {
            blank(region, page);
        }
    }
}

/// Flushes the first `entries` entries of the directory at `directory`.
fn flush(region: &Region, directory: u64, entries: u32) {
    let bytes = entries as usize * 8;
    for at in (0..bytes).step_by(FLUSH_BYTES) {
        region.flush(directory + at as u64, FLUSH_BYTES.min(bytes - at));
    }
}
