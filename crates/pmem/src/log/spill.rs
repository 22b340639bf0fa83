//! Units longer than half the log: their records lie in a file of their own, which one small group of the log
//! names. Told in prose in docs/format/log.md.
//!
//! Durable-order, in this order, and what recovery would do otherwise:
//! 1. the file, and its name in the folder, before the group that names it is appended: else recovery would find
//!    the group, and nothing behind it;
//! 2. the image, and the superblock whose tail lies behind that group, before the file is removed.
//!
//! A file that no group names is left over from a crash, and removed when the pool is next opened for writing.
//!
//! Invariants:
//! 1. Records are sorted by offset and do not overlap, and no page of the image has records in two groups: so a
//!    checkpoint changes each page once, and can go through the file in pieces.

use crate::log_format::{
    GROUP_HEADER_BYTES, GROUP_PAYLOAD_BYTES_MAX, GroupHeader, RECORD_HEADER_BYTES_MAX, group_crc,
    group_total, put_varint,
};
use crate::storage::{OpenHow, SECTOR_BYTES, Storage, StorageFile, here};
use crate::sums::PAGE_BYTES;
use crate::{Error, Range, Result};
use std::io;
use std::path::{Path, PathBuf};

/// Payload of the group that names a file: three words.
pub(crate) const REFERENCE_BYTES: usize = 24;
/// A group ends at the first page boundary behind so much payload: even a page full of one-byte records fits in
/// what is left.
const GROUP_PAYLOAD_BYTES: usize = GROUP_PAYLOAD_BYTES_MAX - (128 << 10);
/// Bytes read back at a time, or one group.
const CHUNK_BYTES: usize = 16 << 20;
/// What the names of these files begin with.
const NAME: &str = "unit-";

/// What a group of the log says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// A number that no other file of this pool has: its name, and the nonce of its groups.
    pub(crate) number: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// End of the last record's range.
    pub(crate) image_end: u64,
}

/// A file that a group of the log names and no checkpoint has applied yet.
pub(crate) struct Waiting {
    pub(crate) number: u64,
    /// Kept open since it was written, or found by recovery, so that the checkpointer needs no descriptor.
    pub(crate) file: Option<Box<dyn StorageFile>>,
}

impl Reference {
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

    /// Where the file is.
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{NAME}{:016x}", self.number))
    }
}

/// True for names of these files.
pub(crate) fn is_name(name: &str) -> bool {
    name.strip_prefix(NAME).is_some_and(|rest| rest.len() == 16 && u64::from_str_radix(rest, 16).is_ok())
}

/// Puts groups together and writes them one by one.
struct Writer<'a> {
    file: &'a dyn StorageFile,
    seed: u32,
    number: u64,
    at: u64,
    group: Vec<u8>,
}

impl Writer<'_> {
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
fn merged(ranges: &[Range]) -> Vec<Range> {
    let mut sorted: Vec<Range> = ranges.iter().copied().filter(|r| r.len > 0).collect();
    sorted.sort_unstable();
    let mut out: Vec<Range> = Vec::with_capacity(sorted.len());
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
type Written = (Reference, Box<dyn StorageFile>);

/// Writes the bytes of `ranges` of the region at `base` to a file of their own in `folder`; durable on return. On an
/// error nothing is left that would be taken for a part of the pool.
///
/// # Safety
/// The ranges are valid for reads; nobody stores to them meanwhile.
pub(crate) unsafe fn write(
    storage: &dyn Storage,
    folder: &Path,
    seed: u32,
    base: *const u8,
    ranges: &[Range],
) -> std::result::Result<Written, (PathBuf, io::Error)> {
    let ranges = merged(ranges);
    let image_end = ranges.last().map_or(0, |r| r.offset + r.len);
    let mut reference = Reference { number: storage.random(), bytes: 0, image_end };
    let path = reference.path(folder);
    let run = || -> io::Result<(u64, Box<dyn StorageFile>)> {
        let file = storage.open(&path, OpenHow::Create, here())?;
        let group = vec![0; GROUP_HEADER_BYTES];
        let mut writer = Writer { file: &*file, seed, number: reference.number, at: 0, group };
        for (n, range) in ranges.iter().enumerate() {
            let (mut offset, end) = (range.offset, range.offset + range.len);
            while offset < end {
                // A group that is full ends where a page does.
                let page_end = (offset / PAGE_BYTES as u64 + 1) * PAGE_BYTES as u64;
                let fits = offset + (writer.room() / PAGE_BYTES * PAGE_BYTES) as u64;
                let to = end.min(page_end.max(fits / PAGE_BYTES as u64 * PAGE_BYTES as u64));
                // SAFETY: inside a range that the caller vouches for.
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
        storage.sync_dir(folder, here())?;
        let bytes = writer.at;
        Ok((bytes, file))
    };
    match run() {
        Ok((bytes, file)) => {
            reference.bytes = bytes;
            Ok((reference, file))
        }
        Err(e) => {
            // Nothing names it; its space is wanted back.
            let _ = storage.remove(&path, here());
            Err((path, e))
        }
    }
}

/// Reads a file back, whole groups at a time.
pub(crate) struct Reader {
    file: Box<dyn StorageFile>,
    path: PathBuf,
    reference: Reference,
    seed: u32,
    at: u64,
}

impl Reader {
    pub(crate) fn open(
        storage: &dyn Storage,
        folder: &Path,
        reference: Reference,
        seed: u32,
    ) -> Result<Self> {
        let file = crate::recover::open_part(storage, &reference.path(folder), true)?;
        Ok(Self::new(file, folder, reference, seed))
    }

    /// Reads `file`, which is the one that the reference names.
    pub(crate) fn new(file: Box<dyn StorageFile>, folder: &Path, reference: Reference, seed: u32) -> Self {
        Self { file, path: reference.path(folder), reference, seed, at: 0 }
    }

    pub(crate) fn into_file(self) -> Box<dyn StorageFile> {
        self.file
    }

    fn damaged(&self, what: &str) -> Error {
        Error::Corrupt { path: self.path.clone(), offset: self.at, what: what.into() }
    }

    /// Fills `chunk` with the next groups, verified; false when there are none.
    pub(crate) fn next(&mut self, chunk: &mut Vec<u8>) -> Result<bool> {
        let left = self.reference.bytes - self.at;
        chunk.clear();
        if left == 0 {
            return Ok(false);
        }
        chunk.resize(left.min(CHUNK_BYTES as u64) as usize, 0);
        let n =
            self.file.read_at(self.at, chunk).map_err(|e| Error::from_io(self.path.clone(), "read", &e))?;
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
            return Err(
                self.damaged("the records of a long unit do not match their checksum, or are missing")
            );
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
        let range = |offset, len| Range { offset, len };
        let given = [range(50, 10), range(0, 10), range(10, 5), range(55, 1), range(200, 0), range(58, 10)];
        assert_eq!(merged(&given), [range(0, 15), range(50, 18)]);
        assert!(merged(&[]).is_empty());
    }

    #[test]
    fn references_return_and_names_are_told() {
        let reference = Reference { number: 0x1234, bytes: 1024, image_end: 77 };
        assert_eq!(Reference::decode(&reference.encode()), Some(reference));
        assert_eq!(Reference::decode(&reference.encode()[1..]), None);
        let path = reference.path(Path::new("p"));
        assert!(is_name(path.file_name().unwrap().to_str().unwrap()));
        assert!(!is_name("unit-12") && !is_name("image"));
    }
}
