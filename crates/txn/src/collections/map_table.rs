//! The table of a hash map: which bucket holds a hash, how the table doubles, and what a bucket looks like.
//!
//! A table of level L has 2^L slots, and each points to a bucket or is null. Slot 0 points to one.
//!
//! 1. A bucket at slot `s` has a depth `d`: `s` is less than 2^d, and it holds the keys whose hashes end with the `d`
//!    bits of `s`, unless a slot of more bits is not null. So a lookup that finds a null slot clears its highest
//!    bit, and looks there.
//! 2. A bucket that is full gives half its keys to slot `s + 2^d`, if `d` is less than L; that is all that grows. If
//!    `d` is L, the table doubles first when its keys are many enough, and otherwise the bucket gets a chain.
//! 3. Doubling moves no key: the new half is null. Up to 2^9 slots are one block, the *page*; more are pages that are
//!    made when a bucket is put there, under a block that points to them. So doubling copies one word for 512 slots.
//!
//! (Extendible hashing: Fagin, Nievergelt, Pippenger, Strong, TODS 1979. Slots that stay null until their bucket
//! splits are those of split-ordered lists: Shalev and Shavit, JACM 2006.)

use super::reads::Reads;
use crate::heap::{HeapError, Ptr, Stop, Tx};

/// The level of a new table.
const LEVEL_FIRST: u32 = 3;
/// The level of the largest table.
const LEVEL_MAX: u32 = 40;
/// A page has 2 to this many slots.
pub(super) const PAGE_BITS: u32 = 9;
const PAGE_SLOTS: usize = 1 << PAGE_BITS;
/// In the word that describes a table: the address lies below, the level above.
pub(super) const LEVEL_SHIFT: u32 = 48;

/// Keys of a bucket.
pub(super) const BUCKET_KEYS: usize = 7;
/// Offset of the address of a bucket's next one in the chain; before it lies the word of tags.
pub(super) const AT_NEXT: usize = 8;
/// Offset of a bucket's keys and values.
pub(super) const AT_ENTRIES: usize = 16;
/// In the word of tags: a byte for each key, 0 if there is none, and the depth.
const DEPTH_SHIFT: u32 = 56;
const EACH_BYTE: u64 = 0x0001_0101_0101_0101;

/// The tag of a hash: never 0.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    (hash >> 56).max(1)
}

/// The word before a bucket's entries.
#[derive(Clone, Copy)]
pub(super) struct Tags(u64);

impl Tags {
    pub(super) const fn new(depth: u32) -> Self {
        Self((depth as u64) << DEPTH_SHIFT)
    }

    pub(super) fn depth(self) -> u32 {
        (self.0 >> DEPTH_SHIFT) as u32
    }

    pub(super) fn with_depth(self, depth: u32) -> Self {
        Self(self.0 & !(0xFF << DEPTH_SHIFT) | u64::from(depth) << DEPTH_SHIFT)
    }

    /// A bit in each byte that is zero, and in no other: a free entry may still hold a removed key, so that no free one
    /// may be taken for a candidate.
    #[inline(always)]
    fn zeros(bytes: u64) -> u64 {
        // Without the highest bits, the sums carry nothing into the next byte.
        let low_bits = EACH_BYTE * 0x7F;
        !(((bytes & low_bits) + low_bits) | bytes) & (EACH_BYTE << 7)
    }

    /// The entries in use that may have this hash, as bits for `next_of`.
    #[inline(always)]
    pub(super) fn candidates(self, hash: u64) -> u64 {
        Self::zeros(self.0 ^ (tag(hash) * EACH_BYTE))
    }

    /// The entries in use, as bits for `next_of`.
    pub(super) fn used(self) -> u64 {
        (0..BUCKET_KEYS)
            .filter(|at| self.0 >> (8 * at) & 0xFF != 0)
            .fold(0, |bits, at| bits | 0x80 << (8 * at))
    }

    pub(super) fn free_entry(self) -> Option<usize> {
        next_of(&mut Self::zeros(self.0))
    }

    pub(super) fn is_empty(self) -> bool {
        self.with_depth(0).0 == 0
    }

    pub(super) fn set(self, at: usize, hash: u64) -> Self {
        Self(self.0 | tag(hash) << (8 * at))
    }

    pub(super) fn clear(self, at: usize) -> Self {
        Self(self.0 & !(0xFF << (8 * at)))
    }
}

/// Takes the next entry out of a set.
#[inline(always)]
pub(super) fn next_of(bits: &mut u64) -> Option<usize> {
    if *bits == 0 {
        return None;
    }
    let at = bits.trailing_zeros() as usize / 8;
    *bits &= *bits - 1;
    Some(at)
}

/// The address of a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket(pub(super) usize);

