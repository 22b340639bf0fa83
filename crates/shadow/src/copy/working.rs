//! The working copy: DRAM at the recorded address.

use crate::layout::ShadowLayout;
use crate::{Error, Result};
use mangrove_pool::{ByteRange, Region};
use mangrove_sys::{Reservation, copy_nonzero_pages, fan_out};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one thread copies at a time.
const CHUNK_BYTES: u64 = 2 << 20;
/// From this size on, the working copy asks for huge pages, and several threads load it.
const LARGE_BYTES: u64 = 16 << 20;

/// The program's memory.
pub(crate) struct WorkingCopy {
    memory: Reservation,
}

impl WorkingCopy {
    /// Reserves zeroed memory where the layout says.
    ///
    /// # Errors
    /// `AddressTaken`, or `Unsupported` when the process may not have so much address space.
    pub(crate) fn reserve(layout: &ShadowLayout) -> Result<Self> {
        let len = layout.capacity as usize;
        let memory = match layout.address {
            0 => Reservation::anonymous(len),
            address => Reservation::anonymous_at(address as usize, len),
        };
        memory.map(|memory| Self { memory }).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::AddressTaken { address: layout.address, len: layout.capacity },
            _ => Error::Unsupported { what: format!("cannot map {len} bytes: {e}") },
        })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    pub(crate) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The present bytes of a range.
    #[inline]
    pub(crate) fn bytes(&self, range: ByteRange) -> &[u8] {
        assert!(range.offset <= self.len() && range.len <= self.len() - range.offset);
        // SAFETY: inside the reservation; the committing caller keeps other threads from storing to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.base().add(range.offset as usize), range.len as usize) }
    }

    /// Maps `len` bytes at `offset` of the durable copy, which begins at `from` of `file`, copy on write. A page not
    /// stored to shows the file, which the replayer changes. But the replayer writes only what was committed from
    /// this very page, and a program that commits a byte has stored it first, or left it unchanged.
    pub(crate) fn map(&self, file: &OwnedFd, from: u64, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.memory
            .replace_by_private(offset as usize, len as usize, file.as_fd(), from + offset)
            .map_err(|e| Error::Unsupported { what: format!("cannot map the image copy on write: {e}") })
    }

    /// Copies the first `len` bytes of the durable copy into it, on several threads if there are many.
    pub(crate) fn load(&self, region: &Region, image_start: u64, len: u64) {
        if len >= LARGE_BYTES {
            self.memory.advise_huge(0, len as usize);
        }
        let next = AtomicU64::new(0);
        let work = || {
            loop {
                // Relaxed: only gives each part to one thread.
                let offset = next.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
                if offset >= len {
                    return;
                }
                self.load_chunk(region, image_start, offset, CHUNK_BYTES.min(len - offset) as usize);
            }
        };
        let threads = if len < LARGE_BYTES {
            1
        } else {
            std::thread::available_parallelism().map_or(1, usize::from).min(16)
        };
        fan_out(threads, |_| work());
    }

    fn load_chunk(&self, region: &Region, image_start: u64, offset: u64, len: usize) {
        region.reading(image_start + offset, len);
        // SAFETY: inside the region's durable copy and the reservation, which is zero and which no other thread uses
        // yet; the two do not overlap.
        unsafe {
            copy_nonzero_pages(region.at(image_start + offset), self.base().add(offset as usize), len);
        }
    }
}
