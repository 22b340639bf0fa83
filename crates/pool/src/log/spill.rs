//! Spill files: an atomic group longer than half the log has its records in a file of its own, and one small group
//! of the log names that file. docs/format/log.md describes the bytes.
//!
//! Durable-order, in this order, with what recovery would do otherwise:
//! 1. the file, and its name in the directory, before the group that names it is appended: otherwise recovery would
//!    find the group, but not the records;
//! 2. the data file, and the superblock whose tail lies after that group, before the spill file is removed:
//!    otherwise recovery would need a file that is gone.
//!
//! A spill file that no group names is left over from a crash. The next opening for writing removes it.
//!
//! Invariants:
//! 1. Records are sorted by offset and do not overlap, and no page of the data file has records in two groups: so a
//!    checkpoint changes each page once, and can apply the file in pieces.

use crate::format::log::{
    GROUP_HEADER_BYTES, GROUP_PAYLOAD_BYTES_MAX, GroupHeader, RECORD_HEADER_BYTES_MAX, group_crc,
    group_total, put_varint,
};
use crate::format::page_sums::PAGE_BYTES;
use crate::pool_files::{FileError, PoolFile};
use crate::storage::traits::{OpenHow, SECTOR_BYTES, Storage, StorageFile, here};
use crate::{ByteRange, Result};
use std::io;
use std::path::{Path, PathBuf};

/// Payload of the group that names a spill file: three words.
pub(crate) const REFERENCE_BYTES: usize = 24;
/// A group ends at the first page boundary after so much payload: even a page full of one-byte records fits in the
/// rest.
const GROUP_PAYLOAD_BYTES: usize = GROUP_PAYLOAD_BYTES_MAX - (128 << 10);
/// Bytes read back at a time, or one group.
const CHUNK_BYTES: usize = 16 << 20;
/// The beginning of every spill file's name.
const NAME: &str = "unit-";

/// What a group of the log records about a spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpillReference {
    /// A number that no other file of this pool has: its name, and the nonce of its groups.
    pub(crate) number: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// End of the last record's range.
    pub(crate) image_end: u64,
}

/// A spill file that a group of the log names and no checkpoint has applied yet.
pub(crate) struct PendingSpill {
    pub(crate) number: u64,
    /// Kept open since it was written, or since recovery found it, so that the checkpointer needs no descriptor.
    pub(crate) file: Option<PoolFile>,
}

