//! A ring in memory whose end is mapped again behind itself, so that a range that wraps around
//! is contiguous for the program.

use crate::Reservation;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// `len` bytes of zeroed memory, mapped twice in a row.
#[derive(Debug)]
pub struct Mirror {
    /// Both views, `2 * len` bytes; unmapped on drop.
    whole: Reservation,
}

impl Mirror {
    /// A ring of `len` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// What memfd_create(2), ftruncate(2) or mmap(2) say.
    pub fn new(len: usize) -> io::Result<Self> {
        let fd: OwnedFd = rustix::fs::memfd_create(c"mangrove-log", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        let whole = Reservation::addresses(2 * len)?;
        for half in 0..2 {
            // SAFETY: replaces one half of the range just reserved, which nobody else knows.
            let got = unsafe {
                libc::mmap(
                    whole.base().as_ptr().add(half * len).cast(),
                    len,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    fd.as_raw_fd(),
                    0,
                )
            };
            if got == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { whole })
    }

    /// First byte; `2 * len` bytes follow, the second half another view of the first.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.whole.base()
    }

    /// Bytes of the ring.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.whole.len() / 2
    }

    /// True for the empty ring.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }
}
