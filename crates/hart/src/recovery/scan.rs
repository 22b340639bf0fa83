//! Reads durable structures one by one and checks every rule that they must keep, for recovery and for `check`.
//!
//! Nothing here trusts a byte of the region: offsets are bounded before they are followed, and whatever breaks a rule
//! is returned as [`Damage`].

use crate::format::layout::{
    BITMAP_MASK, CHUNK_BITMAP, CHUNK_IDENTITY, CHUNK_MARK, CHUNK_REMOVALS, CHUNK_REMOVALS_SEAL,
    FORMAT_VERSION, Geometry, LEAF_KEY, MAGIC, ROOT_BATCH, ROOT_BYTES, ROOT_CRC, ROOT_DATA_START,
    ROOT_DIRECTORY, ROOT_HIGH_WATER, ROOT_MAGIC, ROOT_SEGMENT_COUNT, ROOT_VERSION, SEGMENT_COUNT_MAX,
    SegmentKind, Tag, VALUE_HEADER_BYTES, VERSION_OF_MOVES, VERSION_OF_ZEROS, chunk_identity, chunk_word,
    decode_kind, removals_number, unseal,
};
use crate::format::leaf::{LeafValue, Meta};
use crate::format::size_class::{Class, Classes, Cut};
use crate::format::space::{MapSpace, value_crc};
use crate::report::Damage;
use crate::{Error, KEY_BYTES_MAX, Result};
use mangrove_pool::{DamageCheck, Region};
use std::sync::atomic::Ordering;

/// Damage at `offset`.
pub(crate) fn damage(offset: u64, what: impl Into<String>) -> Damage {
    Damage { offset, what: what.into() }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Corrupt { offset: damage.offset, what: damage.what }
    }
}

/// What the root says.
#[derive(Clone, Copy)]
pub(crate) struct RootWords {
    pub(crate) geometry: Geometry,
    /// Segments that the medium has provided, at least those of the directory.
    pub(crate) high_water: u32,
    /// Segments that the directory has entries for.
    pub(crate) entries: u64,
    /// The format version.
    pub(crate) version: u32,
}

/// A sealed word; in a map of version 1, zero stands for a sealed zero.
fn unsealed(version: u32, tag: Tag, word: u64) -> Option<u64> {
    let zero_is_right = version == VERSION_OF_ZEROS || !DamageCheck::BlankRootWord.is_on();
    if zero_is_right && word == 0 { Some(0) } else { unseal(tag, word) }
}

/// The root's words.
pub(crate) fn root(region: &Region) -> Result<RootWords> {
    if region.len() < ROOT_BYTES {
        return Err(damage(0, "the region is shorter than a root page").into());
    }
    let word = |at: u64| region.word(at).load(Ordering::Acquire);
    if word(ROOT_MAGIC) != MAGIC {
        return Err(damage(ROOT_MAGIC, "no map begins here").into());
    }
    let version = word(ROOT_VERSION) as u32;
    if version > FORMAT_VERSION {
        return Err(Error::Unsupported {
            what: format!(
                "the map has format version {version}, this program reads up to {FORMAT_VERSION}; use a newer Mangrove"
            ),
        });
    }
    // An upgrade stores the version, then the checksum, in one line. A crash may keep the first of the two; the program
    // of that version then let it stand.
    let crc_fits = |version| word(ROOT_CRC) == crate::hart::root_crc(region, version);
    let upgraded = (VERSION_OF_ZEROS..version).any(crc_fits);
    if version < VERSION_OF_ZEROS || !(crc_fits(version) || upgraded) {
        return Err(damage(ROOT_CRC, "the root line does not have its checksum").into());
    }
    let count = word(ROOT_SEGMENT_COUNT);
    let described = Geometry::of_root(word(ROOT_VERSION), count, word(ROOT_DATA_START));
    let Some(mut geometry) = described.filter(|geometry| geometry.data_start <= region.len()) else {
        return Err(damage(ROOT_SEGMENT_COUNT, "the root describes more than the region holds").into());
    };
    let (entries, directory_end) = match moved_directory(region, version, &geometry)? {
        Some((directory, entries, end)) => {
            geometry.directory = directory;
            (entries, end)
        }
        None => (count, 0),
    };
    // Another process may have had more address space than this one gets (ulimit -v, valgrind): what was never used
    // is not needed now.
    let count = entries.min(u64::from(geometry.segments_in(region.len())));
    geometry.segment_count = count as u32;
    match unsealed(version, Tag::HighWater, word(ROOT_HIGH_WATER)) {
        Some(high_water) if high_water.max(directory_end) <= count => {
            // A crash may have come between the move of the directory and that of the high water.
            let high_water = high_water.max(directory_end) as u32;
            Ok(RootWords { geometry, high_water, entries, version })
        }
        Some(_) => Err(damage(ROOT_HIGH_WATER, "more segments are in use than the region holds").into()),
        None => {
            Err(damage(ROOT_HIGH_WATER, "the count of segments in use does not have its checksum").into())
        }
    }
}

