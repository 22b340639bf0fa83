//! Durable writes past the page cache on disks whose sectors are larger than those of the log.
//!
//! Such a disk refuses a write that is no multiple of its sector. The write is then widened to whole blocks: the bytes
//! around it are read, and written again as they are.
//!
//! Durable-order: a block may hold bytes that are durable already. They are written again unchanged, and a disk writes
//! a sector whole or not at all, so a power cut leaves the old or the new block. One widened write at a time: two of
//! one block would each write what the other has not written.

use crate::storage::traits::{BLOCK_BYTES, aligned};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Widens writes of one file.
#[derive(Debug, Default)]
pub(super) struct WideSectors {
    /// Memory for a widened write; a disk takes bytes from aligned memory only.
    buffer: Mutex<Vec<u8>>,
}

impl WideSectors {
    /// Writes `bytes` at `offset` by `direct`, which bypasses the page cache; `file` is the same file. False, and
    /// nothing written, where the whole blocks do not lie in the file.
    pub(super) fn write(&self, file: &File, direct: &File, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let end = offset + bytes.len() as u64;
        let blocks = offset / BLOCK_BYTES * BLOCK_BYTES..end.next_multiple_of(BLOCK_BYTES);
        if blocks.end > file.metadata()?.len() {
            return Ok(false);
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let len = (blocks.end - blocks.start) as usize;
        let wide = aligned(&mut buffer, len);
        let mut read = |part: Range<u64>| {
            let place = (part.start - blocks.start) as usize..(part.end - blocks.start) as usize;
            file.read_exact_at(&mut wide[place], part.start)
        };
        if offset > blocks.start {
            read(blocks.start..blocks.start + BLOCK_BYTES)?;
        }
        let last = blocks.end - BLOCK_BYTES;
        if end < blocks.end && (last > blocks.start || offset == blocks.start) {
            read(last..blocks.end)?;
        }
        wide[(offset - blocks.start) as usize..][..bytes.len()].copy_from_slice(bytes);
        direct.write_all_at(wide, blocks.start)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_widened_write_changes_its_own_bytes_only() {
        let mut file = tempfile::tempfile().unwrap();
        let mut expected: Vec<u8> = (0..5 * BLOCK_BYTES as usize).map(|i| i as u8 ^ (i >> 8) as u8).collect();
        io::Write::write_all(&mut file, &expected).unwrap();
        let wide = WideSectors::default();
        for (turn, (first, sectors)) in
            [(0, 1), (0, 8), (3, 2), (7, 1), (7, 2), (8, 8), (5, 20), (1, 30), (39, 1), (0, 40)]
                .into_iter()
                .enumerate()
        {
            let (at, bytes) = (first * 512, vec![turn as u8 + 100; sectors * 512]);
            assert!(wide.write(&file, &file, at as u64, &bytes).unwrap());
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == expected, "{sectors} sectors at {first}");
        }
        file.set_len(4096 + 512).unwrap();
        assert!(!wide.write(&file, &file, 4096, &[1; 512]).unwrap(), "the block does not lie in the file");
    }
}
