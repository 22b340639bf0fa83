//! A file of records: blocks, each with a byte that says whether it is compressed, and a checksum; then an index of
//! them; then 48 bytes that say where the index is (LevelDB's doc/table_format.md).

use super::block::BlockCursor;
use super::unread::UnreadReason;
use crate::transfer::foreign::Decompress;
use crate::transfer::manifest::{masked, number};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FOOTER_BYTES: usize = 48;
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// After each block: how it is compressed, and a checksum.
const TRAILER_BYTES: usize = 5;
const STORED: u8 = 0;
const SNAPPY: u8 = 1;
/// No block of Snappy's becomes more times as long: 64 bytes for 3.
const SNAPPY_TIMES_MAX: usize = 24;
/// Bytes that are read at a time, little enough for the processor's cache.
const WINDOW_BYTES: usize = 256 << 10;

/// A file of records, at one of them.
pub(super) struct RecordFile<'a> {
    file: File,
    bytes: u64,
    decompress: &'a Decompress,
    /// A part of the file, and where it begins.
    window: Vec<u8>,
    window_at: u64,
    index: Vec<u8>,
    in_index: BlockCursor,
    /// The block that was read last, if it was compressed.
    unpacked: Vec<u8>,
    block: Place,
    in_block: BlockCursor,
}

/// Where a block is.
enum Place {
    Window(Range<usize>),
    Unpacked(usize),
}

impl<'a> RecordFile<'a> {
    /// Before the first record of the file at `path`, of which the database's MANIFEST says how long it is.
    pub(super) fn open(path: &Path, bytes: u64, decompress: &'a Decompress) -> Result<Self, UnreadReason> {
        let mut table = Self {
            file: File::open(path)?,
            bytes,
            decompress,
            window: Vec::new(),
            window_at: 0,
            index: Vec::new(),
            in_index: BlockCursor::default(),
            unpacked: Vec::new(),
            block: Place::Unpacked(0),
            in_block: BlockCursor::default(),
        };
        let at = bytes.checked_sub(FOOTER_BYTES as u64).ok_or(UnreadReason::Unknown)?;
        let mut footer = [0; FOOTER_BYTES];
        table.file.read_exact_at(&mut footer, at)?;
        let (mut handles, magic) = footer.split_at(FOOTER_BYTES - 8);
        if magic != MAGIC.to_le_bytes() {
            return Err(UnreadReason::Unknown);
        }
        // The first handle is that of the index of filters.
        let (_, index) = (handle(&mut handles)?, handle(&mut handles)?);
        table.read_block(index)?;
        table.index = table.block().to_vec();
        table.in_index.begin(&table.index).ok_or(UnreadReason::Unknown)?;
        table.block = Place::Unpacked(0);
        Ok(table)
    }

    /// Goes to the next record. False: there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Result<bool, UnreadReason> {
        let block = match &self.block {
            Place::Window(range) => &self.window[range.clone()],
            Place::Unpacked(len) => &self.unpacked[..*len],
        };
        if self.in_block.next(block).ok_or(UnreadReason::Unknown)? { Ok(true) } else { self.next_block() }
    }

    /// Goes to the first record of the next block that has one.
    fn next_block(&mut self) -> Result<bool, UnreadReason> {
        while self.in_index.next(&self.index).ok_or(UnreadReason::Unknown)? {
            let mut value = &self.index[self.in_index.value()];
            let block = handle(&mut value)?;
            self.read_block(block)?;
            let block = match &self.block {
                Place::Window(range) => &self.window[range.clone()],
                Place::Unpacked(len) => &self.unpacked[..*len],
            };
            self.in_block.begin(block).ok_or(UnreadReason::Unknown)?;
            if self.in_block.next(block).ok_or(UnreadReason::Unknown)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The key as the file has it, with the number of its change behind it.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.in_block.key()
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        &self.block()[self.in_block.value()]
    }

    #[inline]
    fn block(&self) -> &[u8] {
        match &self.block {
            Place::Window(range) => &self.window[range.clone()],
            Place::Unpacked(len) => &self.unpacked[..*len],
        }
    }

    /// Reads a block, and compares its checksum.
    fn read_block(&mut self, (at, len): (u64, u64)) -> Result<(), UnreadReason> {
        let whole = len.checked_add(TRAILER_BYTES as u64).ok_or(UnreadReason::Unknown)?;
        let end = at.checked_add(whole).filter(|end| *end <= self.bytes).ok_or(UnreadReason::Unknown)?;
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            let bytes = whole.max((WINDOW_BYTES as u64).min(self.bytes - at));
            self.window.resize(bytes as usize, 0);
            self.file.read_exact_at(&mut self.window, at)?;
            self.window_at = at;
        }
        let first = (at - self.window_at) as usize;
        let (stored, sum) = self.window[first..][..whole as usize].split_at(whole as usize - 4);
        if masked(crc32c::crc32c(stored)).to_le_bytes() != sum {
            return Err(UnreadReason::Unknown);
        }
        let (&kind, stored) = stored.split_last().ok_or(UnreadReason::Unknown)?;
        self.block = match kind {
            STORED => Place::Window(first..first + stored.len()),
            SNAPPY => {
                let len = self.decompress.len_of(stored).ok_or(UnreadReason::Unknown)?;
                if len > stored.len().saturating_mul(SNAPPY_TIMES_MAX) {
                    return Err(UnreadReason::Unknown);
                }
                if self.unpacked.len() < len {
                    self.unpacked.resize(len, 0);
                }
                self.decompress.into(stored, &mut self.unpacked[..len]).ok_or(UnreadReason::Unknown)?;
                Place::Unpacked(len)
            }
            _ => return Err(UnreadReason::Unknown),
        };
        Ok(())
    }
}

/// Where a block is and how long, without what follows it.
fn handle(bytes: &mut &[u8]) -> Result<(u64, u64), UnreadReason> {
    Ok((number(bytes).ok_or(UnreadReason::Unknown)?, number(bytes).ok_or(UnreadReason::Unknown)?))
}
