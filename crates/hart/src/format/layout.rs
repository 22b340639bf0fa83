//! The bytes of a map in its region. docs/format/map.md specifies the same in prose; a test compares the two.
//!
//! Everything is little endian and made of 8-byte words, the unit that a medium writes atomically. Words that stand
//! alone carry a truncated CRC32C of themselves ([`seal`]).

use mangrove_pool::crc32c;

/// "MGRVMAP\0": the first word of a region that holds a map.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MGRVMAP\0");
/// Version of everything in this file.
pub(crate) const FORMAT_VERSION: u32 = 5;
/// Since this version the directory may lie in segments.
pub(crate) const VERSION_OF_MOVES: u32 = 4;
/// Since this version a chunk's header has removal words, which are zero in a fresh chunk.
pub(crate) const VERSION_OF_REMOVALS: u32 = 3;
/// In this version, and in a map that is being upgraded from it, a zero word means: no segment, no batch, a free slot.
pub(crate) const VERSION_OF_ZEROS: u32 = 1;

/// Bytes of the root page, at offset 0.
pub(crate) const ROOT_BYTES: u64 = 4096;
/// Words of the root line: magic, version and shift, segment count, offset of segment 0, 3 of zero, CRC.
pub(crate) const ROOT_MAGIC: u64 = 0;
/// Version in the low half, segment shift in the high half.
pub(crate) const ROOT_VERSION: u64 = 8;
/// Segments that the directory behind the root page has entries for.
pub(crate) const ROOT_SEGMENT_COUNT: u64 = 16;
/// Offset of segment 0.
pub(crate) const ROOT_DATA_START: u64 = 24;
/// CRC32C of the 56 bytes before, in the low half.
pub(crate) const ROOT_CRC: u64 = 56;
/// Sealed count of the segments that the medium ever provided; a line of its own.
pub(crate) const ROOT_HIGH_WATER: u64 = 64;
/// Sealed offset / 64 of the redo list of a committed batch; a line of its own. Sealed zero: no batch.
pub(crate) const ROOT_BATCH: u64 = 128;
/// Sealed number of the segment that the directory begins with, plus 1; a line of its own. Sealed zero: it lies behind
/// the root page.
pub(crate) const ROOT_DIRECTORY: u64 = 192;
/// The redo list of a small batch.
pub(crate) const ROOT_BATCH_AREA: u64 = 256;
/// Bytes of [`ROOT_BATCH_AREA`].
pub(crate) const ROOT_BATCH_AREA_BYTES: u64 = ROOT_BYTES - ROOT_BATCH_AREA;
/// The directory of a new map follows the root page.
pub(crate) const DIRECTORY: u64 = ROOT_BYTES;

/// Smallest and largest segment.
pub(crate) const SEGMENT_SHIFT_MIN: u32 = 12;
/// See [`SEGMENT_SHIFT_MIN`].
pub(crate) const SEGMENT_SHIFT_MAX: u32 = 24;
/// Most segments of a map.
pub(crate) const SEGMENT_COUNT_MAX: u64 = u32::MAX as u64 >> 4;
/// Offsets fit 46 bits.
pub(crate) const REGION_BYTES_MAX: u64 = 1 << 46;

/// Slots of a chunk (paper, section III-A.4).
pub(crate) const CHUNK_SLOTS: u32 = 56;
/// Bytes of a leaf chunk's header line; the paper's 8 bytes plus the identity word.
pub(crate) const CHUNK_HEADER_BYTES: u32 = 64;
/// The header's first word: bitmap, next free, full indicator.
pub(crate) const CHUNK_BITMAP: u64 = 0;
/// The header's second word: sealed class and place.
pub(crate) const CHUNK_IDENTITY: u64 = 8;
/// The header's third word: the slots that a batch removes.
pub(crate) const CHUNK_REMOVALS: u64 = 16;
/// The header's fourth word: number of that batch, and the checksum of number, place and third word.
pub(crate) const CHUNK_REMOVALS_SEAL: u64 = 24;
/// Bits of the number of a batch of removals.
pub(crate) const REMOVALS_NUMBER_BITS: u32 = 40;
/// The bitmap's bits in the header word.
pub(crate) const BITMAP_MASK: u64 = (1 << CHUNK_SLOTS) - 1;
/// Shift of the next free slot in the header word.
pub(crate) const NEXT_FREE_SHIFT: u32 = 56;
/// Shift of the full indicator: 0 when some slot is free, 1 when none is.
pub(crate) const FULL_SHIFT: u32 = 62;
/// Set in every header word, so that one without a set bit is not zero.
pub(crate) const CHUNK_MARK: u64 = 1 << 63;