impl Bucket {
    /// An empty bucket with space for `bytes` bytes in all.
    pub(super) fn make(tx: &mut Tx<'_>, bytes: usize, align: usize, depth: u32) -> Result<Self, Stop> {
        let bucket = Self(tx.alloc_bytes(bytes, align)?);
        bucket.set_tags(tx, Tags::new(depth))?;
        bucket.set_next(tx, None)?;
        Ok(bucket)
    }

    #[inline(always)]
    pub(super) fn tags<R: Reads>(self, reads: &mut R) -> Result<Tags, R::Stop> {
        Ok(Tags(reads.word(self.0)?))
    }

    pub(super) fn set_tags(self, tx: &mut Tx<'_>, tags: Tags) -> Result<(), Stop> {
        tx.write(Ptr::at(self.0), tags.0)
    }

    #[inline(always)]
    pub(super) fn next<R: Reads>(self, reads: &mut R) -> Result<Option<Self>, R::Stop> {
        let next = reads.word(self.0 + AT_NEXT)? as usize;
        Ok((next != 0).then_some(Self(next)))
    }

    pub(super) fn set_next(self, tx: &mut Tx<'_>, next: Option<Self>) -> Result<(), Stop> {
        tx.write(Ptr::at(self.0 + AT_NEXT), next.map_or(0, |next| next.0 as u64))
    }
}

/// A table: the word that describes it.
#[derive(Clone, Copy)]
pub(super) struct MapTable(u64);

impl MapTable {
    /// A table with one bucket at slot 0.
    pub(super) fn make(tx: &mut Tx<'_>, bucket: Bucket) -> Result<Self, Stop> {
        let page = tx.alloc_array::<u64>(1 << LEVEL_FIRST)?;
        tx.write(page, bucket.0 as u64)?;
        Self::of(page.address(), LEVEL_FIRST)
    }

    /// # Errors
    /// `Invalid` for an address that does not fit below the level.
    fn of(address: usize, level: u32) -> Result<Self, Stop> {
        let address = address as u64;
        if address >> LEVEL_SHIFT != 0 {
            let what = format!(
                "a HeapMap lies below address {:#x}, and this heap does not; create the heap at a lower address",
                1u64 << LEVEL_SHIFT
            );
            return Err(HeapError::Invalid { what }.into());
        }
        Ok(Self(address | u64::from(level) << LEVEL_SHIFT))
    }

    /// The table that the word at `at` describes.
    #[inline(always)]
    pub(super) fn read<R: Reads>(reads: &mut R, at: usize) -> Result<Self, R::Stop> {
        Ok(Self(reads.word(at)?))
    }

    pub(super) fn write(self, tx: &mut Tx<'_>, at: usize) -> Result<(), Stop> {
        tx.write(Ptr::at(at), self.0)
    }

    #[inline(always)]
    pub(super) fn level(self) -> u32 {
        (self.0 >> LEVEL_SHIFT) as u32
    }

    #[inline(always)]
    fn address(self) -> usize {
        (self.0 & ((1 << LEVEL_SHIFT) - 1)) as usize
    }

    pub(super) fn slots(self) -> usize {
        1 << self.level()
    }

    /// Whether all slots are one page.
    #[inline(always)]
    fn is_page(self) -> bool {
        self.level() <= PAGE_BITS
    }

    /// Where the address of the page with this slot lies, of a table with several.
    fn page_word(self, slot: usize) -> usize {
        self.address() + (slot >> PAGE_BITS) * 8
    }

    /// What a slot points to.
    #[inline(always)]
    fn slot<R: Reads>(self, reads: &mut R, slot: usize) -> Result<Option<Bucket>, R::Stop> {
        let page = if self.is_page() { self.address() } else { reads.word(self.page_word(slot))? as usize };
        let bucket = if page == 0 { 0 } else { reads.word(page + slot % PAGE_SLOTS * 8)? as usize };
        Ok((bucket != 0).then_some(Bucket(bucket)))
    }

    /// The slot and the bucket that are responsible for a hash. O(1) expected, O(level) at most.
    #[inline(always)]
    pub(super) fn find<R: Reads>(self, reads: &mut R, hash: u64) -> Result<(usize, Bucket), R::Stop> {
        let mut slot = hash as usize & (self.slots() - 1);
        loop {
            if let Some(bucket) = self.slot(reads, slot)? {
                return Ok((slot, bucket));
            }
            assert!(
                slot != 0,
                "slot 0 of a hash map's table is null: its handle is not that of a map in use"
            );
            slot ^= 1 << slot.ilog2();
        }
    }

    /// The first bucket at `from` or behind, with its slot.
    pub(super) fn next_bucket<R: Reads>(
        self,
        reads: &mut R,
        from: usize,
    ) -> Result<Option<(usize, Bucket)>, R::Stop> {
        let mut slot = from;
        while slot < self.slots() {
            if !self.is_page() && slot.is_multiple_of(PAGE_SLOTS) && reads.word(self.page_word(slot))? == 0 {
                slot += PAGE_SLOTS;
                continue;
            }
            if let Some(bucket) = self.slot(reads, slot)? {
                return Ok(Some((slot, bucket)));
            }
            slot += 1;
        }
        Ok(None)
    }

