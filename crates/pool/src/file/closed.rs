//! A file pool that was closed, before it is read into memory: its data file, page by page.
//!
//! Invariant: each byte that is read is one that the pool was closed with. Its page has its checksum, and the checksums
//! are those of the closing.

use crate::Result;
use crate::file::left_index::LeftIndex;
use crate::format::page_sums::{PAGE_BYTES, PageChecksums, page_checksum};
use crate::format::superblock::Superblock;
use crate::log::scan::closed_log;
use crate::log::{recent, spill};
use crate::options::PoolOptions;
use crate::pool_files::{PoolFile, PoolFiles, names_in};
use std::path::Path;

/// The region of a pool that was closed, and the index that its owner left.
pub struct ClosedPool {
    image: PoolFile,
    sums: PageChecksums,
    bytes: u64,
    index: LeftIndex,
}

impl ClosedPool {
    /// Bytes of a page.
    pub const PAGE_BYTES: usize = PAGE_BYTES;

    /// The pool in `directory`, which is open for writing with `files`, if all of the region is in its data file, that
    /// has `bytes_min` bytes, and its owner left an index.
    ///
    /// # Errors
    /// Some of those that opening the pool has.
    pub(crate) fn of(
        options: &PoolOptions,
        directory: &Path,
        sb: &Superblock,
        files: &PoolFiles,
        bytes_min: u64,
    ) -> Result<Option<Self>> {
        let Some(log) = files.log.as_ref().filter(|_| sb.clean && sb.unsaved.is_none()) else {
            return Ok(None);
        };
        let bytes = files.data.image_size(sb)?;
        if bytes < bytes_min {
            return Ok(None);
        }
        let storage = &*options.storage;
        // These may continue the log.
        let is_left = |name: &String| recent::is_name(name) || spill::is_name(name);
        if names_in(storage, directory)?.iter().any(is_left) {
            return Ok(None);
        }
        let Some(index) = LeftIndex::of(storage, directory, sb) else { return Ok(None) };
        crate::limits::fits_memory(directory, options.config.memory_bytes_max, bytes, 0)?;
        closed_log(log, sb, directory.join("pool"))?;
        let sums = files.data.read_sums(sb, sb.capacity)?;
        files.data.refuse_sums_beyond(sb, bytes, &sums)?;
        sums.are_of(sb, bytes, files.data.sums.path())?;
        let image = PoolFile::open_part(storage, files.data.image.path().to_owned(), true)?;
        Ok(Some(Self { image, sums, bytes, index }))
    }

    /// Bytes of the region that are there.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a pool without bytes has no index")]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// The index that the owner left.
    #[must_use]
    pub fn index(&self) -> &LeftIndex {
        &self.index
    }

    /// Reads the page number `page` into `bytes`, which is as long. False where it cannot be read or does not have its
    /// checksum: opening the pool reports that.
    #[must_use]
    pub fn read_page(&self, page: u64, bytes: &mut [u8]) -> bool {
        let offset = page * PAGE_BYTES as u64;
        bytes.len() == PAGE_BYTES
            && offset + PAGE_BYTES as u64 <= self.bytes
            && self.image.read_padded(offset, bytes).is_ok()
            && page_checksum(bytes) == self.sums.get(page)
    }
}