/// The leaf's first word: key length, salt, and kind and CRC of the previous and the current value.
pub(crate) const LEAF_META: u64 = 0;
/// The leaf's second word: the value, or the offset of its block.
pub(crate) const LEAF_WORD: u64 = 8;
/// The key follows.
pub(crate) const LEAF_KEY: u64 = 16;

/// A value block's only header word: length in the low half, CRC32C of length and bytes in the high.
pub(crate) const VALUE_HEADER_BYTES: u64 = 8;

/// A redo list's first word: entry count in the low half, CRC32C of count, place and entries in the high.
pub(crate) const REDO_HEADER_BYTES: u64 = 8;
/// Then entries of three words: offset and operation, and two operands.
pub(crate) const REDO_ENTRY_BYTES: u64 = 24;
/// Operation in the entry's low bits: clear the third word's bits of a chunk's bitmap, set the second word's.
pub(crate) const REDO_BITS: u64 = 0;
/// Operation: store the second and third word as a leaf's meta and word.
pub(crate) const REDO_LEAF: u64 = 1;
/// Operation: clear the bits in the removal words of the chunks, as many as the third word says, that have the number
/// in the second word.
pub(crate) const REDO_REMOVALS: u64 = 2;

const _: () = {
    assert!(LEAF_WORD == LEAF_META + 8 && LEAF_KEY == LEAF_WORD + 8);
    assert!(CHUNK_IDENTITY == CHUNK_BITMAP + 8);
    assert!(CHUNK_REMOVALS == CHUNK_IDENTITY + 8 && CHUNK_REMOVALS_SEAL == CHUNK_REMOVALS + 8);
    assert!(CHUNK_HEADER_BYTES == 64 && CHUNK_SLOTS == 56);
    assert!(NEXT_FREE_SHIFT == CHUNK_SLOTS && FULL_SHIFT == NEXT_FREE_SHIFT + 6);
    assert!(CHUNK_MARK == 1 << (FULL_SHIFT + 1));
    assert!(ROOT_HIGH_WATER == 64 && ROOT_BATCH == 128 && ROOT_DIRECTORY == 192);
    assert!(
        ROOT_BATCH_AREA.is_multiple_of(64)
            && (ROOT_BATCH_AREA_BYTES - REDO_HEADER_BYTES) / REDO_ENTRY_BYTES == 159
    );
    assert!(ROOT_CRC + 8 == 64, "the root's fixed words are one cache line");
};

/// What a segment holds, according to its directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// Nothing.
    Free,
    /// Chunks of leaves of one class.
    Leaves {
        /// Class number, 1-based.
        class: u8,
    },
    /// Blocks of values of one class.
    Values {
        /// Class number, 1-based, leaf classes included.
        class: u8,
    },
    /// The first of `count` segments that hold one large value.
    Extent {
        /// Segments.
        count: u32,
    },
    /// The first of `count` segments that hold a directory: that of the map, or one which it has given up.
    Directory {
        /// Segments.
        count: u32,
    },
}

const KIND_LEAVES: u64 = 1;
const KIND_VALUES: u64 = 2;
const KIND_EXTENT: u64 = 3;
const KIND_FREE: u64 = 4;
const KIND_DIRECTORY: u64 = 5;