    /// Puts a bucket at a slot that is null.
    pub(super) fn put(self, tx: &mut Tx<'_>, slot: usize, bucket: Bucket) -> Result<(), Stop> {
        let mut page = self.address();
        if !self.is_page() {
            let word = Ptr::<u64>::at(self.page_word(slot));
            page = tx.read(word)? as usize;
            if page == 0 {
                page = tx.alloc_array::<u64>(PAGE_SLOTS)?.address();
                tx.write(word, page as u64)?;
            }
        }
        tx.write(Ptr::at(page + slot % PAGE_SLOTS * 8), bucket.0 as u64)
    }

    /// Whether a table of this level can become one of the next.
    pub(super) fn can_double(self) -> bool {
        self.level() < LEVEL_MAX
    }

    /// A table with twice the slots, the new half null; the blocks of this one are its own, or freed.
    pub(super) fn double(self, tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let old = Ptr::<u64>::at(self.address());
        let (words, grown) = match self.level() {
            level if level < PAGE_BITS => (1 << level, 2 << level),
            PAGE_BITS => {
                let pages = tx.alloc([old.address() as u64, 0])?;
                return Self::of(pages.address(), PAGE_BITS + 1);
            }
            level => (1 << (level - PAGE_BITS), 2 << (level - PAGE_BITS)),
        };
        let new = tx.alloc_array::<u64>(grown)?;
        for at in 0..words {
            let word = tx.read(old.add(at))?;
            tx.write(new.add(at), word)?;
        }
        tx.free(old)?;
        Self::of(new.address(), self.level() + 1)
    }

    /// Frees the blocks of the table, but no bucket.
    pub(super) fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        if !self.is_page() {
            for slot in (0..self.slots()).step_by(PAGE_SLOTS) {
                let page: u64 = tx.read(Ptr::at(self.page_word(slot)))?;
                if page != 0 {
                    tx.free_bytes(page as usize)?;
                }
            }
        }
        tx.free_bytes(self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte, in each place, behind a match: a borrow from a byte that matches must not make its neighbour one.
    #[test]
    fn only_entries_with_the_tag_are_candidates() {
        for tag in 1..=255u64 {
            for other in 0..=255u64 {
                for at in 0..BUCKET_KEYS - 1 {
                    let bytes = tag << (8 * at) | other << (8 * (at + 1));
                    let mut found = Tags(bytes | 9 << DEPTH_SHIFT).candidates(tag << 56);
                    let found: Vec<_> = std::iter::from_fn(|| next_of(&mut found)).collect();
                    let expected = if other == tag { vec![at, at + 1] } else { vec![at] };
                    assert_eq!(found, expected, "tag {tag:#x} at {at}, {other:#x} behind it");
                }
            }
        }
    }

    /// CPUs with five levels of page tables have such addresses, and a pool can be created there.
    #[test]
    fn an_address_that_does_not_fit_below_the_level_is_refused() {
        let last = (1usize << LEVEL_SHIFT) - 8;
        let table = MapTable::of(last, LEVEL_MAX).unwrap();
        assert_eq!((table.address(), table.level()), (last, LEVEL_MAX));
        for address in [last + 8, 1 << 52, (1 << 55) + 4096] {
            let stop = MapTable::of(address, LEVEL_FIRST).err().expect("it would name another place");
            assert!(matches!(stop.error(), Some(HeapError::Invalid { .. })), "{address:#x}: {stop:?}");
        }
    }

    #[test]
    fn tags_find_their_entries_and_free_ones() {
        let mut tags = Tags::new(5);
        let hashes = [0x11u64, 0x22, 0, 0x80, 0xFF, 0x11, 0x01].map(|byte| byte << 56);
        for (at, &hash) in hashes.iter().enumerate() {
            assert_eq!(tags.free_entry(), Some(at));
            tags = tags.set(at, hash);
        }
        assert_eq!((tags.free_entry(), tags.depth(), tags.is_empty()), (None, 5, false));
        assert_eq!(tags.used().count_ones(), 7);
        for (at, &hash) in hashes.iter().enumerate() {
            let mut found = tags.candidates(hash);
            assert!(std::iter::from_fn(|| next_of(&mut found)).any(|found| found == at));
        }
        assert_eq!(tags.candidates(0x33 << 56), 0);
        let emptied = (0..BUCKET_KEYS).fold(tags, Tags::clear);
        assert!(emptied.is_empty() && emptied.with_depth(6).depth() == 6 && emptied.depth() == 5);
    }
}
