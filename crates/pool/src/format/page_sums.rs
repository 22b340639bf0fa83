//! The page checksums: 4 bytes for each 4 KiB page of the data file, in the file `sums`.
//!
//! Invariants:
//! 1. The checksum of a page of zeros is 0, and of no other page: a hole in either file is consistent.
//! 2. Entries are little endian and aligned, so a torn write leaves each entry old or new.

use crate::damage_check::DamageCheck;
use crate::format::superblock::Superblock;
use crate::limits::cannot_map;
use crate::{Error, Result, crc32c};
use mangrove_sys::Reservation;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of one page of the data file.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of one checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Pages whose checksums share one block of the file `sums`.
pub(crate) const PAGES_PER_BLOCK: u64 = (PAGE_BYTES / CHECKSUM_BYTES) as u64;

static ZERO_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

fn zero_crc() -> u32 {
    static CRC: AtomicU32 = AtomicU32::new(0);
    // Relaxed: every thread computes the same number; 0 means not yet.
    match CRC.load(Ordering::Relaxed) {
        0 => {
            let crc = crc32c(0, &ZERO_PAGE);
            CRC.store(crc, Ordering::Relaxed);
            crc
        }
        crc => crc,
    }
}

/// The checksum of one page.
pub(crate) fn page_checksum(page: &[u8]) -> u32 {
    debug_assert_eq!(page.len(), PAGE_BYTES);
    let sum = crc32c(0, page) ^ zero_crc();
    // One page in four billion has the zero page's CRC without being it.
    if sum == 0 && page != ZERO_PAGE { 1 } else { sum }
}

/// The page checksums in memory.
pub(crate) struct PageChecksums {
    memory: Reservation,
    pages: u64,
}

impl PageChecksums {
    /// All zero, for a data file of up to `capacity` bytes. `path` is the pool.
    ///
    /// # Errors
    /// `MemoryLimit`: the process may not have so much address space.
    pub(crate) fn new(path: &Path, capacity: u64) -> Result<Self> {
        let pages = capacity / PAGE_BYTES as u64;
        let len = (pages as usize * CHECKSUM_BYTES).next_multiple_of(PAGE_BYTES);
        let memory = Reservation::anonymous(len).map_err(|e| cannot_map(path, len as u64, &e))?;
        Ok(Self { memory, pages })
    }

    fn entry(&self, page: u64) -> &AtomicU32 {
        assert!(page < self.entries(), "page {page} beyond the capacity");
        // SAFETY: inside the reservation, aligned (4 bytes times an index from a page boundary), and
        // every access to it is through this function or `bytes_mut`, which takes `&mut self`.
        unsafe { AtomicU32::from_ptr(self.memory.base().as_ptr().add(page as usize * CHECKSUM_BYTES).cast()) }
    }

    /// Entries in memory: those of the pages, and those that fill up the last block.
    pub(crate) fn entries(&self) -> u64 {
        (self.memory.len() / CHECKSUM_BYTES) as u64
    }

    /// Pages that have a checksum.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    pub(crate) fn get(&self, page: u64) -> u32 {
        // Relaxed: a thread that changes checksums holds the checkpointer's lock; readers come before or after it.
        u32::from_le(self.entry(page).load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, page: u64, sum: u32) {
        // Relaxed: see `get`.
        self.entry(page).store(sum.to_le(), Ordering::Relaxed);
    }

    /// The entries as the bytes of the file, to be read into.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.memory.len());
        // SAFETY: inside the reservation, and `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().as_ptr().add(range.start), range.len()) }
    }

    /// A number that depends on the checksums of the first `pages` pages and on `seed`, and is never 0. It
    /// distinguishes the checksums of one closing from those of another, and of another pool.
    pub(crate) fn digest(&self, pages: u64, seed: u32) -> u64 {
        let mut digest = u64::from(seed);
        for page in (0..pages.min(self.pages)).filter(|&page| self.get(page) != 0) {
            // The finaliser of SplitMix64: each summand depends on every bit of the entry and of its place.
            let mut x = page << 32 | u64::from(self.get(page));
            x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            digest = digest.wrapping_add(x ^ x >> 31);
        }
        digest.max(1)
    }

    /// As [`Self::digest`], of pages that are all zero.
    pub(crate) fn digest_of_none(seed: u32) -> u64 {
        u64::from(seed).max(1)
    }

    /// Bytes of the first `pages` pages that are not zero.
    pub(crate) fn bytes_in_use(&self, pages: u64) -> u64 {
        let used = (0..pages.min(self.pages)).filter(|&page| self.get(page) != 0).count();
        (used * PAGE_BYTES) as u64
    }

    /// For a clean pool: fails unless these are the checksums that it was closed with.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn are_of(&self, sb: &Superblock, image_bytes: u64, path: &Path) -> Result<()> {
        let known = sb.clean && sb.sums_digest != 0 && DamageCheck::ChecksumsDigest.is_on();
        if !known || self.digest(image_bytes / PAGE_BYTES as u64, sb.seed()) == sb.sums_digest {
            return Ok(());
        }
        Err(Error::Corrupt {
            path: path.to_owned(),
            offset: 0,
            what: "these are not the page sums that the pool was closed with: the files of a pool belong together, \
                   and here are some of another pool, or of an older copy of this one"
                .into(),
        })
    }

    /// Bytes of the checksums of `pages` pages, in whole blocks.
    pub(crate) fn file_bytes(pages: u64) -> u64 {
        pages.div_ceil(PAGES_PER_BLOCK) * PAGE_BYTES as u64
    }

    /// Encodes one block of the file.
    pub(crate) fn block(&self, block: u64, to: &mut [u8]) {
        let first = block * PAGES_PER_BLOCK;
        for (i, entry) in to.chunks_exact_mut(CHECKSUM_BYTES).enumerate() {
            let page = first + i as u64;
            let sum = if page < self.pages { self.get(page) } else { 0 };
            entry.copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_zero_page_has_sum_zero() {
        let mut page = vec![0; PAGE_BYTES];
        assert_eq!(page_checksum(&page), 0);
        for at in [0, 1, 4095] {
            page[at] = 1;
            assert_ne!(page_checksum(&page), 0);
            page[at] = 0;
        }
    }

    #[test]
    fn a_block_holds_the_sums_set() {
        let sums = PageChecksums::new(Path::new("p"), 64 << 10).unwrap();
        sums.set(3, 0x0102_0304);
        let mut block = vec![9; PAGE_BYTES];
        sums.block(0, &mut block);
        assert_eq!(&block[12..16], &[4, 3, 2, 1]);
        assert!(block[16..].iter().all(|&b| b == 0));
    }
}
