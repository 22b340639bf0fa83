//! Gives memory of the working copy back, so that a shadow can be larger than the machine's memory.
//!
//! Invariants:
//! 1. A page is given back only when everything committed is in the durable copy: so the page that the file shows
//!    instead has the same bytes. The caller lets no thread store or commit meanwhile.

use crate::shadow::{Shadow, ShadowBacking};
use crate::{Error, Result};
use mangrove_pool::ByteRange;

impl Shadow {
    /// Gives the memory of `len` bytes at `offset` back (both multiples of 4 KiB): they show the durable copy, and a
    /// page takes memory of its own when it is next stored to. Applies what the logs hold first: call
    /// [`Shadow::checkpoint`] before, while others still may commit, and little is left. O(pages that were stored to).
    /// Does nothing in a shadow that was opened read-only: all of it lies in private memory, and stays there.
    ///
    /// # Errors
    /// `Unsupported` where the durable copy is no file that can be mapped (a device, a storage of the program's own);
    /// the first I/O error, which poisons the shadow.
    ///
    /// # Safety
    /// No other thread stores to the working copy or commits during the call. A store that was never committed may be
    /// undone.
    pub unsafe fn page_out(&self, offset: u64, len: u64) -> Result<()> {
        assert!(offset <= self.len() && len <= self.len() - offset, "a part of the working copy");
        self.checkpoint()?;
        let is_out = match &self.backing {
            ShadowBacking::ReadOnly(_) => true,
            // SAFETY: the caller's promise.
            ShadowBacking::Log(log) => unsafe { log.region.page_out(ByteRange { offset, len })? },
            ShadowBacking::Rings(rings) => {
                match self.pool.as_ref().map(|pool| pool.image_file()).transpose()?.flatten() {
                    Some(file) => {
                        rings.working.map(&file, rings.layout.image_start(), offset, len)?;
                        true
                    }
                    None => false,
                }
            }
        };
        if is_out { Ok(()) } else { Err(unsupported()) }
    }

    /// Gives back the memory of what lies in the data file as it is, where the medium knows that without a checkpoint:
    /// while a new pool is filled without a log ([`PoolConfig::bulk_load`](crate::PoolConfig::bulk_load)). Does nothing
    /// elsewhere. O(pages).
    ///
    /// # Errors
    /// The first I/O error, which poisons the shadow.
    ///
    /// # Safety
    /// As [`Shadow::page_out`].
    pub unsafe fn page_out_loaded(&self) -> Result<()> {
        match &self.backing {
            ShadowBacking::Log(log) if self.is_loading() => {
                // SAFETY: the caller's promise.
                unsafe { log.region.page_out(ByteRange { offset: 0, len: self.len() }) }.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Whether [`Shadow::page_out`] works here.
    ///
    /// # Errors
    /// `Unsupported`, with what would work.
    pub fn can_page_out(&self) -> Result<()> {
        // SAFETY: of no bytes, so there is nothing that another thread could store to.
        unsafe { self.page_out(0, 0) }
    }
}

fn unsupported() -> Error {
    Error::Unsupported {
        what: "memory can be given back only where the pool lies in files of the operating system; open it without \
               a limit of memory"
            .into(),
    }
}
