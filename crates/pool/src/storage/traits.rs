//! The one way to files. Every byte that a pool reads or writes through the operating system passes here, so that a
//! fault test or a simulated disk is an implementation of the traits here.
//!
//! Contract (what a simulated disk may do, docs/fault-model.md):
//! 1. After [`StorageFile::sync`] returned `Ok`, every earlier completed write to that file, its length and its
//!    allocation survive a crash.
//! 2. After [`StorageFile::write_durable`] returned `Ok`, its bytes survive. Other writes need not.
//! 3. A write under way, or not yet synced, may survive in any subset of its 512-byte sectors.
//! 4. A name created or removed survives a crash only after [`Storage::sync_dir`] on its directory.
//! 5. A write that returned an error may have written any part of its bytes.
//! 6. Bytes that were stored to a file as memory ([`FileMap`]) need not survive before a `sync`, as those of a write.
//!    Unlike those, they may survive in any mixture of old and new bytes, but for words that are stored at once.
//! 7. Paths that begin with a directory that is held ([`Storage::hold`]) mean that directory, wherever it is by now.

use crate::Site;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

/// The smallest number of bytes that a disk writes all or nothing.
pub const SECTOR_BYTES: usize = 512;
/// What goes past the page cache whatever the disk begins in the file and in memory at multiples of it, as its length
/// is one: no disk has larger sectors.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// `len` bytes in `space`, which grows if need be, that begin at a multiple of [`BLOCK_BYTES`].
pub(crate) fn aligned(space: &mut Vec<u8>, len: usize) -> &mut [u8] {
    let block = BLOCK_BYTES as usize;
    if space.len() < len + block {
        *space = vec![0; len + block];
    }
    let start = space.as_ptr().align_offset(block);
    &mut space[start..start + len]
}

/// Bytes of zeros written at a time.
const ZERO_BYTES: usize = 1 << 20;

/// The call site of this function.
#[inline]
#[must_use]
#[track_caller]
pub fn here() -> Site {
    Location::caller()
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow {
    /// It must exist; only reads will follow.
    Read,
    /// It must exist; reads and writes will follow.
    Write,
    /// It is created, empty, if missing, and kept as it is if present; reads and writes will follow.
    Create,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing.
    Missing,
    /// A regular file or a device.
    File,
    /// A directory.
    Folder,
}

/// How a file is locked among processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// A devdax device, which takes the place of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Bytes of it.
    pub bytes: u64,
    /// Mappings are multiples of so many bytes.
    pub align_bytes: u64,
    /// A file stands for it, in a test: it cannot be mapped with MAP_SYNC.
    pub is_file: bool,
}

/// A place for files: the operating system's, or a simulated disk.
pub trait Storage: Send + Sync + Debug {
    /// What `path` names.
    ///
    /// # Errors
    /// The operating system's, except "not found".
    fn kind(&self, path: &Path) -> io::Result<PathKind>;

    /// The names in a directory, in any order.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory; its parent exists. `Ok` when it is already there.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir(&self, path: &Path, site: Site) -> io::Result<()>;

    /// Opens a file. `Read` opens a directory too, to lock it, where the operating system can do that.
    ///
    /// # Errors
    /// The operating system's.
    fn open(&self, path: &Path, how: OpenHow, site: Site) -> io::Result<Box<dyn StorageFile>>;

    /// Removes a file. `Ok` when it is not there.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, path: &Path, site: Site) -> io::Result<()>;

    /// Removes a directory, if it is empty. A storage that cannot do so leaves it.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        let _ = (path, site);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()>;

    /// This storage, with `directory` held: to the result, `directory` and the names in it mean the directory that has
    /// this path now, even when the process has another working directory or root later, when the directory is
    /// renamed, or when the path names another one. `None` where none of that can happen.
    ///
    /// # Errors
    /// The operating system's.
    fn hold(&self, directory: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        let _ = directory;
        Ok(None)
    }

    /// False when `path` no longer names `file`, because another file was renamed to it, or it was removed.
    ///
    /// # Errors
    /// The operating system's.
    fn is_named(&self, path: &Path, file: &dyn StorageFile) -> io::Result<bool> {
        let _ = (path, file);
        Ok(true)
    }

    /// The device at `path`; `None` when that is no devdax device.
    fn device(&self, path: &Path) -> Option<Device> {
        let size = mangrove_sys::file::devdax_size(path)?;
        Some(Device { bytes: size.bytes, align_bytes: size.align_bytes, is_file: false })
    }

    /// A number that cannot be guessed and does not repeat (pool UUIDs, log nonces). A simulated disk may derive it
    /// from a seed, but must never return the same one twice.
    fn random(&self) -> u64;
}

/// One open file. Dropping it closes it and releases its lock, even while a child of fork has the file open too.
/// Dropped in such a child, it leaves the parent's lock held.
pub trait StorageFile: Send + Sync {
    /// Bytes of the file.
    ///
    /// # Errors
    /// The operating system's.
    fn size(&self) -> io::Result<u64>;

    /// Reads at `offset`; returns the bytes read, fewer than asked only at the end of the file.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// As `read_at`, but where the system can they come from the medium, past the page cache: for much that was written
    /// past it, or is read only once. It can after [`StorageFile::prepare_durable`], where offset, length and the
    /// address of `bytes` are multiples of 4 KiB.
    ///
    /// # Errors
    /// As `read_at`.
    fn read_past_cache(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_at(offset, bytes)
    }

