//! What happens after a crash: the transaction that had the lock is undone, newest entry first.
//!
//! Durable-order: all that was stored back, then the cleared log. A crash in between leaves the log as it was, and
//! recovery begins again: to store the old bytes twice is to store them once.

use super::layout::{
    AT_CLEARED, IN_ENTRY_COUNT, IN_ENTRY_CRC, IN_ENTRY_OLD, IN_ENTRY_PLACE, InPlaceLayout, Undo,
};
use super::undo_log::DurableUndo;
use crate::left_out::is_left_out;
use mangrove_pool::{Error, Region, Result};
use std::path::Path;
use std::sync::atomic::Ordering;

/// What a log holds: how many entries were cleared, and those that count.
#[derive(Debug)]
pub(super) struct FoundEntries {
    pub(super) cleared: u64,
    pub(super) entries: Vec<Undo>,
}

/// Reads the log.
///
/// # Errors
/// `Corrupt`: a crash leaves no such log.
pub(super) fn read(region: &Region, layout: &InPlaceLayout, path: &Path) -> Result<FoundEntries> {
    let corrupt =
        |offset, what: &str| Err(Error::Corrupt { path: path.join("image"), offset, what: what.to_owned() });
    // Relaxed: no transaction runs.
    let word = |at: u64| region.word(at).load(Ordering::Relaxed);
    let Some(cleared) = layout.count_of(word(AT_CLEARED)) else {
        return corrupt(AT_CLEARED, "the undo log's first count is damaged");
    };
    let verifies = !is_left_out();
    let mut entries = Vec::new();
    for index in 0..layout.entries {
        let at = layout.entry(index);
        let Some(count) = layout.count_of(word(at + IN_ENTRY_COUNT)) else {
            return corrupt(at + IN_ENTRY_COUNT, "the count of an undo entry is damaged");
        };
        let expected = cleared + index + 1;
        if count > expected {
            // Counts grow, and the first one is durable before an entry counts on from it.
            return corrupt(AT_CLEARED, "the undo log's first count is older than its entries");
        }
        if count < expected {
            // Of an earlier transaction, or never stored.
            continue;
        }
        let [place, old, crc] = [IN_ENTRY_PLACE, IN_ENTRY_OLD, IN_ENTRY_CRC].map(|within| word(at + within));
        if entries.len() as u64 != index || verifies && crc != layout.entry_crc(place, old, count) {
            return corrupt(at, "an undo entry is damaged");
        }
        let undo = Undo::of(place, old);
        let data = layout.data()..layout.data() + layout.bytes;
        if undo.size > 8 || !data.contains(&undo.offset) || undo.offset + undo.size as u64 > data.end {
            return corrupt(at, "an undo entry lies outside of the data");
        }
        entries.push(undo);
    }
    Ok(FoundEntries { cleared, entries })
}

/// Undoes the transaction that had the lock, if there was one, and returns the empty log. O(entries of the log).
///
/// # Errors
/// `Corrupt`.
pub(super) fn recover(
    region: Region,
    layout: InPlaceLayout,
    flushes: bool,
    path: &Path,
) -> Result<DurableUndo> {
    let FoundEntries { cleared, mut entries } = read(&region, &layout, path)?;
    let log = DurableUndo::new(region, layout, flushes, cleared);
    let len = entries.len() as u64;
    if len == 0 {
        return Ok(log);
    }
    // Backwards: of several entries for the same bytes, the oldest has what was there before the transaction.
    if !is_left_out() {
        entries.reverse();
    }
    let early = is_left_out();
    if early {
        log.forget(len);
    }
    for undo in entries {
        log.region.write(undo.offset, &undo.old.to_le_bytes()[..undo.size]);
        if flushes {
            log.region.flush(undo.offset, undo.size);
        }
    }
    if flushes {
        log.region.fence();
    }
    if !early {
        log.forget(len);
    }
    Ok(log)
}
