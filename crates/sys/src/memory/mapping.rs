//! Mappings: contiguous ranges of addresses that never move while they live.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Of Linux 6.1 and later.
const MADV_COLLAPSE: i32 = 25;
/// Of Linux 5.14 and later.
const MADV_POPULATE_WRITE: i32 = 23;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Shared, with MAP_SYNC: the file's metadata is durable before a store to it can be.
    SharedSync,
    /// Shared through the page cache.
    Shared,
    /// As `Shared`, for loads only: of a file that is open for reading.
    SharedRead,
    /// A private copy on write.
    Private,
}

/// A mapped range, unmapped on drop.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the reservation is plain memory; its owner orders the accesses to it.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes of zeroed memory without committing any memory to them.
    ///
    /// # Errors
    /// Those of mmap(2): the address space, or a limit of the process, is exhausted.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    /// As [`Reservation::anonymous`], at `address` and nowhere else.
    ///
    /// # Errors
    /// `AlreadyExists` (EEXIST) when something is mapped in the range; else those of mmap(2).
    pub fn anonymous_at(address: usize, len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let got = Self::map_at(address, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // Kernels before 4.17 treat the address as a hint.
        if got.base.as_ptr() as usize != address {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(got)
    }

    /// Maps a private copy on write of `len` bytes of `file`, from its byte `from` on, at `offset` of this range,
    /// in place of the mapping there. All three numbers are whole pages, and the file is that long.
    ///
    /// # Errors
    /// Those of mmap(2); the range is then as before, or unmapped.
    pub fn replace_by_private(
        &self,
        offset: usize,
        len: usize,
        file: BorrowedFd<'_>,
        from: u64,
    ) -> io::Result<()> {
        assert!(offset <= self.len && len <= self.len - offset);
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let to = self.base.as_ptr().wrapping_add(offset);
        // SAFETY: replaces pages of a mapping that is ours alone (asserted to lie inside it).
        let got = unsafe {
            libc::mmap(
                to.cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reserves addresses that fault when touched, to map files at.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn addresses(len: usize) -> io::Result<Self> {
        Self::map(len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Maps `len` bytes of `file` from its start, which may end beyond the file's end.
    ///
    /// # Errors
    /// `Unsupported` (EOPNOTSUPP) for `SharedSync` where the file is not on a DAX file system.
    pub fn file(file: BorrowedFd<'_>, len: usize, kind: MapKind) -> io::Result<Self> {
        let flags = match kind {
            MapKind::SharedSync => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            MapKind::Shared | MapKind::SharedRead => libc::MAP_SHARED,
            MapKind::Private => libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        };
        let stores = if kind == MapKind::SharedRead { 0 } else { libc::PROT_WRITE };
        Self::map(len, libc::PROT_READ | stores, flags, file.as_raw_fd())
    }

    /// Maps `len` bytes of `file` from its byte `from` on, shared through the page cache. Both are whole pages; the
    /// part may end beyond the file's end.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn file_part(file: BorrowedFd<'_>, from: u64, len: usize) -> io::Result<Self> {
        Self::map_from(
            (0, len),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            (file.as_raw_fd(), from as libc::off_t),
        )
    }

    /// Readies a range of whole pages for stores, as a store to each page would, and fails where that would end the
    /// process (SIGBUS).
    ///
    /// # Errors
    /// EFAULT in that case; EINVAL before Linux 5.14; else those of madvise(2).
    pub fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset <= self.len && len <= self.len - offset);
        loop {
            // SAFETY: inside the mapping; the advice changes no content.
            let done =
                unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, MADV_POPULATE_WRITE) };
            if done == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn map(len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        Self::map_at(0, len, protection, flags, fd)
    }

    fn map_at(address: usize, len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        Self::map_from((address, len), protection, flags, (fd, 0))
    }

    fn map_from(
        (address, len): (usize, usize),
        protection: i32,
        flags: i32,
        (fd, from): (i32, libc::off_t),
    ) -> io::Result<Self> {
        let address = std::ptr::without_provenance_mut(address);
        // SAFETY: a fresh mapping; MAP_FIXED_NOREPLACE, where given, replaces nothing.
        let ptr = unsafe { libc::mmap(address, len, protection, flags, fd, from) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(ptr.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// Asks for huge pages for a range; a hint that changes no content.
    pub fn advise_huge(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping; the advice changes no content.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, libc::MADV_HUGEPAGE) };
    }

    /// Moves what a range has in small pages to huge ones now, where the kernel can; changes no content. (The advice
    /// alone does that only for pages that are touched after it.)
    pub fn collapse(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping; the call changes no content.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, MADV_COLLAPSE) };
    }

    /// Gives the memory of an anonymous range back. What the range holds from then on is not defined: zeros, or what it
    /// held, where the process has locked its memory (mlockall).
    pub fn discard(&self) {
        // SAFETY: the caller owns the mapping, and what it holds.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_DONTNEED) };
    }

    /// Gives the memory of a part of whole pages of an anonymous range back; the part reads as zeros from then on.
    /// Locked memory (mlockall) cannot be given back, and is zeroed in place.
    ///
    /// # Safety
    /// What the part holds is not needed, no thread stores to it meanwhile, and it may be written.
    pub unsafe fn discard_part(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping; the caller's promise.
        unsafe {
            let part = self.base.as_ptr().add(offset);
            if libc::madvise(part.cast(), len, libc::MADV_DONTNEED) != 0 {
                part.write_bytes(0, len);
            }
        }
    }

    /// First byte of the range.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of the range.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for the empty range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: a constructor mapped the range, and only this unmaps it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Asks for huge pages for memory of the caller, from any allocator; a hint that changes no content.
///
/// # Safety
/// `base..base + bytes` is memory of the caller.
pub unsafe fn advise_huge_pages(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's memory; the advice changes no content. The kernel refuses a range of less than whole
    // pages.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_to_huge_pages_changes_no_content() {
        let len = 8 << 20;
        let memory = Reservation::anonymous(len).expect("8 MiB of addresses");
        let words = memory.base().cast::<u64>();
        for at in (0..len / 8).step_by(100) {
            // SAFETY: inside the mapping, which is this test's own.
            unsafe { words.add(at).write(at as u64) };
        }
        memory.advise_huge(0, len);
        memory.collapse(0, len);
        for at in 0..len / 8 {
            // SAFETY: as above; what was not written is zero.
            let word = unsafe { words.add(at).read() };
            assert_eq!(word, if at % 100 == 0 { at as u64 } else { 0 });
        }
    }

    #[test]
    fn what_is_given_back_of_locked_memory_reads_as_zeros() {
        const PAGE: usize = 4096;
        let memory = Reservation::anonymous(3 * PAGE).expect("three pages of addresses");
        let base = memory.base().as_ptr();
        // SAFETY: the test's own memory.
        let bytes = unsafe {
            base.write_bytes(7, memory.len());
            if libc::mlock(base.cast_const().cast(), memory.len()) != 0 {
                eprintln!("no memory may be locked here: {}", io::Error::last_os_error());
                return;
            }
            memory.discard_part(PAGE, PAGE);
            std::slice::from_raw_parts(base, memory.len())
        };
        for (at, &byte) in bytes.iter().enumerate() {
            assert_eq!(byte, if at / PAGE == 1 { 0 } else { 7 }, "byte {at}");
        }
    }
}