impl SpillReference {
    pub(crate) fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.number, self.bytes, self.image_end]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` when these bytes are no reference.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != REFERENCE_BYTES {
            return None;
        }
        let mut words = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()));
        let (number, bytes, image_end) = (words.next()?, words.next()?, words.next()?);
        bytes.is_multiple_of(SECTOR_BYTES as u64).then_some(Self { number, bytes, image_end })
    }

    /// The file's path.
    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{NAME}{:016x}", self.number))
    }
}

/// True for names of spill files.
pub(crate) fn is_name(name: &str) -> bool {
    name.strip_prefix(NAME).is_some_and(|rest| rest.len() == 16 && u64::from_str_radix(rest, 16).is_ok())
}

/// Fills groups and writes them one by one.
struct SpillWriter<'a> {
    file: &'a dyn StorageFile,
    seed: u32,
    number: u64,
    at: u64,
    group: Vec<u8>,
}

impl SpillWriter<'_> {
    fn room(&self) -> usize {
        GROUP_HEADER_BYTES + GROUP_PAYLOAD_BYTES
            - self.group.len().min(GROUP_HEADER_BYTES + GROUP_PAYLOAD_BYTES)
    }

    fn record(&mut self, offset: u64, bytes: &[u8]) {
        let mut header = [0u8; RECORD_HEADER_BYTES_MAX];
        let a = put_varint(&mut header, offset);
        let len = a + put_varint(&mut header[a..], bytes.len() as u64);
        self.group.extend_from_slice(&header[..len]);
        self.group.extend_from_slice(bytes);
    }

    fn end_group(&mut self) -> io::Result<()> {
        let payload = self.group.len() - GROUP_HEADER_BYTES;
        if payload == 0 {
            return Ok(());
        }
        let mut header = GroupHeader {
            crc: 0,
            lsn: self.at,
            payload: payload as u32,
            flags: 0,
            nonce: self.number,
            durable: 0,
        };
        header.encode(&mut self.group);
        header.crc = group_crc(self.seed, &self.group);
        header.encode(&mut self.group);
        self.group.resize(group_total(payload) as usize, 0);
        self.file.write_at(self.at, &self.group, here())?;
        self.at += self.group.len() as u64;
        self.group.clear();
        self.group.resize(GROUP_HEADER_BYTES, 0);
        Ok(())
    }
}

/// `ranges` sorted and merged.
fn merged(ranges: &[ByteRange]) -> Vec<ByteRange> {
    let mut sorted: Vec<ByteRange> = ranges.iter().copied().filter(|r| r.len > 0).collect();
    sorted.sort_unstable();
    let mut out: Vec<ByteRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match out.last_mut() {
            Some(last) if range.offset <= last.offset + last.len => {
                last.len = last.len.max(range.offset + range.len - last.offset);
            }
            _ => out.push(range),
        }
    }
    out
}

/// A reference, and the open file that it names.
type Written = (SpillReference, PoolFile);

/// Why there is no spill file.
pub(crate) struct NotWritten {
    pub(crate) error: FileError,
    /// False where only space or a descriptor was missing. The file is gone then, and no later call depends on what
    /// failed.
    pub(crate) poisons: bool,
}

/// Writes the bytes of `ranges` of the region at `base` to a spill file in `directory`; durable on return. An error
/// leaves no file that could be taken for a part of the pool.
///
/// # Safety
/// The ranges are valid for reads; no thread stores to them meanwhile.
pub(crate) unsafe fn write(
    storage: &dyn Storage,
    directory: &Path,
    seed: u32,
    base: *const u8,
    ranges: &[ByteRange],
) -> std::result::Result<Written, NotWritten> {
    let ranges = merged(ranges);
    let image_end = ranges.last().map_or(0, |r| r.offset + r.len);
    let mut reference = SpillReference { number: storage.random(), bytes: 0, image_end };
    let path = reference.path(directory);
    let run = || -> io::Result<(u64, Box<dyn StorageFile>)> {
        let file = storage.open(&path, OpenHow::Create, here())?;
        let group = vec![0; GROUP_HEADER_BYTES];
        let mut writer = SpillWriter { file: &*file, seed, number: reference.number, at: 0, group };
        for (n, range) in ranges.iter().enumerate() {
            let (mut offset, end) = (range.offset, range.offset + range.len);
            while offset < end {
                // A full group ends where a page does.
                let page_end = (offset / PAGE_BYTES as u64 + 1) * PAGE_BYTES as u64;
                let fits = offset + (writer.room() / PAGE_BYTES * PAGE_BYTES) as u64;
                let to = end.min(page_end.max(fits / PAGE_BYTES as u64 * PAGE_BYTES as u64));
                // SAFETY: inside a range that the caller guarantees.
                let bytes =
                    unsafe { std::slice::from_raw_parts(base.add(offset as usize), (to - offset) as usize) };
                writer.record(offset, bytes);
                offset = to;
                let next = if offset < end { Some(offset) } else { ranges.get(n + 1).map(|r| r.offset) };
                let same_page =
                    next.is_some_and(|n| n / PAGE_BYTES as u64 == (offset - 1) / PAGE_BYTES as u64);
                if writer.room() < PAGE_BYTES && !same_page {
                    writer.end_group()?;
                }
            }
        }
        writer.end_group()?;
        file.sync(here())?;
        let bytes = writer.at;
        Ok((bytes, file))
    };
    let written = run();
    // The next spill file would sync the directory again, and a failed sync is never retried.
    let named = if written.is_ok() { storage.sync_dir(directory, here()) } else { Ok(()) };
    let is_named = named.is_ok();
    match named.and(written) {
        Ok((bytes, file)) => {
            reference.bytes = bytes;
            Ok((reference, PoolFile::new(file, path)))
        }
        Err(e) => {
            // No group names the file, and its space is needed.
            let _ = storage.remove(&path, here());
            let error = FileError::new(path, e);
            let poisons = !(error.is_no_descriptor() || (error.is_no_space() && is_named));
            Err(NotWritten { error, poisons })
        }
    }
}

/// Reads a spill file back, whole groups at a time.
pub(crate) struct SpillReader {
    file: PoolFile,
    reference: SpillReference,
    seed: u32,
    at: u64,
}

impl SpillReader {
    pub(crate) fn open(
        storage: &dyn Storage,
        directory: &Path,
        reference: SpillReference,
        seed: u32,
    ) -> Result<Self> {
        Ok(Self::new(PoolFile::open_part(storage, reference.path(directory), true)?, reference, seed))
    }

    /// Reads `file`, which is the one that the reference names.
    pub(crate) fn new(file: PoolFile, reference: SpillReference, seed: u32) -> Self {
        Self { file, reference, seed, at: 0 }
    }

    pub(crate) fn file(&self) -> &PoolFile {
        &self.file
    }

    pub(crate) fn into_file(self) -> PoolFile {
        self.file
    }

    /// Fills `chunk` with the next groups, verified; false when there are none.
    pub(crate) fn next(&mut self, chunk: &mut Vec<u8>) -> Result<bool> {
        let left = self.reference.bytes - self.at;
        chunk.clear();
        if left == 0 {
            return Ok(false);
        }
        chunk.resize(left.min(CHUNK_BYTES as u64) as usize, 0);
        let n = self.file.read_at(self.at, chunk)?;
        chunk.truncate(n);
        let mut whole = 0;
        while let Some(header) = chunk.get(whole..).and_then(GroupHeader::decode) {
            let end = whole + GROUP_HEADER_BYTES + header.payload as usize;
            let next = whole + header.total() as usize;
            if next > chunk.len() {
                break;
            }
            let mine = header.lsn == self.at + whole as u64 && header.nonce == self.reference.number;
            if !mine || group_crc(self.seed, &chunk[whole..end]) != header.crc {
                break;
            }
            whole = next;
        }
        if whole == 0 {
            let what = "the records of a spill file do not match their checksum, or are missing";
            return Err(self.file.corrupt(self.at, what));
        }
        chunk.truncate(whole);
        self.at += whole as u64;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_and_merged() {
        let range = |offset, len| ByteRange { offset, len };
        let given = [range(50, 10), range(0, 10), range(10, 5), range(55, 1), range(200, 0), range(58, 10)];
        assert_eq!(merged(&given), [range(0, 15), range(50, 18)]);
        assert!(merged(&[]).is_empty());
    }

    #[test]
    fn references_return_and_names_are_told() {
        let reference = SpillReference { number: 0x1234, bytes: 1024, image_end: 77 };
        assert_eq!(SpillReference::decode(&reference.encode()), Some(reference));
        assert_eq!(SpillReference::decode(&reference.encode()[1..]), None);
        let path = reference.path(Path::new("p"));
        assert!(is_name(path.file_name().unwrap().to_str().unwrap()));
        assert!(!is_name("unit-12") && !is_name("image"));
    }
}
