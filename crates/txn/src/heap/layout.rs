//! The heap's first page; docs/format/heap.md describes it in prose. The arena follows it.

use mangrove_pool::crc32c;
use mangrove_shadow::Shadow;

/// The first word: "MGRVHEAP".
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"MGRVHEAP");
/// The format that this code writes.
pub(super) const VERSION: u64 = 1;

/// Offsets of the words before the roots.
pub(super) const AT_MAGIC: usize = 0;
pub(super) const AT_VERSION: usize = 8;
pub(super) const AT_BASE: usize = 16;
pub(super) const AT_CRC: usize = 24;

/// Where the slots of roots begin, and how long one is.
pub(super) const AT_ROOTS: usize = 64;
pub(super) const ROOT_BYTES: usize = 64;
/// In a slot: the name's length (0: free), the name, the pointer, the bytes of what it points to.
pub(super) const IN_ROOT_NAME: usize = 1;
pub(super) const IN_ROOT_POINTER: usize = 40;
pub(super) const IN_ROOT_SIZE: usize = 48;

/// Roots that a heap can have.
pub const ROOT_COUNT_MAX: usize = 63;
/// The longest name of a root in bytes.
pub const ROOT_NAME_BYTES_MAX: usize = IN_ROOT_POINTER - IN_ROOT_NAME;

/// Where the arena's head lies.
pub(super) const ARENA_OFFSET: u64 = 4096;

const _: () = assert!(AT_ROOTS + ROOT_COUNT_MAX * ROOT_BYTES == ARENA_OFFSET as usize);

/// The heap's first page.
///
/// # Safety
/// The first page is usable, and no thread writes it while the bytes are read.
pub(super) unsafe fn page(shadow: &Shadow) -> &[u8; ARENA_OFFSET as usize] {
    // SAFETY: the caller's promise; any address of bytes is aligned.
    unsafe { &*shadow.base().cast() }
}

/// Whether the first line holds nothing behind its checksum.
pub(super) fn is_blank_line(page: &[u8; ARENA_OFFSET as usize]) -> bool {
    page[AT_CRC + 8..AT_ROOTS].iter().all(|&byte| byte == 0)
}

/// The checksum of the words before it.
pub(super) fn crc(words: [u64; 3]) -> u64 {
    u64::from(words.iter().fold(0, |crc, word| crc32c(crc, &word.to_le_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_the_heap_tells_the_same() {
        let page = include_str!("../../../../docs/format/heap.md");
        let rows: Vec<(usize, usize, String)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned());
                let (offset, bytes) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
                Some((offset, bytes, cells.next()?))
            })
            .collect();
        let told: Vec<_> =
            rows.iter().map(|(offset, bytes, field)| (*offset, *bytes, field.as_str())).collect();
        let code = [
            (AT_MAGIC, 8, "magic"),
            (AT_VERSION, 8, "version"),
            (AT_BASE, 8, "base"),
            (AT_CRC, 8, "crc"),
            (AT_ROOTS, ROOT_COUNT_MAX * ROOT_BYTES, "roots"),
            (0, IN_ROOT_NAME, "length"),
            (IN_ROOT_NAME, ROOT_NAME_BYTES_MAX, "name"),
            (IN_ROOT_POINTER, 8, "pointer"),
            (IN_ROOT_SIZE, 8, "size"),
            (IN_ROOT_SIZE + 8, 8, ""),
        ];
        assert_eq!(told, code);
        assert!(page.contains(&format!("At offset {ARENA_OFFSET} begins")));
        assert_eq!((&MAGIC.to_le_bytes(), VERSION), (b"MGRVHEAP", 1));
    }
}
