//! How much memory mappings take: pages of their own, as opposed to pages of a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Entries of /proc/self/pagemap read at once: those of 2 MiB.
const ENTRIES: usize = 512;
/// In an entry: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// In an entry: the page is in swap space.
const SWAPPED: u64 = 1 << 62;
/// In an entry: the page belongs to a file (or to memory that processes share).
const OF_A_FILE: u64 = 1 << 61;

/// This process's page map (Linux: /proc/self/pagemap).
#[derive(Debug)]
pub struct PageMap {
    file: File,
}

impl PageMap {
    /// Opens it.
    ///
    /// # Errors
    /// Those of open(2): no /proc.
    pub fn open() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/self/pagemap")? })
    }

    /// Bytes of the pages in `address..address + len` that take memory of their own: written pages of a private
    /// mapping, in memory or in swap space. Pages that show a file take none. (A page of zeros that was only read may
    /// be counted.) O(len).
    ///
    /// # Errors
    /// Those of read(2).
    pub fn own_bytes(&self, address: usize, len: usize) -> io::Result<usize> {
        let mut entries = [0; ENTRIES * 8];
        let (mut page, end) = (address / PAGE_BYTES, (address + len).div_ceil(PAGE_BYTES));
        let mut own = 0;
        while page < end {
            let bytes = &mut entries[..8 * ENTRIES.min(end - page)];
            self.file.read_exact_at(bytes, page as u64 * 8)?;
            let (words, _) = bytes.as_chunks::<8>();
            own += words.iter().filter(|word| is_own(u64::from_le_bytes(**word))).count();
            page += words.len();
        }
        Ok(own * PAGE_BYTES)
    }
}

fn is_own(entry: u64) -> bool {
    entry & (PRESENT | SWAPPED) != 0 && entry & OF_A_FILE == 0
}

/// Bytes of memory that this process has for itself, in all its mappings (Linux: /proc/self/statm). O(1), and only
/// roughly up to date.
///
/// # Errors
/// No /proc.
pub fn own_memory_bytes() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let field = |n: usize| text.split(' ').nth(n).and_then(|field| field.parse::<usize>().ok());
    match (field(1), field(2)) {
        (Some(resident), Some(shared)) => Ok(resident.saturating_sub(shared) * PAGE_BYTES),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm is not as documented")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reservation;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn only_written_pages_of_a_private_mapping_are_its_own() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 64 * PAGE_BYTES]).unwrap();
        let memory = Reservation::anonymous(64 * PAGE_BYTES).unwrap();
        memory.replace_by_private(0, memory.len(), file.as_fd(), 0).unwrap();
        let map = PageMap::open().unwrap();
        let base = memory.base().as_ptr();
        let own = || map.own_bytes(base as usize, memory.len()).unwrap();
        // SAFETY: inside the mapping.
        unsafe {
            assert!((0..64).all(|page| base.add(page * PAGE_BYTES).read_volatile() == 7));
            assert_eq!(own(), 0, "pages that were only read");
            for page in [3, 4, 60] {
                base.add(page * PAGE_BYTES).write_volatile(8);
            }
        }
        assert_eq!(own(), 3 * PAGE_BYTES);
        memory
            .replace_by_private(4 * PAGE_BYTES, 60 * PAGE_BYTES, file.as_fd(), 4 * PAGE_BYTES as u64)
            .unwrap();
        assert_eq!(own(), PAGE_BYTES, "what shows the file again");
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { [3, 4].map(|page| base.add(page * PAGE_BYTES).read_volatile()) }, [8, 7]);
    }

    #[test]
    fn written_memory_is_counted() {
        const BYTES: usize = 64 << 20;
        let before = own_memory_bytes().unwrap();
        let memory = vec![1u8; BYTES];
        let after = own_memory_bytes().unwrap();
        assert!(after >= before + BYTES / 2, "{before} {after} {}", memory.len());
    }
}
