//! A closed shadow made of bytes that the caller has: a backup of another one.
//!
//! A crash leaves a pool that was not closed and has a shadow of any length in it; the caller gives it its name when
//! [`ShadowCopy::close`] has returned.

use crate::layout::{AT_LEN, PAGE_BYTES, ShadowLayout};
use crate::{Error, Options, Result};
use mangrove_pool::{AddressChoice, ByteRange, MediumKind, Pool};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Bytes that are flushed as one atomic group, at most, where the log is long enough.
const GROUP_BYTES_MAX: u64 = 1 << 20;

/// A shadow that is being made.
pub struct ShadowCopy {
    pool: Pool,
    layout: Option<ShadowLayout>,
    len: u64,
    /// The most memory that this process may have for the copy to grow, where that lies in memory.
    memory_max: Option<u64>,
}

impl std::fmt::Debug for ShadowCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowCopy").field("pool", &self.pool).field("len", &self.len).finish()
    }
}

impl ShadowCopy {
    /// Creates a shadow in the directory `path` that will lie at `address` in every process, but not in this one: its
    /// original lies there. The options must say the capacity. On the file medium all of it lies in memory until it is
    /// closed: they may say how much memory the process may have for that.
    ///
    /// # Errors
    /// Those of creating a pool.
    pub fn create(path: &Path, options: &Options, address: u64) -> Result<Self> {
        let mut options = options.clone().address(AddressChoice::At(address));
        options.validate()?;
        options.pool = options.pool.away(true);
        let pool = options.pool(path)?;
        if pool.info().medium == MediumKind::File {
            return Ok(Self { pool, layout: None, len: 0, memory_max: options.config.memory_bytes_max });
        }
        let nonce = options.pool.random();
        let layout = ShadowLayout { nonce, ..options.layout(address) };
        if layout.image_start() + layout.capacity > pool.region().len() {
            return Err(Error::NoSpace { path: path.to_owned(), wanted: layout.capacity });
        }
        layout.write(pool.region())?;
        Ok(Self { pool, layout: Some(layout), len: 0, memory_max: None })
    }

    /// Where its first byte lies in the region.
    fn start(&self) -> u64 {
        self.layout.as_ref().map_or(0, ShadowLayout::image_start)
    }

    /// Makes the first `len` bytes usable; those that were not before are zero.
    ///
    /// # Errors
    /// `NoSpace`; `MemoryLimit` beyond the memory that this process may have.
    pub fn grow(&mut self, len: u64) -> Result<()> {
        let len = len.next_multiple_of(PAGE_BYTES);
        if self.memory_max.is_some() && len > self.len {
            mangrove_pool::fits_memory(&self.pool.info().path, self.memory_max, len - self.len, 0)?;
        }
        self.pool.region().grow(self.start() + len)?;
        self.len = self.len.max(len);
        Ok(())
    }

    /// Its first byte.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        // SAFETY: the region is at least so long.
        unsafe { self.pool.region().base().add(self.start() as usize) }
    }

    /// Makes the pages durable that are not zero, and marks the shadow closed. Returns their bytes. `progress` is
    /// called with the bytes done; if it returns false, the shadow is not closed.
    ///
    /// # Errors
    /// The first error of the medium.
    pub fn close(self, mut progress: impl FnMut(u64) -> bool) -> Result<Option<u64>> {
        let (region, start, mut copied, mut at) = (self.pool.region(), self.start(), 0, 0);
        let group_bytes =
            (self.pool.info().log_bytes_max / 4).clamp(PAGE_BYTES, GROUP_BYTES_MAX) & !(PAGE_BYTES - 1);
        while at < self.len {
            let end = self.len.min(at + group_bytes);
            let pages: Vec<ByteRange> = (at..end)
                .step_by(PAGE_BYTES as usize)
                .filter(|&page| !self.is_zero(page))
                .map(|page| ByteRange { offset: start + page, len: PAGE_BYTES })
                .collect();
            copied += pages.len() as u64 * PAGE_BYTES;
            if self.layout.is_some() {
                pages.iter().for_each(|page| region.flush(page.offset, page.len as usize));
            } else if !pages.is_empty() {
                region.flush_unit(&pages)?;
            }
            at = end;
            if !progress(at) {
                return Ok(None);
            }
        }
        if self.layout.is_some() {
            // Durable-order: the pages, the length, the mark. A shadow that is closed has all of it.
            region.fence();
            region.store(AT_LEN, self.len, Ordering::Release);
            region.flush(AT_LEN, 8);
            region.fence();
            self.pool.set_made()?;
        }
        self.pool.close()?;
        Ok(Some(copied))
    }

    fn is_zero(&self, page: u64) -> bool {
        // SAFETY: usable, and the caller has ended writing it.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.base().add(page as usize), PAGE_BYTES as usize) };
        bytes.iter().all(|&byte| byte == 0)
    }
}
