//! Files: durable writes past the page cache, space reservation, locks among processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens an open file once more, so that each write bypasses the page cache and is durable when it returns
/// (O_DIRECT and O_DSYNC). Uses its handle, because its name may belong to another file by now.
///
/// # Errors
/// `InvalidInput` where the file system has no direct I/O; else those of open(2).
pub fn open_direct_durable(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(path)
}

/// Opens the file at `path` itself for writing. A link is an error; so is a pipe without a reader, where open(2)
/// would otherwise wait for one.
///
/// # Errors
/// ELOOP for a link, ENXIO for a pipe; else those of open(2).
pub fn open_itself(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Reserves space on the medium for `len` bytes at `offset` and grows the file to hold them. Where the file system
/// cannot reserve space, it only grows the file. After an error the file has its old length.
///
/// # Errors
/// ENOSPC, EFBIG, EIO: those of fallocate(2) or ftruncate(2).
pub fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let before = file.metadata()?.len();
    let ask = || rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, len);
    match rustix::io::retry_on_intr(ask) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            if before < offset + len {
                file.set_len(offset + len)?;
            }
            Ok(())
        }
        Err(e) => {
            // Some file systems keep the part that fitted. It would take the last space of the medium, for nothing.
            if file.metadata().is_ok_and(|now| now.len() > before) {
                // The first error is the one to report, and a file that stays longer does no harm.
                let _ = file.set_len(before);
            }
            Err(e.into())
        }
    }
}

/// Asks the operating system to start reading a part of a file.
pub fn will_read(file: &File, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        // A hint: without it the later read waits for the disk.
        let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed);
    }
}

/// The first byte from `offset` on that may not be zero; `None` when only holes follow, or nothing.
///
/// # Errors
/// Those of lseek(2).
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // A file system that does not report holes.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(Some(offset)),
        Err(e) => Err(e.into()),
    }
}

/// Tries to lock the whole file among processes; false when another open file holds the lock.
///
/// # Errors
/// Those of flock(2), except that the lock is held.
pub fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match flock(file.as_fd(), operation) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Releases the lock of `try_lock`. Closing alone does not, while a child of fork(2) has the file open too.
///
/// # Errors
/// Those of flock(2).
pub fn unlock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file.as_fd(), rustix::fs::FlockOperation::Unlock).map_err(Into::into)
}

/// Makes a file's bytes, length and allocation durable.
///
/// # Errors
/// Those of fdatasync(2). After an error the state of the file on the medium is unknown.
pub fn sync_data(file: &File) -> io::Result<()> {
    rustix::fs::fdatasync(file).map_err(Into::into)
}

/// Makes the names of a directory durable.
///
/// # Errors
/// Those of open(2) or fsync(2).
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Bytes of a devdax device; `None` when `path` is no such device.
#[must_use]
pub fn devdax_bytes(path: &Path) -> Option<u64> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::metadata(path).ok()?;
    if !meta.file_type().is_char_device() {
        return None;
    }
    let device = meta.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let size = std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size")).ok()?;
    size.trim().parse().ok()
}

/// 64 random bits from the operating system.
///
/// # Panics
/// When the operating system has no random numbers at all.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    let mut at = 0;
    while at < bytes.len() {
        // SAFETY: the buffer has as many bytes left as are requested.
        let n = unsafe { libc::getrandom(bytes[at..].as_mut_ptr().cast(), bytes.len() - at, 0) };
        assert!(
            n > 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted,
            "no random numbers"
        );
        at += n.max(0) as usize;
    }
    u64::from_le_bytes(bytes)
}
