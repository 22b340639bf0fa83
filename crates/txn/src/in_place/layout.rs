//! The bytes of memory that transactions change in place: header, undo log, data. docs/format/in-place.md describes
//! them in prose, and a test compares the two.
//!
//! Invariants:
//! 1. The words of the header's first line never change once its magic number is there.
//! 2. An entry lies in one cache line, and its count is stored last. Stores to one line persist in their order, so an
//!    entry that counts is whole.
//! 3. No count is given twice. So an entry of an earlier transaction never counts again.

use mangrove_pool::{Error, Region, Result, crc32c};
use std::path::Path;
use std::sync::atomic::Ordering;

/// The first word: "MGinplac".
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"MGinplac");
/// The format that this code writes.
pub(super) const VERSION: u64 = 1;
/// Data and undo log begin at multiples of it.
const PAGE_BYTES: u64 = 4096;

pub(super) const AT_MAGIC: u64 = 0;
pub(super) const AT_VERSION: u64 = 8;
pub(super) const AT_BYTES: u64 = 16;
pub(super) const AT_ENTRIES: u64 = 24;
pub(super) const AT_NONCE: u64 = 32;
pub(super) const AT_CRC: u64 = 40;
/// Bytes of the header: one line.
const HEADER_BYTES: usize = 64;
/// How many entries were ever cleared, as a counted word: one line of its own.
pub(super) const AT_CLEARED: u64 = 64;

/// The undo log.
pub(super) const AT_LOG: u64 = PAGE_BYTES;
/// Bytes of an entry: two fill a line.
pub(super) const ENTRY_BYTES: u64 = 32;
pub(super) const IN_ENTRY_PLACE: u64 = 0;
pub(super) const IN_ENTRY_OLD: u64 = 8;
pub(super) const IN_ENTRY_CRC: u64 = 16;
pub(super) const IN_ENTRY_COUNT: u64 = 24;

/// The most entries that an undo log can have.
pub const UNDO_ENTRIES_MAX: u64 = 1 << 24;

/// Bits of a counted word that hold the count; the others hold its check.
const COUNT_BITS: u32 = 48;
/// The largest count. Memory takes no entry after it; at 10 million entries a second it does not come within 300 days.
pub(super) const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Bits of an entry's place that hold the offset; the others hold the size, 0 for 8 bytes.
const OFFSET_BITS: u32 = 56;

/// What an entry undoes: `size` bytes at `offset` of the region held the low bytes of `old`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undo {
    pub(super) offset: u64,
    pub(super) size: usize,
    pub(super) old: u64,
}

impl Undo {
    pub(super) fn place(self) -> u64 {
        self.offset | ((self.size % 8) as u64) << OFFSET_BITS
    }

    pub(super) fn of(place: u64, old: u64) -> Self {
        let size = match (place >> OFFSET_BITS) as usize {
            0 => 8,
            size => size,
        };
        Self { offset: place & ((1 << OFFSET_BITS) - 1), size, old }
    }
}

/// The geometry: the content of the header's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InPlaceLayout {
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Entries of the undo log.
    pub(super) entries: u64,
    /// Distinguishes this memory's entries from any other's.
    pub(super) nonce: u64,
}

impl InPlaceLayout {
    fn words(&self) -> [(u64, u64); 4] {
        [(AT_VERSION, VERSION), (AT_BYTES, self.bytes), (AT_ENTRIES, self.entries), (AT_NONCE, self.nonce)]
    }

    fn crc(&self) -> u64 {
        u64::from(self.words().iter().fold(0, |crc, (_, word)| crc32c(crc, &word.to_le_bytes())))
    }

    /// Where an entry lies.
    pub(super) fn entry(&self, index: u64) -> u64 {
        AT_LOG + index * ENTRY_BYTES
    }

