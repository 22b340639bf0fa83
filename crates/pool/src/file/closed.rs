//! A file pool that was closed, before it is read into memory: its data file, page by page.
//!
//! Invariant: each byte that is read is one that the pool was closed with. Its page has its checksum, and the checksums
//! are those of the closing.

use crate::file::left_index::LeftIndex;
use crate::format::page_sums::{CHECKSUM_BYTES, PAGE_BYTES, PageChecksums, page_checksum};
use crate::log::recent::UnusedRecent;
use crate::log::scan::closed_log;
use crate::log::{recent, spill};
use crate::open_files::OpenFiles;
use crate::pool_files::{PoolFile, names_in};
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

    /// The pool in `directory` that is `open` for writing, if all of the region is in its data file, that has
    /// `bytes_min` bytes, and its owner left an index. `None` also where anything fails: opening the pool reports it.
    ///
    /// What opening the pool needs descriptors or a name for is done now. Later the process may have no descriptor
    /// left, or see other files.
    pub(crate) fn of(open: &mut OpenFiles, directory: &Path, bytes_min: u64) -> Option<Self> {
        let OpenFiles { options, sb, files, recent: made, .. } = open;
        let (storage, data) = (&options.storage, &files.data);
        let log = files.log.as_ref().filter(|_| sb.clean && sb.unsaved.is_none())?;
        let bytes = data.image_size(sb).ok().filter(|&bytes| bytes >= bytes_min)?;
        // These may continue the log.
        let is_left = |name: &String| recent::is_name(name) || spill::is_name(name);
        if names_in(&**storage, directory).ok()?.iter().any(is_left) {
            return None;
        }
        let index = LeftIndex::of(&**storage, directory, sb)?;
        crate::limits::fits_memory(directory, options.config.memory_bytes_max, bytes, 0).ok()?;
        closed_log(log, sb, directory.join("pool")).ok()?;
        // Not for the whole capacity: opening the pool may need that address space.
        let with_sums = data.sums.size().ok()? / CHECKSUM_BYTES as u64 * PAGE_BYTES as u64;
        let sums = data.read_sums(sb, with_sums.max(bytes).min(sb.capacity)).ok()?;
        data.refuse_sums_beyond(sb, bytes, &sums).ok()?;
        sums.are_of(sb, bytes, data.sums.path()).ok()?;
        let image = PoolFile::open_part(&**storage, data.image.path().to_owned(), true).ok()?;
        log.prepare_durable().ok()?;
        if options.config.keeps_recent {
            *made = Some(UnusedRecent::create(storage, directory, sb.seed(), sb.tail).ok()?);
        }
        options.nothing_left = true;
        Some(Self { image, sums, bytes, index })
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