    /// Announces that `offset..offset + len` will be read soon, so that the system may start reading. A hint; the
    /// range may reach beyond the end of the file.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// The first byte from `offset` on that may not be zero; `None` when there is none.
    ///
    /// # Errors
    /// The operating system's.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// The first byte from `offset`, which is data, on that `next_data` would pass over; `None` if not known.
    ///
    /// # Errors
    /// The operating system's.
    fn next_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        let _ = offset;
        Ok(None)
    }

    /// Writes all of `bytes` at `offset`, growing the file if needed. Durable after `sync`.
    ///
    /// # Errors
    /// The operating system's; any part of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()>;

    /// As `write_at`, but where the system can it goes to the medium at once, past the page cache: for much that no
    /// program reads soon. No other write of the same pages may be under way. Offset, length and the address of `bytes`
    /// are multiples of 4 KiB.
    ///
    /// # Errors
    /// As `write_at`.
    fn write_past_cache(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.write_at(offset, bytes, site)
    }

    /// Opens the O_DIRECT descriptor that `write_durable` uses. Optional: without this call, `write_durable` opens
    /// it on first use; where direct I/O is refused it writes through the page cache and syncs.
    ///
    /// # Errors
    /// When the process has no file descriptor left: there may be one later.
    fn prepare_durable(&self) -> io::Result<()> {
        Ok(())
    }

    /// Writes all of `bytes` at `offset` inside the file; durable on return. Offset and length are multiples of
    /// [`SECTOR_BYTES`], the address of `bytes` a multiple of it too.
    ///
    /// # Errors
    /// The operating system's; any part of the bytes may have been written.
    fn write_durable(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()>;

    /// Makes all earlier writes, the length and the allocation durable.
    ///
    /// # Errors
    /// The operating system's. The caller never retries: a second sync may return `Ok` although bytes are lost.
    fn sync(&self, site: Site) -> io::Result<()>;

    /// Makes the file at least `offset + len` bytes long and reserves space on the medium for that range, so that
    /// later writes to it find space. New bytes read as zero, old ones stay.
    ///
    /// # Errors
    /// `StorageFull` or the like when there is no space.
    fn allocate(&self, offset: u64, len: u64, site: Site) -> io::Result<()>;

    /// As `allocate` for bytes that nothing has been written to, but writes zeros: a later write there changes nothing
    /// except the bytes, and so is one write to the disk. Durable after `sync`.
    ///
    /// # Errors
    /// As `allocate`; any part may have been allocated and written.
    fn prepare_range(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        self.allocate(offset, len, site)?;
        self.write_zeros(offset, len, site)
    }

    /// Makes a range of whole pages inside the file zero and gives its space back to the medium. False where the
    /// medium has no holes: then nothing has changed. Durable after `sync`; until then a crash may keep any of its
    /// sectors. The length stays.
    ///
    /// # Errors
    /// The operating system's, `StorageFull` or the like when there is no space to record the hole; any part of the
    /// range may be a hole.
    fn punch(&self, offset: u64, len: u64, site: Site) -> io::Result<bool> {
        let _ = (offset, len, site);
        Ok(false)
    }

    /// Makes the file no longer than `len` bytes, which gives the space of the rest back to the medium. Durable after
    /// `sync`.
    ///
    /// # Errors
    /// The operating system's.
    fn cut_off(&self, len: u64, site: Site) -> io::Result<()>;

    /// Writes `len` zeros at `offset`, as `write_at` does.
    ///
    /// # Errors
    /// As `write_at`.
    fn write_zeros(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        let zeros = vec![0; ZERO_BYTES.min(len as usize)];
        let mut at = offset;
        while at < offset + len {
            let part = zeros.len().min((offset + len - at) as usize);
            self.write_at(at, &zeros[..part], site)?;
            at += part as u64;
        }
        Ok(())
    }

    /// Locks the file among processes without waiting; false when another process, or another handle, holds it.
    ///
    /// # Errors
    /// The operating system's.
    fn lock(&self, kind: LockKind) -> io::Result<bool>;

    /// Children of fork do not get the file from now on: its locks shall end with this process. For locks by other ways
    /// than `lock`.
    fn keep_from_children(&self) {}

    /// True when `write_durable` bypasses the page cache (for `stat`).
    fn is_direct(&self) -> bool {
        false
    }

    /// The operating system's handle, where there is one (dax maps it).
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The file's bytes as memory. `None` where a store there could fail, or is not possible.
    ///
    /// # Errors
    /// The operating system's.
    fn map(&self) -> io::Result<Option<Box<dyn FileMap>>> {
        Ok(None)
    }
}

/// The bytes of a file as memory. What was stored there is the operating system's, as after `write_at`: it outlives the
/// process. Stores reach it in their order.
pub trait FileMap: Send {
    /// Stores `bytes` at `offset` inside the file; a process that is killed meanwhile has stored any part of them.
    ///
    /// # Errors
    /// The operating system's. Nothing is known of the bytes then.
    fn store(&mut self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()>;

    /// Stores eight bytes at `offset`, a multiple of eight, all at once.
    ///
    /// # Errors
    /// As `store`.
    fn store_word(&mut self, offset: u64, word: [u8; 8], site: Site) -> io::Result<()>;
}