    /// Where the data begin.
    pub(super) fn data(&self) -> u64 {
        (AT_LOG + self.entries * ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of the region that are used.
    pub(super) fn end(&self) -> u64 {
        (self.data() + self.bytes).next_multiple_of(PAGE_BYTES)
    }

    fn check_of(&self, count: u64) -> u64 {
        let crc = crc32c(crc32c(1, &self.nonce.to_le_bytes()), &count.to_le_bytes());
        u64::from(crc) << COUNT_BITS
    }

    /// A count with its check.
    pub(super) fn counted(&self, count: u64) -> u64 {
        count | self.check_of(count)
    }

    /// The count of a counted word, 0 of one that was never stored; none of one that is damaged.
    pub(super) fn count_of(&self, word: u64) -> Option<u64> {
        let count = word & COUNT_MAX;
        (word == 0 || word == self.counted(count)).then_some(count)
    }

    /// The checksum of an entry with this count.
    pub(super) fn entry_crc(&self, place: u64, old: u64, count: u64) -> u64 {
        let words = [self.nonce, place, old, count];
        u64::from(words.iter().fold(2, |crc, word| crc32c(crc, &word.to_le_bytes())))
    }

    /// Makes the memory in a region that is all zero, or holds what a crash left of an earlier making.
    ///
    /// Durable-order: everything else before the magic number, which is stored last into the first line. Otherwise a
    /// crash could leave memory whose size is not known.
    pub(super) fn write(&self, region: &Region) -> Result<()> {
        region.grow(self.end())?;
        for (at, word) in self.words() {
            // Release, here and below: the order in which the line persists.
            region.store(at, word, Ordering::Release);
        }
        region.store(AT_CRC, self.crc(), Ordering::Release);
        region.store(AT_MAGIC, MAGIC, Ordering::Release);
        region.flush(AT_MAGIC, HEADER_BYTES);
        region.fence();
        region.drain()
    }

    /// Reads the header; `None` when the memory was not made, or its making not finished.
    ///
    /// # Errors
    /// `Corrupt` and `Newer`.
    pub(super) fn read(region: &Region, path: &Path) -> Result<Option<Self>> {
        let corrupt = |offset, what: &str| {
            Err(Error::Corrupt { path: path.join("image"), offset, what: what.to_owned() })
        };
        if region.len() < AT_LOG {
            return Ok(None);
        }
        // Relaxed, as below: no thread writes yet.
        let word = |at: u64| region.word(at).load(Ordering::Relaxed);
        match word(AT_MAGIC) {
            0 => return Ok(None),
            MAGIC => {}
            _ => return corrupt(AT_MAGIC, "its first bytes are not those of memory changed in place"),
        }
        if word(AT_VERSION) > VERSION {
            let found = u32::try_from(word(AT_VERSION)).unwrap_or(u32::MAX);
            return Err(Error::Newer { path: path.to_owned(), found, supported: VERSION as u32 });
        }
        let layout = Self { bytes: word(AT_BYTES), entries: word(AT_ENTRIES), nonce: word(AT_NONCE) };
        if word(AT_VERSION) != VERSION || word(AT_CRC) != layout.crc() {
            return corrupt(AT_VERSION, "the header does not fit its checksum");
        }
        if !(1..=UNDO_ENTRIES_MAX).contains(&layout.entries) {
            return corrupt(AT_ENTRIES, "an undo log of this length cannot be");
        }
        if layout.bytes > region.len() || layout.end() > region.len() {
            return corrupt(AT_BYTES, "the region is shorter than its header says");
        }
        Ok(Some(layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove_pool::Emulated;

    #[test]
    fn the_page_about_the_bytes_tells_the_same() {
        let page = include_str!("../../../../docs/format/in-place.md");
        let rows: Vec<(u64, u64, String)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned());
                Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?, cells.next()?))
            })
            .collect();
        let told: Vec<_> = rows.iter().map(|(at, bytes, field)| (*at, *bytes, field.as_str())).collect();
        let code = [
            (AT_MAGIC, 8, "magic"),
            (AT_VERSION, 8, "version"),
            (AT_BYTES, 8, "bytes"),
            (AT_ENTRIES, 8, "entries"),
            (AT_NONCE, 8, "nonce"),
            (AT_CRC, 8, "crc"),
            (AT_CLEARED, 8, "cleared"),
            (IN_ENTRY_PLACE, 8, "place"),
            (IN_ENTRY_OLD, 8, "old"),
            (IN_ENTRY_CRC, 8, "crc"),
            (IN_ENTRY_COUNT, 8, "count"),
        ];
        assert_eq!(told, code);
        for sentence in [
            format!("At {AT_LOG} begins the undo log: `entries` entries of {ENTRY_BYTES} bytes"),
            format!("The low {COUNT_BITS} bits"),
            format!("offset in the region in its low {OFFSET_BITS} bits"),
        ] {
            assert!(page.contains(&sentence), "{sentence}");
        }
        assert_eq!((&MAGIC.to_le_bytes(), VERSION), (b"MGinplac", 1));
    }

    #[test]
    fn a_counted_word_with_a_wrong_bit_is_none() {
        let layout = InPlaceLayout { bytes: 64, entries: 2, nonce: 77 };
        for count in [1, 2, 3, 1 << 20] {
            let word = layout.counted(count);
            assert_eq!(layout.count_of(word), Some(count));
            for bit in 0..64 {
                assert_eq!(layout.count_of(word ^ 1 << bit), None, "count {count}, bit {bit}");
            }
        }
        assert_eq!(layout.count_of(0), Some(0), "never stored");
    }

    #[test]
    fn an_undo_log_that_is_empty_or_too_long_is_refused() {
        for entries in [0, UNDO_ENTRIES_MAX + 1] {
            let region = Emulated::region(1 << 30).unwrap();
            InPlaceLayout { bytes: 64, entries, nonce: 77 }.write(&region).unwrap();
            let read = InPlaceLayout::read(&region, Path::new("p"));
            assert!(matches!(read, Err(Error::Corrupt { offset: AT_ENTRIES, .. })), "{entries}");
        }
    }

    #[test]
    fn a_place_holds_offset_and_size() {
        for size in 1..=8 {
            let undo = Undo { offset: 4096 + 8, size, old: 5 };
            assert_eq!(Undo::of(undo.place(), 5), undo);
        }
    }
}
