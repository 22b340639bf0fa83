//! Mappings: contiguous ranges of addresses that never move while they live.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Shared, with MAP_SYNC: the file's metadata is durable before a store to it can be.
    SharedSync,
    /// Shared through the page cache.
    Shared,
    /// A private copy on write.
    Private,
}

/// A mapped range, unmapped on drop.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the reservation is plain memory; who writes where is the owner's business.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes of zeroed memory without committing any to them.
    ///
    /// # Errors
    /// What mmap(2) says: out of address space, or a limit of the process.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    /// As [`Reservation::anonymous`], at `address` and nowhere else.
    ///
    /// # Errors
    /// `AlreadyExists` (EEXIST) when something is mapped in the range; else what mmap(2) says.
    pub fn anonymous_at(address: usize, len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let got = Self::map_at(address, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // Kernels before 4.17 take the address for a hint.
        if got.base.as_ptr() as usize != address {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(got)
    }

    /// Puts a private copy on write of `len` bytes of `file`, from its byte `from` on, at `offset` of this
    /// range, in place of what is there. All three are whole pages, and the file is that long.
    ///
    /// # Errors
    /// What mmap(2) says; the range is then as before, or unmapped.
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

    /// Reserves addresses that fault when touched, to put files at.
    ///
    /// # Errors
    /// What mmap(2) says.
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
            MapKind::Shared => libc::MAP_SHARED,
            MapKind::Private => libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        };
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd())
    }

    fn map(len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        Self::map_at(0, len, protection, flags, fd)
    }

    fn map_at(address: usize, len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        let address = std::ptr::without_provenance_mut(address);
        // SAFETY: a fresh mapping; MAP_FIXED_NOREPLACE, where given, replaces nothing.
        let ptr = unsafe { libc::mmap(address, len, protection, flags, fd, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(ptr.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// Asks for huge pages behind a range; a hint that changes no content.
    pub fn advise_huge(&self, offset: usize, len: usize) {
        self.advise(offset, len, libc::MADV_HUGEPAGE);
    }

    /// Asks the kernel to keep a range's pages out of core dumps; a hint.
    pub fn advise_no_dump(&self) {
        self.advise(0, self.len, libc::MADV_DONTDUMP);
    }

    fn advise(&self, offset: usize, len: usize, advice: i32) {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping; these advices change no content.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, advice) };
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
        // SAFETY: the range was mapped by a constructor and nobody else unmaps it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Asks for huge pages behind memory of the caller, from whatever allocator; a hint that changes no content.
///
/// # Safety
/// `base..base + bytes` is memory of the caller.
pub unsafe fn advise_huge_pages(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's memory; the advice changes no content. A range of less than whole pages is refused.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}
