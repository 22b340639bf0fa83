//! A ring in memory that is mapped twice in a row, so that a range that wraps around is contiguous for the program.

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
    /// Those of mmap(2), memfd_create(2) and ftruncate(2).
    pub fn new(len: usize) -> io::Result<Self> {
        let whole = Reservation::addresses(2 * len)?;
        let halves = [0, len].map(|half| whole.base().as_ptr().wrapping_add(half).cast());
        // SAFETY: the two halves of the range just reserved, which no other code knows.
        unsafe {
            // The second way comes second because a file in memory falls under the limit of file sizes; valgrind
            // needs it.
            if map_twice(halves, len).is_err() {
                map_file_twice(halves, len)?;
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

/// Maps fresh shared memory of `len` bytes at both places.
///
/// # Safety
/// The caller may replace what is mapped at both.
unsafe fn map_twice([one, two]: [*mut libc::c_void; 2], len: usize) -> io::Result<()> {
    // SAFETY: by contract.
    unsafe {
        map(one, len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)?;
        // An old length of zero maps the same pages once more.
        let got = libc::mremap(one, 0, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, two);
        if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// As `map_twice`, with a file in memory.
///
/// # Safety
/// As there.
unsafe fn map_file_twice(halves: [*mut libc::c_void; 2], len: usize) -> io::Result<()> {
    let fd: OwnedFd = rustix::fs::memfd_create(c"mangrove-log", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    // SAFETY: by contract.
    halves.into_iter().try_for_each(|half| unsafe { map(half, len, libc::MAP_SHARED, fd.as_raw_fd()) })
}

/// # Safety
/// The caller may replace what is mapped in the range.
unsafe fn map(at: *mut libc::c_void, len: usize, flags: i32, fd: i32) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by contract.
    let got = unsafe { libc::mmap(at, len, protection, flags | libc::MAP_FIXED, fd, 0) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
