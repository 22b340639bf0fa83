//! Files: durable writes past the page cache, space reservation, locks among processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens an open file once more, so that each write goes past the page cache and is durable when it
/// returns (O_DIRECT and O_DSYNC). By its handle, not by its name: that may name another file by now.
///
/// # Errors
/// `InvalidInput` where the file system has no direct I/O; else what open(2) says.
pub fn open_direct_durable(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(path)
}

/// Opens the file at `path` itself for writing: of a link it is an error, and so of a pipe that nobody reads, which others
/// would wait for.
///
/// # Errors
/// ELOOP, ENXIO: the above; else what open(2) says.
pub fn open_itself(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Gives `len` bytes at `offset` space on the medium and grows the file to hold them. Falls back
/// to growing alone where the file system cannot reserve space. After an error the file has its old length.
///
/// # Errors
/// ENOSPC, EFBIG, EIO: what fallocate(2) or ftruncate(2) say.
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
            // Some file systems keep the part that fitted: the last of the medium's room, and for nothing.
            if file.metadata().is_ok_and(|now| now.len() > before) {
                // What matters is the first error; a file that stays longer is as good.
                let _ = file.set_len(before);
            }
            Err(e.into())
        }
    }
}

/// Has the operating system fetch a part of a file that will be read soon.
pub fn will_read(file: &File, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        // A hint: without it the read only waits for the disk itself.
        let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed);
    }
}

/// The first byte from `offset` on that may not be zero; `None` when only holes follow, or nothing.
///
/// # Errors
/// What lseek(2) says.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // A file system that does not tell.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(Some(offset)),
        Err(e) => Err(e.into()),
    }
}

/// Tries to lock the whole file among processes; false when somebody else holds it.
///
/// # Errors
/// What flock(2) says, except that the lock is held.
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

/// Gives up the lock of `try_lock`. Closing alone does not, while a child of fork(2) has the file open too.
///
/// # Errors
/// What flock(2) says.
pub fn unlock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file.as_fd(), rustix::fs::FlockOperation::Unlock).map_err(Into::into)
}

/// Makes a file's bytes, length and allocation durable.
///
/// # Errors
/// What fdatasync(2) says. After an error the state of the file on the medium is unknown.
pub fn sync_data(file: &File) -> io::Result<()> {
    rustix::fs::fdatasync(file).map_err(Into::into)
}

/// Makes the names of a folder durable.
///
/// # Errors
/// What open(2) or fsync(2) say.
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
        // SAFETY: the buffer has as many bytes left as are asked for.
        let n = unsafe { libc::getrandom(bytes[at..].as_mut_ptr().cast(), bytes.len() - at, 0) };
        assert!(
            n > 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted,
            "no random numbers"
        );
        at += n.max(0) as usize;
    }
    u64::from_le_bytes(bytes)
}
