//! What the arena needs from outside: a region that only grows, and a receiver of reports of each write.

use std::io;

/// Receives reports of changed bytes. The bytes themselves are read when the batch is committed, so a range may be
/// reported before or after it is written, and more than once.
pub trait Writes {
    /// `len` bytes from address `ptr` on were, or are about to be, written. The crash simulator can silence each
    /// call site.
    #[track_caller]
    fn wrote(&mut self, ptr: usize, len: usize);
}

/// The region: one range of addresses that never moves.
#[expect(clippy::len_without_is_empty, reason = "whether a region is empty is no question")]
pub trait ArenaSpace: Send {
    /// The first byte. The same in every run that opens this region.
    fn base(&self) -> *mut u8;

    /// Bytes that may be touched now.
    fn len(&self) -> u64;

    /// Bytes that the region can ever have.
    fn capacity(&self) -> u64;

    /// Makes the region at least `len` bytes long. New bytes read as zero, also after a crash that comes before the
    /// commit of the batch that uses them.
    ///
    /// # Errors
    /// No space, or the medium's failure; the region is then as before.
    fn grow(&mut self, len: u64) -> io::Result<()>;

    /// The content of this range is not needed any more: its memory may return to the system. A hint; what the range
    /// reads as afterwards is undefined until it is written again.
    fn discard(&mut self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
}