/// What a sealed word describes; part of its CRC, so that a word in the wrong place does not verify.
#[derive(Clone, Copy)]
pub(crate) enum Tag {
    /// [`ROOT_HIGH_WATER`].
    HighWater,
    /// [`ROOT_BATCH`].
    Batch,
    /// [`ROOT_DIRECTORY`].
    Place,
    /// The directory entry of a segment.
    Directory(u32),
    /// The identity of a chunk of a segment.
    Chunk(u32),
}

impl Tag {
    fn number(self) -> u64 {
        match self {
            Self::HighWater => 1 << 56,
            Self::Batch => 2 << 56,
            Self::Directory(segment) => 3 << 56 | u64::from(segment),
            Self::Chunk(segment) => 4 << 56 | u64::from(segment),
            // 5 is that of `removals_seal`.
            Self::Place => 6 << 56,
        }
    }
}

const SEAL_BITS: u32 = 24;

fn seal_of(tag: Tag, value: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&tag.number().to_le_bytes());
    bytes[8..].copy_from_slice(&value.to_le_bytes());
    u64::from(crc32c(0, &bytes)) & ((1 << SEAL_BITS) - 1)
}

/// A word that carries 40 bits and their CRC. It is never zero: a zero word verifies nowhere.
pub(crate) fn seal(tag: Tag, value: u64) -> u64 {
    assert!(value < 1 << (64 - SEAL_BITS), "a sealed word carries 40 bits");
    value << SEAL_BITS | seal_of(tag, value)
}

/// The bits that [`seal`] put in, or none when the word does not verify.
pub(crate) fn unseal(tag: Tag, word: u64) -> Option<u64> {
    let value = word >> SEAL_BITS;
    (word != 0 && word & ((1 << SEAL_BITS) - 1) == seal_of(tag, value)).then_some(value)
}

/// The directory entry of `segment`.
pub(crate) fn encode_kind(segment: u32, kind: SegmentKind) -> u64 {
    let value = match kind {
        SegmentKind::Free => KIND_FREE,
        SegmentKind::Leaves { class } => KIND_LEAVES | u64::from(class) << 4,
        SegmentKind::Values { class } => KIND_VALUES | u64::from(class) << 4,
        SegmentKind::Extent { count } => KIND_EXTENT | u64::from(count) << 12,
        SegmentKind::Directory { count } => KIND_DIRECTORY | u64::from(count) << 12,
    };
    seal(Tag::Directory(segment), value)
}

/// The inverse of [`encode_kind`]; none when the word does not verify.
pub(crate) fn decode_kind(segment: u32, word: u64) -> Option<SegmentKind> {
    let value = unseal(Tag::Directory(segment), word)?;
    let class = (value >> 4 & 0xff) as u8;
    let count = (value >> 12) as u32;
    match value & 0xf {
        KIND_FREE if value == KIND_FREE => Some(SegmentKind::Free),
        KIND_LEAVES if count == 0 && class != 0 => Some(SegmentKind::Leaves { class }),
        KIND_VALUES if count == 0 && class != 0 => Some(SegmentKind::Values { class }),
        KIND_EXTENT if class == 0 && count != 0 => Some(SegmentKind::Extent { count }),
        KIND_DIRECTORY if class == 0 && count != 0 => Some(SegmentKind::Directory { count }),
        _ => None,
    }
}

/// The identity word of a leaf chunk.
pub(crate) fn chunk_identity(segment: u32, class: u8, chunk: u32) -> u64 {
    seal(Tag::Chunk(segment), u64::from(class) << 32 | u64::from(chunk))
}

