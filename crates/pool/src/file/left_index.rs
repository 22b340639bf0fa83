//! The file `index`: what the owner of a file pool leaves when it closes the pool, so that it finds its records in the
//! data file before that has been read. docs/format/pool.md describes the bytes.
//!
//! Nothing depends on the file. It counts only with the very data file that the pool was closed with, which the digest
//! of the page checksums tells; and what is found through it is compared with the record itself.

use crate::file::medium::FileMedium;
use crate::format::superblock::Superblock;
use crate::pool_files::{PoolFile, kind_of};
use crate::storage::traits::{OpenHow, PathKind, Storage, here};
use crate::{Error, Result, crc32c};
use std::path::Path;
use std::sync::atomic::Ordering;

const NAME: &str = "index";
const MAGIC: [u8; 8] = *b"MGRVINDX";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const AT_VERSION: usize = 8;
const AT_DIGEST: usize = 16;
const AT_LEN: usize = 24;
const AT_CRC: usize = HEADER_BYTES - 4;
/// Bytes written at a time.
const WRITE_BYTES: usize = 4 << 20;

/// An index that was left.
pub struct LeftIndex {
    file: PoolFile,
    len: u64,
}

impl LeftIndex {
    /// The one that was left with the pool in `directory`, which is clean and whose superblock is `sb`. None where
    /// there is none, or it cannot be read.
    pub(crate) fn of(storage: &dyn Storage, directory: &Path, sb: &Superblock) -> Option<Self> {
        let path = directory.join(NAME);
        if sb.sums_digest == 0 || !matches!(kind_of(storage, &path), Ok(PathKind::File)) {
            return None;
        }
        let file = PoolFile::open(storage, path, OpenHow::Read, "read").ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_padded(0, &mut header).ok()?;
        let len = u64::from_le_bytes(header[AT_LEN..][..8].try_into().ok()?);
        let is_whole =
            file.size().is_ok_and(|size| size >= HEADER_BYTES as u64 && size - HEADER_BYTES as u64 >= len);
        (is_whole && header == self::header(sb.sums_digest, len)).then_some(Self { file, len })
    }

    /// Its bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an owner with nothing leaves no index")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reads at `offset`. False where that fails.
    #[must_use]
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> bool {
        self.file.read_at(HEADER_BYTES as u64 + offset, bytes).is_ok_and(|read| read == bytes.len())
    }
}

fn header(digest: u64, len: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[AT_VERSION..][..4].copy_from_slice(&VERSION.to_le_bytes());
    header[AT_DIGEST..][..8].copy_from_slice(&digest.to_le_bytes());
    header[AT_LEN..][..8].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(0, &header[..AT_CRC]);
    header[AT_CRC..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Whether the file at `path` may be replaced or removed: it is what a closing left, or what a power cut left of that.
/// A foreign file of the same name stays.
fn is_left(storage: &dyn Storage, path: &Path) -> bool {
    let Ok(file) = PoolFile::open(storage, path.to_owned(), OpenHow::Read, "read") else { return false };
    let mut header = [0; HEADER_BYTES];
    let is_read = file.read_padded(0, &mut header).is_ok();
    is_read && (header.starts_with(&MAGIC) || header == [0; HEADER_BYTES])
}

/// Writes the file. Nothing is synced: what a power cut leaves of it is not trusted.
fn write(storage: &dyn Storage, directory: &Path, digest: u64, index: &[u8]) -> Result<()> {
    let path = directory.join(NAME);
    // Not over the one before: the name may be a link, or the file may have other names.
    storage.remove(&path, here()).map_err(|e| Error::from_io(path.clone(), "remove", &e))?;
    let file = PoolFile::open(storage, path, OpenHow::Create, "open")?;
    file.write_at(0, &MAGIC, here())?;
    for (at, part) in (HEADER_BYTES as u64..).step_by(WRITE_BYTES).zip(index.chunks(WRITE_BYTES)) {
        file.write_at(at, part, here())?;
    }
    file.write_at(0, &header(digest, index.len() as u64), here())
}

impl FileMedium {
    /// True when closing the pool shall leave an index: there are `bytes_min` bytes to be found in, and the one that
    /// was left before counts no more.
    pub(crate) fn wants_index(&self, bytes_min: u64) -> bool {
        if !self.is_ours() || self.first_error().is_some() || self.grown.load(Ordering::Acquire) < bytes_min {
            return false;
        }
        let is_unchanged = self.is_settled();
        let superblock = self.superblock.lock();
        let sb = superblock.current();
        !(is_unchanged && sb.clean)
            || sb.sums_digest != 0 && LeftIndex::of(&*self.storage, &self.directory, sb).is_none()
    }

    /// Leaves `index` with the pool, which has just been marked clean; with none it removes what counts no more. An
    /// error only makes the next opening slower.
    pub(crate) fn leave_index(&self, index: Option<&[u8]>) {
        let superblock = self.superblock.lock();
        let sb = superblock.current();
        let (storage, path) = (&*self.storage, self.directory.join(NAME));
        match kind_of(storage, &path) {
            Ok(PathKind::Missing) if index.is_some() => {}
            Ok(PathKind::File) if is_left(storage, &path) => {}
            _ => return,
        }
        let left = match index {
            Some(index) => write(storage, &self.directory, sb.sums_digest, index).is_ok(),
            None => LeftIndex::of(storage, &self.directory, sb).is_some(),
        };
        if !left {
            let _ = storage.remove(&path, here());
        }
    }
}
