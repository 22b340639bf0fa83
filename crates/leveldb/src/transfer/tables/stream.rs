//! Files of records that follow each other in the order of their keys.

use super::table::RecordFile;
use super::unread::UnreadReason;
use crate::transfer::foreign::Decompress;
use crate::transfer::manifest::TableFile;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Bytes of the next file that the kernel is asked to read meanwhile.
const AHEAD_BYTES: i64 = 8 << 20;

/// A key, and the number of the change that set or removed it: of one key the newest change comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version<'a> {
    pub(super) key: &'a [u8],
    pub(super) change: u64,
}

impl<'a> Version<'a> {
    /// As files have it: the key, then the number with its kind in the lowest byte.
    #[inline]
    pub(super) fn of(stored: &'a [u8]) -> Option<Self> {
        let (key, change) = stored.split_last_chunk()?;
        Some(Self { key, change: u64::from_le_bytes(*change) })
    }
}

impl Ord for Version<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(other.key).then_with(|| other.change.cmp(&self.change))
    }
}

impl PartialOrd for Version<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The records of such files, at one of them.
pub(super) struct RecordStream<'a> {
    folder: &'a Path,
    decompress: &'a Decompress,
    /// The files that follow, the next one last.
    files: Vec<TableFile>,
    table: RecordFile<'a>,
}

impl<'a> RecordStream<'a> {
    /// At the first record of these files. `None`: there is none.
    pub(super) fn open(
        folder: &'a Path,
        decompress: &'a Decompress,
        mut files: Vec<TableFile>,
    ) -> Result<Option<Self>, UnreadReason> {
        files.reverse();
        let Some(first) = files.pop() else { return Ok(None) };
        let table = RecordFile::open(&path(folder, &first), first.bytes, decompress)?;
        let mut stream = Self { folder, decompress, files, table };
        stream.read_ahead();
        Ok(stream.next()?.then_some(stream))
    }

    /// Goes to the next record. False: there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Result<bool, UnreadReason> {
        if self.table.next()? { Ok(true) } else { self.next_file() }
    }

    fn next_file(&mut self) -> Result<bool, UnreadReason> {
        while let Some(file) = self.files.pop() {
            let next = RecordFile::open(&path(self.folder, &file), file.bytes, self.decompress)?;
            self.table = next;
            self.read_ahead();
            if self.table.next()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline]
    pub(super) fn version(&self) -> Result<Version<'_>, UnreadReason> {
        Version::of(self.table.key()).ok_or(UnreadReason::Unknown)
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        self.table.value()
    }

    /// Has the kernel read the next file while this one is walked. Nothing depends on it.
    fn read_ahead(&self) {
        if let Some(file) = self.files.last().and_then(|file| File::open(path(self.folder, file)).ok()) {
            // SAFETY: an open file.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, AHEAD_BYTES, libc::POSIX_FADV_WILLNEED) };
        }
    }
}

/// The file's name: `ldb`, or `sst` where an old LevelDB wrote it.
fn path(folder: &Path, file: &TableFile) -> PathBuf {
    let path = folder.join(format!("{:06}.ldb", file.number));
    if path.exists() { path } else { folder.join(format!("{:06}.sst", file.number)) }
}
