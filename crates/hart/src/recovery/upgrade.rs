//! Makes a map of an older version one of the present version, when it is opened for writing.
//!
//! Before version 5 no value lies behind its key, and there are fewer classes of leaves; nothing has to change. Before
//! version 4 the word that says where the directory lies may be anything; the upgrade makes it say what was so
//! then. Before version 3 the removal words of a chunk's header may be anything; the upgrade makes them zero. In
//! version 1 a zero word means a segment, a chunk or a slot that is free; the upgrade replaces each such word by the
//! mark that it has now. A map of an older version may have both forms, so a crash in between leaves a map of that
//! version, and the next opening continues.
//!
//! Durable-order: all marks before the version. Otherwise the words that are zero yet would be taken for damage, and
//! what lies in removal words for removals.

use crate::format::layout::{
    CHUNK_BITMAP, CHUNK_REMOVALS, CHUNK_REMOVALS_SEAL, FORMAT_VERSION, LEAF_META, ROOT_BATCH, ROOT_CRC,
    ROOT_DIRECTORY, ROOT_HIGH_WATER, ROOT_VERSION, SegmentKind, Tag, VERSION_OF_MOVES, VERSION_OF_REMOVALS,
    encode_kind, seal,
};
use crate::format::leaf::Meta;
use crate::hart::{Hart, root_crc};
use crate::recovery::scan;
use std::sync::atomic::Ordering;

/// Upgrades the map of this version, which has been recovered without damage and whose segments hold `kinds`. No other
/// thread uses it.
pub(crate) fn run(hart: &Hart, version: u32, kinds: &[SegmentKind]) {
    let region = hart.region();
    if version < VERSION_OF_MOVES {
        region.store(ROOT_DIRECTORY, seal(Tag::Place, 0), Ordering::Release);
        region.flush(ROOT_DIRECTORY, 8);
    }
    if hart.space.zeros_are_free() {
        mark_zeros(hart, kinds);
    }
    if version < VERSION_OF_REMOVALS {
        clear_removals(hart, kinds);
    }
    region.fence();
    let version = region.word(ROOT_VERSION).load(Ordering::Acquire) >> 32 << 32 | u64::from(FORMAT_VERSION);
    region.store(ROOT_VERSION, version, Ordering::Release);
    region.store(ROOT_CRC, root_crc(region, FORMAT_VERSION), Ordering::Release);
    region.flush(0, 64);
    region.fence();
    hart.space.set_zeros_are_free(false);
}

/// Makes the removal words of all chunks zero.
fn clear_removals(hart: &Hart, kinds: &[SegmentKind]) {
    let region = hart.region();
    for (segment, kind) in (0u32..).zip(kinds) {
        let SegmentKind::Leaves { class } = *kind else { continue };
        let cut = hart.alloc.classes.cut(class);
        for chunk in 0..cut.chunk_count {
            let header = hart.space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
            region.store(header + CHUNK_REMOVALS, 0, Ordering::Release);
            region.store(header + CHUNK_REMOVALS_SEAL, 0, Ordering::Release);
            region.flush(header + CHUNK_REMOVALS, 16);
        }
    }
}

/// Replaces the zero words of version 1 by the marks that stand for them now.
fn mark_zeros(hart: &Hart, kinds: &[SegmentKind]) {
    let region = hart.region();
    let replace_zero = |at: u64, mark: u64| {
        if region.word(at).load(Ordering::Acquire) == 0 {
            region.store(at, mark, Ordering::Release);
            region.flush(at, 8);
        }
    };
    replace_zero(ROOT_HIGH_WATER, seal(Tag::HighWater, 0));
    replace_zero(ROOT_BATCH, seal(Tag::Batch, 0));
    for (segment, kind) in (0u32..).zip(kinds) {
        replace_zero(hart.space.geometry.directory_entry(segment), encode_kind(segment, SegmentKind::Free));
        let SegmentKind::Leaves { class } = *kind else { continue };
        let cut = hart.alloc.classes.cut(class);
        for chunk in 0..cut.chunk_count {
            let (header, bitmap, _) = scan::chunk(&hart.space, segment, class, cut, chunk);
            for slot in (0..cut.slots(chunk)).filter(|slot| bitmap >> slot & 1 == 1) {
                let offset = header + u64::from(cut.header_bytes + slot * cut.slot_bytes);
                replace_zero(offset + LEAF_META, Meta::FREE.0);
            }
            let word = crate::format::layout::chunk_word(bitmap, cut.slots(chunk));
            region.store(header + CHUNK_BITMAP, word, Ordering::Release);
            region.flush(header + CHUNK_BITMAP, 8);
        }
    }
}
