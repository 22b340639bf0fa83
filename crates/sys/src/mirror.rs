//! A ring in memory whose end is mapped again behind itself, so that a range that wraps around
//! is contiguous for the program.

use crate::Reservation;
use std::io;
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
    /// What mmap(2) or mremap(2) say.
    pub fn new(len: usize) -> io::Result<Self> {
        let whole = Reservation::addresses(2 * len)?;
        let first: *mut libc::c_void = whole.base().as_ptr().cast();
        // SAFETY: replaces the first half of the range just reserved, which nobody else knows.
        let got = unsafe {
            libc::mmap(
                first,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // An old length of zero maps the same shared pages once more. A file in memory would do too, but falls under
        // the limit of file sizes.
        // SAFETY: as above, the second half.
        let got = unsafe {
            libc::mremap(first, 0, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, first.byte_add(len))
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
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