/// Where a directory lies that has been moved: its offset, the segments that it has entries for, and the segment after
/// its last one.
fn moved_directory(region: &Region, version: u32, geometry: &Geometry) -> Result<Option<(u64, u64, u64)>> {
    if version < VERSION_OF_MOVES {
        return Ok(None);
    }
    let bad = |what: &str| Err(damage(ROOT_DIRECTORY, what).into());
    let place = region.word(ROOT_DIRECTORY).load(Ordering::Acquire);
    let Some(place) = unsealed(version, Tag::Place, place) else {
        return bad("the place of the directory does not have its checksum");
    };
    let Some(first) = place.checked_sub(1) else { return Ok(None) };
    let usable = region.usable_bytes();
    // Its own entry tells how long it is.
    let directory = geometry.data_start + (first << geometry.shift);
    let entry = directory + first * 8;
    if first >= SEGMENT_COUNT_MAX || entry + 8 > usable {
        return bad("the directory lies beyond the region");
    }
    match decode_kind(first as u32, region.word(entry).load(Ordering::Acquire)) {
        Some(SegmentKind::Directory { count }) => {
            let (entries, end) = ((u64::from(count) << geometry.shift) / 8, first + u64::from(count));
            if entries < end {
                return bad("the directory has no entries for itself");
            }
            Ok(Some((directory, entries.min(SEGMENT_COUNT_MAX), end)))
        }
        _ => Err(damage(entry, "no directory lies where the root says").into()),
    }
}

/// Offset of the committed batch's redo list.
pub(crate) fn batch_area(space: &MapSpace) -> std::result::Result<Option<u64>, Damage> {
    let version = if space.zeros_are_free() { VERSION_OF_ZEROS } else { FORMAT_VERSION };
    match unsealed(version, Tag::Batch, space.region.word(ROOT_BATCH).load(Ordering::Acquire)) {
        Some(0) => Ok(None),
        Some(area) => Ok(Some(area * 64)),
        None => Err(damage(ROOT_BATCH, "the batch word does not have its checksum")),
    }
}

/// What the directory says of one segment, if it is possible.
pub(crate) fn kind(
    space: &MapSpace,
    classes: &Classes,
    high_water: u32,
    segment: u32,
) -> std::result::Result<SegmentKind, Damage> {
    let entry = space.geometry.directory_entry(segment);
    let word = space.region.word(entry).load(Ordering::Acquire);
    let bad = |what: &str| Err(damage(entry, format!("directory entry of segment {segment}: {what}")));
    if word == 0 && (space.zeros_are_free() || !DamageCheck::BlankSegment.is_on()) {
        return Ok(SegmentKind::Free);
    }
    let Some(kind) = decode_kind(segment, word) else { return bad("it does not have its checksum") };
    match kind {
        SegmentKind::Leaves { class } if classes.checked(class, true).is_none() => {
            bad("no such class of leaves")
        }
        SegmentKind::Values { class } if classes.checked(class, false).is_none() => {
            bad("no such class of values")
        }
        SegmentKind::Extent { count } | SegmentKind::Directory { count } if count > high_water - segment => {
            bad("the extent is longer than the map")
        }
        kind => Ok(kind),
    }
}

/// A leaf chunk's bitmap, and the offset of its header.
pub(crate) fn chunk(
    space: &MapSpace,
    segment: u32,
    class: Class,
    cut: &Cut,
    chunk: u32,
) -> (u64, u64, Option<Damage>) {
    let header = space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
    let word = space.region.word(header + CHUNK_BITMAP).load(Ordering::Acquire);
    let identity = space.region.word(header + CHUNK_IDENTITY).load(Ordering::Acquire);
    let bitmap = word & BITMAP_MASK & cut.full_mask(chunk);
    let old_mark = if space.zeros_are_free() { CHUNK_MARK } else { 0 };
    let is_blank = word == 0 && identity == 0;
    let problem = if is_blank && !DamageCheck::BlankChunk.is_on() {
        None
    } else if identity != chunk_identity(segment, class, chunk) {
        Some("the chunk's identity is not that of its place")
    } else if word | old_mark != chunk_word(bitmap, cut.slots(chunk)) {
        Some("the chunk's header does not agree with its bitmap")
    } else {
        None
    };
    (header, bitmap, problem.map(|what| damage(header, what)))
}

/// The slots of a chunk that a batch removes, and the number of the batch. None when there is none, or its words are
/// torn: such a batch was never committed.
pub(crate) fn removals(space: &MapSpace, segment: u32, header: u64, chunk: u32) -> Option<(u64, u64)> {
    let mask = space.region.word(header + CHUNK_REMOVALS).load(Ordering::Acquire);
    let seal = space.region.word(header + CHUNK_REMOVALS_SEAL).load(Ordering::Acquire);
    removals_number(segment, chunk, mask, seal).map(|number| (number, mask))
}

