//! A ring in memory that is mapped twice in a row, so that a range that wraps around is contiguous for the program.

use crate::Reservation;
use crate::process::above_standard::open_above_standard;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// `len` bytes of zeroed memory, mapped twice in a row.
#[derive(Debug)]
pub struct Mirror {
    /// Both views, `2 * len` bytes; unmapped on drop.
    whole: Reservation,
    /// What each view consists of, one behind the other: a ring that has grown has a segment for each growth.
    segments: Vec<Segment>,
}

/// Shared memory.
#[derive(Clone, Debug)]
struct Segment {
    len: usize,
    /// The file in memory that it is mapped from, where mremap(2) cannot map it once more.
    file: Option<Arc<OwnedFd>>,
}

impl Mirror {
    /// A ring of `len` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// Those of mmap(2), memfd_create(2) and ftruncate(2).
    pub fn new(len: usize) -> io::Result<Self> {
        Self::build(None, len)
    }

    /// A longer ring of `len` bytes, a multiple of the page size: its beginning is the memory of this one, which keeps
    /// its place too.
    ///
    /// # Errors
    /// As [`Mirror::new`].
    ///
    /// # Panics
    /// When `len` is less than this ring has.
    pub fn grown(&self, len: usize) -> io::Result<Self> {
        assert!(len >= self.len(), "a ring does not shrink");
        Self::build(Some(self), len)
    }

    fn build(shorter: Option<&Self>, len: usize) -> io::Result<Self> {
        let whole = Reservation::addresses(2 * len)?;
        let place = |offset: usize| whole.base().as_ptr().wrapping_add(offset).cast::<libc::c_void>();
        let mut segments = shorter.map_or_else(Vec::new, |ring| ring.segments.clone());
        let mut offset = 0;
        for segment in &segments {
            let from = shorter.map_or(std::ptr::null_mut(), |ring| ring.base().as_ptr().wrapping_add(offset));
            for to in [place(offset), place(len + offset)] {
                // SAFETY: both places lie in the range just reserved, which no other code knows; the segment lies
                // there in this ring.
                unsafe {
                    match &segment.file {
                        Some(file) => map(to, segment.len, libc::MAP_SHARED, file.as_raw_fd())?,
                        None => map_again(from.cast(), segment.len, to)?,
                    }
                }
            }
            offset += segment.len;
        }
        if len > offset {
            let halves = [place(offset), place(len + offset)];
            // SAFETY: as above.
            let file = unsafe {
                // The second way comes second because a file in memory falls under the limit of file sizes; valgrind
                // needs it.
                match map_twice(halves, len - offset) {
                    Ok(()) => None,
                    Err(_) => Some(Arc::new(map_file_twice(halves, len - offset)?)),
                }
            };
            segments.push(Segment { len: len - offset, file });
        }
        Ok(Self { whole, segments })
    }

    /// Takes the memory out of this process's tables: a later access finds it again. For a ring of which a longer one
    /// is in use.
    pub fn forget_pages(&self) {
        // SAFETY: shared memory keeps its bytes. A failure only leaves the pages in the tables.
        unsafe { libc::madvise(self.base().as_ptr().cast(), self.whole.len(), libc::MADV_DONTNEED) };
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
        map_again(one, len, two)
    }
}

/// Maps the shared memory of `len` bytes at `from` once more, at `to`.
///
/// # Safety
/// The caller may replace what is mapped at `to`.
unsafe fn map_again(from: *mut libc::c_void, len: usize, to: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: by contract. An old length of zero maps the same pages once more.
    let got = unsafe { libc::mremap(from, 0, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// As `map_twice`, with a file in memory, which it returns.
///
/// # Safety
/// As there.
unsafe fn map_file_twice(halves: [*mut libc::c_void; 2], len: usize) -> io::Result<OwnedFd> {
    let make = || rustix::fs::memfd_create(c"mangrove-log", rustix::fs::MemfdFlags::CLOEXEC);
    let fd: OwnedFd = open_above_standard(|| Ok(make()?))?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    // SAFETY: by contract.
    halves.into_iter().try_for_each(|half| unsafe { map(half, len, libc::MAP_SHARED, fd.as_raw_fd()) })?;
    Ok(fd)
}

/// # Safety
/// The caller may replace what is mapped in the range.
unsafe fn map(at: *mut libc::c_void, len: usize, flags: i32, fd: i32) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by contract.
    let got = unsafe { libc::mmap(at, len, protection, flags | libc::MAP_FIXED, fd, 0) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_grows_is_the_same_memory() {
        let rings = [4096, 16384, 20480].iter().fold(Vec::<Mirror>::new(), |mut rings, &len| {
            let next = match rings.last() {
                None => Mirror::new(len),
                Some(last) => last.grown(len),
            };
            rings.push(next.unwrap());
            rings
        });
        let [short, middle, long] = &rings[..] else { unreachable!() };
        let byte = |ring: &Mirror, at: usize| ring.base().as_ptr().wrapping_add(at);
        // SAFETY: inside the rings, which this thread alone uses.
        unsafe {
            *byte(long, 7) = 1;
            *byte(long, 20480 + 5000) = 2;
            *byte(long, 20479) = 3;
            middle.forget_pages();
            assert_eq!([*byte(short, 7), *byte(short, 4096 + 7), *byte(middle, 16384 + 7)], [1; 3]);
            assert_eq!([*byte(middle, 5000), *byte(middle, 16384 + 5000), *byte(long, 5000)], [2; 3]);
            assert_eq!([*byte(long, 2 * 20480 - 1), *byte(middle, 4095)], [3, 0]);
        }
    }
}