/// The seal word of a chunk of which the batch with this number removes the slots `mask`.
pub(crate) fn removals_seal(segment: u32, chunk: u32, number: u64, mask: u64) -> u64 {
    const TAG: u64 = 5 << 56;
    assert!(number >> REMOVALS_NUMBER_BITS == 0, "the number of a batch has 40 bits");
    let mut bytes = [0; 32];
    for (place, word) in [TAG | u64::from(segment), u64::from(chunk), number, mask].into_iter().enumerate() {
        bytes[place * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    number << SEAL_BITS | u64::from(crc32c(0, &bytes)) & ((1 << SEAL_BITS) - 1)
}

/// The number of the batch that removes the slots `mask`, or none when the seal word does not verify.
pub(crate) fn removals_number(segment: u32, chunk: u32, mask: u64, word: u64) -> Option<u64> {
    let number = word >> SEAL_BITS;
    (word != 0 && word == removals_seal(segment, chunk, number, mask)).then_some(number)
}

/// The header word of a leaf chunk of `slots` slots with this bitmap (paper, Fig. 2).
#[inline]
pub(crate) fn chunk_word(bitmap: u64, slots: u32) -> u64 {
    let next = (!bitmap).trailing_zeros();
    let rest = if next >= slots { 1 << FULL_SHIFT } else { u64::from(next) << NEXT_FREE_SHIFT };
    CHUNK_MARK | bitmap | rest
}

/// Where segments lie in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Offset of segment 0.
    pub(crate) data_start: u64,
    /// Bytes of a segment as a power of two.
    pub(crate) shift: u32,
    /// Segments that fit the region and the directory.
    pub(crate) segment_count: u32,
    /// Offset of the directory.
    pub(crate) directory: u64,
}

impl Geometry {
    /// As many segments of `1 << shift` bytes as fit `region_bytes` with their directory.
    pub(crate) fn of_region(region_bytes: u64, shift: u32) -> Option<Self> {
        let whole = region_bytes.min(REGION_BYTES_MAX).checked_sub(ROOT_BYTES)?;
        let mut count = (whole / ((1 << shift) + 8)).min(SEGMENT_COUNT_MAX);
        while count > 0 {
            let data_start = Self::data_start(count);
            if data_start + (count << shift) <= region_bytes {
                let segment_count = count as u32;
                return Some(Self { data_start, shift, segment_count, directory: DIRECTORY });
            }
            count -= 1;
        }
        None
    }

    /// What a root with these words describes, if that is possible: [`ROOT_VERSION`], [`ROOT_SEGMENT_COUNT`] and
    /// [`ROOT_DATA_START`]. The directory is taken to follow the root page.
    pub(crate) fn of_root(version: u64, count: u64, data_start: u64) -> Option<Self> {
        let shift = (version >> 32) as u32;
        let possible = (SEGMENT_SHIFT_MIN..=SEGMENT_SHIFT_MAX).contains(&shift)
            && (1..=SEGMENT_COUNT_MAX).contains(&count)
            && data_start == Self::data_start(count);
        possible.then_some(Self { data_start, shift, segment_count: count as u32, directory: DIRECTORY })
    }

    /// Offset of segment 0 after a directory of `count` entries.
    pub(crate) fn data_start(count: u64) -> u64 {
        (DIRECTORY + count * 8).next_multiple_of(4096)
    }

    /// Segments that fit `region_bytes`, whatever the directory has entries for.
    pub(crate) fn segments_in(&self, region_bytes: u64) -> u32 {
        let bytes = region_bytes.min(REGION_BYTES_MAX).saturating_sub(self.data_start);
        (bytes >> self.shift).min(SEGMENT_COUNT_MAX) as u32
    }

    /// Offset of the directory entry of `segment`.
    #[inline]
    pub(crate) fn directory_entry(&self, segment: u32) -> u64 {
        self.directory + u64::from(segment) * 8
    }

    /// True when the directory begins in `segment`.
    pub(crate) fn is_directory(&self, segment: u32) -> bool {
        self.directory == self.start(segment)
    }

    /// Bytes of a segment.
    #[inline]
    pub(crate) fn segment_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Offset of a segment.
    #[inline]
    pub(crate) fn start(&self, segment: u32) -> u64 {
        self.data_start + (u64::from(segment) << self.shift)
    }

    /// The segment that holds `offset`, and the place in it. `offset` must not lie before segment 0.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (u32, u32) {
        let relative = offset - self.data_start;
        ((relative >> self.shift) as u32, (relative & ((1 << self.shift) - 1)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_words_verify_only_in_their_place() {
        let word = encode_kind(7, SegmentKind::Leaves { class: 3 });
        assert_eq!(decode_kind(7, word), Some(SegmentKind::Leaves { class: 3 }));
        assert_eq!(decode_kind(8, word), None);
        for bit in 0..64 {
            assert_eq!(decode_kind(7, word ^ 1 << bit), None, "bit {bit}");
        }
        for kind in [
            SegmentKind::Free,
            SegmentKind::Values { class: 85 },
            SegmentKind::Extent { count: 1 << 27 },
            SegmentKind::Directory { count: 3 },
        ] {
            assert_eq!(decode_kind(1, encode_kind(1, kind)), Some(kind));
        }
    }

    #[test]
    fn header_words_say_what_is_free() {
        assert_eq!(chunk_word(0, 56), 1 << 63);
        assert_eq!(chunk_word(0b1011, 56), 1 << 63 | 0b1011 | 2 << 56);
        assert_eq!(chunk_word(BITMAP_MASK, 56), 1 << 63 | BITMAP_MASK | 1 << 62);
        assert_eq!(chunk_word(0b111, 3), 1 << 63 | 0b111 | 1 << 62);
    }

    #[test]
    fn a_zero_word_means_nothing() {
        for tag in [Tag::HighWater, Tag::Batch, Tag::Place, Tag::Directory(0), Tag::Chunk(0)] {
            assert_eq!(unseal(tag, 0), None);
        }
        for tag in [Tag::HighWater, Tag::Batch, Tag::Place] {
            assert_eq!(unseal(tag, seal(tag, 0)), Some(0));
        }
        assert_eq!(decode_kind(0, 0), None);
        assert!((0..1000).all(|segment| encode_kind(segment, SegmentKind::Free) != 0));
        assert_ne!(chunk_word(0, 56), 0);
    }

    #[test]
    fn the_format_document_names_these_numbers() {
        let text = include_str!("../../../../docs/format/map.md");
        for wanted in [
            format!("format version {FORMAT_VERSION}"),
            format!("root page of {ROOT_BYTES} bytes"),
            format!("| {ROOT_HIGH_WATER} | high water"),
            format!("| {ROOT_BATCH} | batch word"),
            format!("| {ROOT_DIRECTORY} | place of the directory"),
            format!("| {ROOT_BATCH_AREA} | batch area"),
            format!("{CHUNK_SLOTS} slots"),
            format!("header line of {CHUNK_HEADER_BYTES} bytes"),
            format!("| {REDO_REMOVALS} | clear"),
            format!("| {KIND_FREE} | nothing"),
            format!("| {KIND_DIRECTORY} | the first of"),
            format!("`{:#018x}`", crate::format::leaf::Meta::FREE.0),
            format!("entries of {REDO_ENTRY_BYTES} bytes"),
            format!("leaf classes are {:?}", crate::format::size_class::LEAF_BYTES),
            format!("{:?} bytes a slot, numbered from 128", crate::format::size_class::ADDED_LEAF_BYTES),
        ] {
            assert!(text.contains(&wanted), "docs/format/map.md does not say: {wanted}");
        }
    }

    #[test]
    fn the_geometry_fits_the_region() {
        for shift in SEGMENT_SHIFT_MIN..=SEGMENT_SHIFT_MAX {
            for bytes in [1u64 << 20, (1 << 26) + 12345, 1 << 36] {
                if let Some(g) = Geometry::of_region(bytes, shift) {
                    assert!(g.start(g.segment_count) <= bytes);
                    assert!(g.start(g.segment_count + 2) > bytes, "wastes space");
                }
            }
        }
    }
}
