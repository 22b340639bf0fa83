//! A ring in memory whose end is mapped again behind itself, so that a range that wraps around
//! is contiguous for the program.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// `len` bytes of zeroed memory, mapped twice in a row.
#[derive(Debug)]
pub struct Mirror {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; who writes where is the owner's business.
unsafe impl Send for Mirror {}
// SAFETY: as above.
unsafe impl Sync for Mirror {}

impl Mirror {
    /// A ring of `len` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// What memfd_create(2), ftruncate(2) or mmap(2) say.
    pub fn new(len: usize) -> io::Result<Self> {
        let fd: OwnedFd = rustix::fs::memfd_create(c"mangrove-log", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let whole = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if whole == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(whole.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let mirror = Self { base, len };
        for half in 0..2 {
            // SAFETY: replaces one half of the range just reserved, which nobody else knows.
            let got = unsafe {
                libc::mmap(
                    base.as_ptr().add(half * len).cast(),
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
        Ok(mirror)
    }

    /// First byte; `2 * len` bytes follow, the second half another view of the first.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of the ring.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for the empty ring.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: both halves lie in the range mapped by `new`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * self.len) };
    }
}