/// A leaf that verified.
pub(crate) struct VerifiedLeaf {
    pub(crate) meta: Meta,
    pub(crate) value: LeafValue,
    /// Only the first of an update's two words arrived before a crash: `meta` is what the leaf should have.
    pub(crate) torn: bool,
}

/// Reads and verifies the leaf at `offset`; its key is left in `key`.
pub(crate) fn leaf(
    space: &MapSpace,
    cut: &Cut,
    offset: u64,
    key: &mut Vec<u8>,
) -> std::result::Result<VerifiedLeaf, Damage> {
    let (meta, word) = space.leaf_words(offset);
    if meta.0 == 0 {
        return Err(damage(offset, "the slot is blank: neither a leaf nor the mark of a free slot is there"));
    }
    let key_len = meta.key_len();
    if key_len > KEY_BYTES_MAX || key_len + LEAF_KEY as usize > cut.slot_bytes as usize {
        return Err(damage(offset, "the leaf's key is longer than its slot"));
    }
    space.copy_out(offset + LEAF_KEY, key_len, key);
    match meta.settle(key, word) {
        Some((_, value)) if value.is_in_slot() && value.leaf_bytes(key_len) > cut.slot_bytes as usize => {
            Err(damage(offset, "the leaf's value is longer than its slot"))
        }
        Some((settled, value)) => Ok(VerifiedLeaf { meta: settled, value, torn: settled != meta }),
        None => Err(damage(offset, "the leaf does not have its checksum")),
    }
}

/// Verifies the value behind the key of the leaf at `offset`, which is `value` and was found by [`leaf`]; `buffer`
/// holds it afterwards. Returns its length.
pub(crate) fn slot_value(
    space: &MapSpace,
    offset: u64,
    key_len: usize,
    value: LeafValue,
    buffer: &mut Vec<u8>,
) -> std::result::Result<u64, Damage> {
    let Some((at, len)) = space.slot_value(offset, key_len, value.word) else {
        return Err(damage(offset, "the leaf's value is longer than its slot"));
    };
    space.copy_out(at, len, buffer);
    if u64::from(value_crc(buffer)) != value.word >> 32 {
        return Err(damage(offset, "the value does not have its checksum"));
    }
    Ok(len as u64)
}

/// Where a value's block lies, according to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockPlace {
    /// A slot of a segment.
    Slot { segment: u32, chunk: u32, slot: u32 },
    /// The extent that begins with this segment.
    Extent { head: u32 },
}

/// Finds where the block at `offset` lies, from the directory alone.
pub(crate) fn block_place(
    space: &MapSpace,
    classes: &Classes,
    kinds: &[SegmentKind],
    offset: u64,
) -> std::result::Result<BlockPlace, Damage> {
    let bad = |what: &str| damage(offset, what);
    if offset < space.geometry.data_start || offset >= space.usable_offset() || !offset.is_multiple_of(16) {
        return Err(bad("a leaf refers to a value outside the map"));
    }
    let (segment, place) = space.geometry.locate(offset);
    match kinds[segment as usize] {
        SegmentKind::Values { class } => match classes.cut(class).slot_at(place) {
            Some((chunk, slot)) => Ok(BlockPlace::Slot { segment, chunk, slot }),
            None => Err(bad("a leaf refers into the middle of a value block")),
        },
        SegmentKind::Extent { .. } if place == 0 => Ok(BlockPlace::Extent { head: segment }),
        _ => Err(bad("a leaf refers to a value in a segment that holds none")),
    }
}

/// Checks the block at `offset` against the directory, its own header and its checksum; `buffer` holds the value
/// afterwards. Returns the place and the value's length.
pub(crate) fn block(
    space: &MapSpace,
    classes: &Classes,
    kinds: &[SegmentKind],
    offset: u64,
    buffer: &mut Vec<u8>,
) -> std::result::Result<(BlockPlace, u64), Damage> {
    let bad = |what: &str| damage(offset, what);
    let block = block_place(space, classes, kinds, offset)?;
    let len = space.region.word(offset).load(Ordering::Acquire) & 0xffff_ffff;
    let class = classes.of_value(len as usize);
    let (segment, _) = space.geometry.locate(offset);
    let capacity = match kinds[segment as usize] {
        SegmentKind::Values { class: own } if class != Some(own) => {
            return Err(bad("the value's length does not fit its block"));
        }
        SegmentKind::Extent { count } => {
            let needed = (len + VALUE_HEADER_BYTES).div_ceil(space.geometry.segment_bytes());
            if class.is_some() || needed != u64::from(count) {
                return Err(bad("the value's length does not fit its extent"));
            }
            u64::from(count) << space.geometry.shift
        }
        SegmentKind::Values { class } => u64::from(classes.cut(class).slot_bytes),
        _ => return Err(bad("a leaf refers to a value in a segment that holds none")),
    };
    space
        .verify_block(offset, capacity, buffer)
        .ok_or_else(|| bad("the value does not have its checksum"))?;
    Ok((block, len))
}
