//! What damaged words of the root and the directory must have said, found out from what lies in the map. For a salvage
//! only: the map is opened read-only and its sound records are copied.

use crate::format::layout::{
    CHUNK_IDENTITY, DIRECTORY, FORMAT_VERSION, Geometry, ROOT_BYTES, ROOT_DATA_START, ROOT_SEGMENT_COUNT,
    SEGMENT_COUNT_MAX, SegmentKind, VALUE_HEADER_BYTES, chunk_identity,
};
use crate::format::size_class::{Class, Classes, is_leaf_class};
use crate::format::space::MapSpace;
use crate::recovery::scan::RootWords;
use mangrove_pool::Region;
use std::sync::atomic::Ordering;

/// The root of a map with segments of `1 << shift` bytes, of which `bytes` may be read. A directory that was moved is
/// not looked for: the one behind the root page is blank then, and each of its entries is presumed.
pub(super) fn root(region: &Region, shift: u32, bytes: u64) -> Option<RootWords> {
    let geometry = geometry(region, shift)?;
    let segments = bytes.checked_sub(geometry.data_start)? >> shift;
    let high_water = segments.min(u64::from(geometry.segment_count)) as u32;
    let entries = u64::from(geometry.segment_count);
    Some(RootWords { geometry, high_water, entries, version: FORMAT_VERSION })
}

/// Where segments lie: as two words of the root agree, for the region may have grown since it was made, or else as in a
/// new map of this region.
fn geometry(region: &Region, shift: u32) -> Option<Geometry> {
    if region.len() < ROOT_BYTES {
        return None;
    }
    let word = |at| region.word(at).load(Ordering::Acquire);
    let (count, data_start) = (word(ROOT_SEGMENT_COUNT), word(ROOT_DATA_START));
    let agree = (1..=SEGMENT_COUNT_MAX).contains(&count) && data_start == Geometry::data_start(count);
    if !agree {
        return Geometry::of_region(region.len(), shift);
    }
    let found = Geometry { data_start, shift, segment_count: 0, directory: DIRECTORY };
    Some(Geometry { segment_count: found.segments_in(region.len()), ..found })
}

/// What a segment holds whose directory entry is damaged: `Free` where nothing in it verifies.
pub(super) fn kind(space: &MapSpace, classes: &Classes, high_water: u32, segment: u32) -> SegmentKind {
    let start = space.geometry.start(segment);
    let identity = space.region.word(start + CHUNK_IDENTITY).load(Ordering::Acquire);
    let mut leaves = classes.all().filter(|class| is_leaf_class(*class));
    if let Some(class) = leaves.find(|class| identity == chunk_identity(segment, *class, 0)) {
        return SegmentKind::Leaves { class };
    }
    let mut buffer = Vec::new();
    let is_value = |at: u64, class: Option<Class>, capacity: u64, buffer: &mut Vec<u8>| {
        let len = space.region.word(at).load(Ordering::Acquire) & 0xffff_ffff;
        classes.of_value(len as usize) == class && space.verify_block(at, capacity, buffer).is_some()
    };
    for class in classes.all().filter(|class| !is_leaf_class(*class)) {
        let cut = classes.cut(class);
        let mut blocks = (0..cut.chunk_count).flat_map(|chunk| {
            (0..cut.slots(chunk)).map(move |slot| chunk * cut.chunk_bytes + slot * cut.slot_bytes)
        });
        let bytes = u64::from(cut.slot_bytes);
        if blocks.any(|place| is_value(start + u64::from(place), Some(class), bytes, &mut buffer)) {
            return SegmentKind::Values { class };
        }
    }
    let len = space.region.word(start).load(Ordering::Acquire) & 0xffff_ffff;
    let count = (len + VALUE_HEADER_BYTES).div_ceil(space.geometry.segment_bytes());
    let fits = count <= u64::from(high_water - segment);
    if fits && is_value(start, None, count << space.geometry.shift, &mut buffer) {
        return SegmentKind::Extent { count: count as u32 };
    }
    SegmentKind::Free
}
