//! Finds records in a map that was closed, before it is recovered.
//!
//! Invariants:
//! 1. What a lookup returns is the record's value at the closing. The pool compares each page that is read with its
//!    checksum; and here the leaf lies where the directory has leaves, in a slot that is in service, and has its own
//!    checksum, as has its value.
//! 2. A lookup never says that a key is absent. The order by which it searches may be damaged: then it finds less.

use crate::KEY_BYTES_MAX;
use crate::VALUE_BYTES_MAX;
use crate::format::layout::{
    CHUNK_BITMAP, FORMAT_VERSION, Geometry, LEAF_KEY, LEAF_META, LEAF_WORD, MAGIC, ROOT_BATCH, ROOT_BYTES,
    ROOT_CRC, ROOT_DATA_START, ROOT_DIRECTORY, ROOT_HIGH_WATER, ROOT_MAGIC, ROOT_SEGMENT_COUNT, ROOT_VERSION,
    SegmentKind, Tag, VALUE_HEADER_BYTES, decode_kind, unseal,
};
use crate::format::leaf::{INLINE_BYTES_MAX, Meta, SLOT_VALUE_BYTES_MAX, slot_value_len, value_at};
use crate::format::size_class::Classes;
use crate::format::space::value_crc;
use crate::recovery::leaf_order::{ENTRY_BYTES, LEAF_UNIT_BYTES};
use mangrove_pool::{ClosedPool, crc32c};
use std::cmp::Ordering;

const PAGE_BYTES: usize = ClosedPool::PAGE_BYTES;

/// A map that was closed and left the order of its leaves.
pub struct ClosedMap {
    pool: ClosedPool,
    geometry: Geometry,
    classes: Classes,
    high_water: u32,
    /// Records.
    count: u64,
}

impl std::fmt::Debug for ClosedMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClosedMap").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Reads the pool's bytes through the page that was read last.
struct Pages<'a> {
    pool: &'a ClosedPool,
    /// The page's number plus 1; 0: none.
    held: u64,
    bytes: [u8; PAGE_BYTES],
}

impl<'a> Pages<'a> {
    fn new(pool: &'a ClosedPool) -> Self {
        Self { pool, held: 0, bytes: [0; PAGE_BYTES] }
    }

    /// Fills `to` with the bytes at `offset`.
    fn read(&mut self, offset: u64, to: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < to.len() {
            let at = offset.checked_add(done as u64)?;
            let (page, within) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            if self.held != page + 1 {
                self.held = 0;
                self.pool.read_page(page, &mut self.bytes).then_some(())?;
                self.held = page + 1;
            }
            let len = (PAGE_BYTES - within).min(to.len() - done);
            to[done..done + len].copy_from_slice(&self.bytes[within..within + len]);
            done += len;
        }
        Some(())
    }

    fn word(&mut self, offset: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// A leaf's words and key.
struct ClosedLeaf {
    offset: u64,
    meta: Meta,
    word: u64,
    key: [u8; KEY_BYTES_MAX],
}

impl ClosedLeaf {
    const EMPTY: Self = Self { offset: 0, meta: Meta(0), word: 0, key: [0; KEY_BYTES_MAX] };

    fn key(&self) -> &[u8] {
        &self.key[..self.meta.key_len().min(KEY_BYTES_MAX)]
    }
}

impl ClosedMap {
    /// The map in `pool`. None where it must be recovered first: it has another version, a committed batch, or what
    /// recovery has to report.
    #[must_use]
    pub fn open(pool: ClosedPool) -> Option<Self> {
        let mut pages = Pages::new(&pool);
        let mut root = [0; ROOT_BYTES as usize];
        pages.read(0, &mut root)?;
        let mut word = |at: u64| pages.word(at);
        let (version, count) = (word(ROOT_VERSION)?, word(ROOT_SEGMENT_COUNT)?);
        let is_sound = word(ROOT_MAGIC)? == MAGIC
            && version as u32 == FORMAT_VERSION
            && word(ROOT_CRC)? == u64::from(crc32c(0, &root[..ROOT_CRC as usize]))
            && unseal(Tag::Batch, word(ROOT_BATCH)?) == Some(0);
        if !is_sound {
            return None;
        }
        let mut geometry = Geometry::of_root(version, count, word(ROOT_DATA_START)?)?;
        let high_water = unseal(Tag::HighWater, word(ROOT_HIGH_WATER)?)? as u32;
        if let Some(first) = unseal(Tag::Place, word(ROOT_DIRECTORY)?)?.checked_sub(1) {
            geometry.directory =
                geometry.start(u32::try_from(first).ok().filter(|first| *first < high_water)?);
        }
        let classes = Classes::new(&geometry);
        let count = pool.index().len() / ENTRY_BYTES as u64;
        Some(Self { pool, geometry, classes, high_water, count })
    }

    /// The value of `key`. None where it is not found: whether the key is absent, only the recovered map tells. Time:
    /// about two reads of the files for each doubling of the number of records.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (mut low, mut high) = (0, self.count);
        let (mut pages, mut leaf) = (Pages::new(&self.pool), ClosedLeaf::EMPTY);
        while low < high {
            let middle = low + (high - low) / 2;
            self.read_leaf(middle, &mut pages, &mut leaf)?;
            match leaf.key().cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return self.value(&leaf, &mut pages),
            }
        }
        None
    }

    /// Reads the leaf that stands at `number` in the order.
    fn read_leaf(&self, number: u64, pages: &mut Pages<'_>, leaf: &mut ClosedLeaf) -> Option<()> {
        let mut entry = [0; 8];
        self.pool.index().read(number * ENTRY_BYTES as u64, &mut entry[..ENTRY_BYTES]).then_some(())?;
        leaf.offset = u64::from_le_bytes(entry) * LEAF_UNIT_BYTES;
        leaf.meta = Meta(pages.word(leaf.offset + LEAF_META)?);
        leaf.word = pages.word(leaf.offset + LEAF_WORD)?;
        let len = leaf.meta.key_len();
        pages.read(leaf.offset + LEAF_KEY, leaf.key.get_mut(..len)?)
    }

    /// The value of a leaf, if it is one that is in use.
    fn value(&self, leaf: &ClosedLeaf, pages: &mut Pages<'_>) -> Option<Vec<u8>> {
        let slot_bytes = self.slot_in_use(leaf.offset, pages)?;
        let (key_len, key) = (leaf.meta.key_len(), leaf.key());
        let (_, value) = leaf.meta.settle(key, leaf.word)?;
        if value.leaf_bytes(key_len) > slot_bytes {
            return None;
        }
        if usize::from(value.kind) <= INLINE_BYTES_MAX {
            return Some(value.word.to_le_bytes()[..usize::from(value.kind)].to_vec());
        }
        let (at, len, crc) = match value.block_offset() {
            None => {
                let len = slot_value_len(value.word);
                (
                    leaf.offset + value_at(key_len) as u64,
                    (len <= SLOT_VALUE_BYTES_MAX).then_some(len)?,
                    value.word >> 32,
                )
            }
            Some(block) => {
                let head = pages.word(block)?;
                let len = (head & 0xffff_ffff) as usize;
                (block.checked_add(VALUE_HEADER_BYTES)?, (len <= VALUE_BYTES_MAX).then_some(len)?, head >> 32)
            }
        };
        if at + len as u64 > self.pool.len() {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        pages.read(at, &mut bytes)?;
        (u64::from(value_crc(&bytes)) == crc).then_some(bytes)
    }

    /// The bytes of the slot at `offset`, if it is one of leaves and its chunk has it in service.
    fn slot_in_use(&self, offset: u64, pages: &mut Pages<'_>) -> Option<usize> {
        if offset < self.geometry.data_start {
            return None;
        }
        let (segment, place) = self.geometry.locate(offset);
        if segment >= self.high_water {
            return None;
        }
        let kind = decode_kind(segment, pages.word(self.geometry.directory_entry(segment))?)?;
        let SegmentKind::Leaves { class } = kind else { return None };
        let cut = self.classes.checked(class, true)?;
        let (chunk, slot) = cut.slot_at(place)?;
        let header = self.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
        (pages.word(header + CHUNK_BITMAP)? >> slot & 1 == 1).then_some(cut.slot_bytes as usize)
    }
}
