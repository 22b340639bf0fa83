//! Files: durable writes past the page cache, space reservation, locks among processes, names in an open directory.

use crate::process::above_standard::open_above_standard;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A directory.
    Directory,
    /// A pipe: opening it waits for the process at its other end.
    Pipe,
    /// A regular file, a device or a socket.
    Other,
}

/// Opens an open file once more, so that each read and write bypasses the page cache, and a write is durable when it
/// returns (O_DIRECT and O_DSYNC). Uses its handle, because its name may belong to another file by now.
///
/// # Errors
/// `InvalidInput` where the file system has no direct I/O; else those of open(2).
pub fn open_direct_durable(file: &File) -> io::Result<File> {
    open_again(file, libc::O_DIRECT | libc::O_DSYNC)
}

/// As [`open_direct_durable`], where writes become durable by a sync (O_DIRECT).
///
/// # Errors
/// As there.
pub fn open_direct(file: &File) -> io::Result<File> {
    open_again(file, libc::O_DIRECT)
}

/// Opens an open file once more, for reading and writing.
fn open_again(file: &File, flags: libc::c_int) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    open_above_standard(|| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path))
}

/// Opens the file at `path` itself for writing. A link is an error; so is a pipe without a reader, where open(2)
/// would otherwise wait for one.
///
/// # Errors
/// ELOOP for a link, ENXIO for a pipe; else those of open(2).
pub fn open_itself(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    open_above_standard(|| OpenOptions::new().write(true).custom_flags(flags).open(path))
}

/// Whether a name between two slashes matches a part of a pattern, as glob(3) compares them in the C locale: by
/// fnmatch(3), and a period that begins the name must be named.
#[must_use]
pub fn name_matches(pattern: &OsStr, name: &OsStr) -> bool {
    let [pattern, name] = [pattern, name].map(|text| CString::new(text.as_bytes()));
    let (Ok(pattern), Ok(name)) = (pattern, name) else { return false };
    // SAFETY: two strings that end with NUL.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PERIOD) == 0 }
}

/// Reserves space on the medium for `len` bytes at `offset` and grows the file to hold them. Where the file system
/// cannot reserve space, it only grows the file. After an error the file has its old length.
///
/// # Errors
/// ENOSPC, EFBIG, EIO: those of fallocate(2) or ftruncate(2).
pub fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    crate::without_size_signal(|| reserve(file, offset, len))
}

fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let before = file.metadata()?.len();
    let flags = rustix::fs::FallocateFlags::empty();
    match in_pieces(offset, len, |at, bytes| rustix::fs::fallocate(file, flags, at, bytes)) {
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

/// Does `len` bytes at `offset` by `reserve`, in as many pieces as signals make necessary. On tmpfs, before Linux 6.10,
/// a signal ends a call, which gives back all that it had reserved: a timer's would end every long one.
fn in_pieces(
    offset: u64,
    len: u64,
    mut reserve: impl FnMut(u64, u64) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    const PIECE_BYTES_MIN: u64 = 1 << 20;
    let (mut at, mut left, mut piece) = (offset, len, len);
    loop {
        let now = piece.min(left);
        match reserve(at, now) {
            Ok(()) if now == left => return Ok(()),
            Ok(()) => (at, left) = (at + now, left - now),
            Err(rustix::io::Errno::INTR) => piece = (now / 2).max(PIECE_BYTES_MIN),
            Err(e) => return Err(e),
        }
    }
}

/// True where a store to the first `bytes` bytes of the file, mapped shared, never lacks space: it is reserved on the
/// medium, and the file system writes those bytes where it has reserved space for them. Elsewhere such a store may end
/// the process (SIGBUS).
///
/// # Errors
/// Those of fstat(2) and fstatfs(2).
pub fn is_reserved(file: &File, bytes: u64) -> io::Result<bool> {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const TMPFS: u64 = 0x0102_1994;
    const BLOCK_BYTES: u64 = 512;
    let stat = rustix::fs::fstat(file)?;
    if (stat.st_size as u64) < bytes || (stat.st_blocks as u64) < bytes.div_ceil(BLOCK_BYTES) {
        return Ok(false);
    }
    // One that copies on write takes new space for bytes that it has space for.
    Ok(matches!(rustix::fs::fstatfs(file)?.f_type as u64, EXT4 | XFS | TMPFS))
}

/// Makes a part of a file a hole. False where the file system has no holes; then nothing has changed.
///
/// # Errors
/// Those of fallocate(2).
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Asks the operating system to start reading a part of a file.
pub fn will_read(file: &File, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        // A hint: without it the later read waits for the disk.
        let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed);
    }
}

/// Asks the operating system to start writing what is changed in a part of a file.
pub fn start_writing(file: &File, offset: u64, len: u64) {
    // SAFETY: an open file. A hint: without it a later sync has more to write, and it reports what fails.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset as libc::off64_t,
            len as libc::off64_t,
            libc::SYNC_FILE_RANGE_WRITE,
        )
    };
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

/// The first byte from `offset` on that lies in a hole, or behind the end; `None` where the file system reports no
/// holes.
///
/// # Errors
/// Those of lseek(2); ENXIO when the file ends before `offset`.
pub fn next_hole(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(None),
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

/// Locks `bytes` of a file among openings of it, without waiting: alone, or together with others that only read. False
/// when another opening holds them. The bytes need not exist. The lock belongs to the opening, not to the process or
/// the thread, and has nothing to do with that of `try_lock`.
///
/// # Errors
/// Those of fcntl(2): on some file systems there are no such locks.
pub fn try_lock_bytes(file: impl AsFd, bytes: Range<u64>, exclusive: bool) -> io::Result<bool> {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    match lock_call(file, libc::F_OFD_SETLK, &mut lock_of(bytes, kind)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Releases the lock of `try_lock_bytes`, or a part of it.
///
/// # Errors
/// Those of fcntl(2).
pub fn unlock_bytes(file: impl AsFd, bytes: Range<u64>) -> io::Result<()> {
    lock_call(file, libc::F_OFD_SETLK, &mut lock_of(bytes, libc::F_UNLCK))
}

/// True when another opening of the file holds a part of `bytes` alone.
///
/// # Errors
/// Those of fcntl(2).
pub fn are_bytes_held(file: impl AsFd, bytes: Range<u64>) -> io::Result<bool> {
    let mut lock = lock_of(bytes, libc::F_RDLCK);
    lock_call(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn lock_of(bytes: Range<u64>, kind: i32) -> libc::flock {
    // SAFETY: all of it are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = bytes.start as _;
    lock.l_len = (bytes.end - bytes.start) as _;
    lock
}

fn lock_call(file: impl AsFd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the pointer is valid for the call, which changes nothing else.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True when the file at `path`, following links, has an access list beside its permissions (acl(5)).
#[must_use]
pub fn has_access_list(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings that end with NUL; a call with no size writes nothing.
    let bytes = unsafe {
        libc::getxattr(path.as_ptr(), c"system.posix_acl_access".as_ptr(), std::ptr::null_mut(), 0)
    };
    bytes > 0
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

/// Opens a directory for the functions `*_in`. It can be listed, synced and locked if its permissions let it be read.
///
/// # Errors
/// Those of open(2).
pub fn open_directory(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let open = |flags| {
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open_above_standard(|| Ok(rustix::io::retry_on_intr(|| open(path, flags, Mode::empty()))?))
    };
    match open(OFlags::RDONLY) {
        // Its files can be opened all the same.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(open(OFlags::PATH)?.into()),
        opened => Ok(opened?.into()),
    }
}

/// What `name` stands for in a directory, following links; `None` when it is not there.
///
/// # Errors
/// Those of stat(2), except "not found".
pub fn kind_in(directory: &File, name: &Path) -> io::Result<Option<NameKind>> {
    use rustix::fs::{AtFlags, FileType, statat};
    match statat(directory, name, AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
        Ok(stat) => Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => NameKind::Directory,
            FileType::Fifo => NameKind::Pipe,
            _ => NameKind::Other,
        })),
    }
}

/// Opens the file `name` of a directory for reading, with `write` for writing too; `create` makes it if it is missing.
///
/// # Errors
/// Those of open(2).
pub fn open_in(directory: &File, name: &Path, write: bool, create: bool) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};
    let mut flags = OFlags::CLOEXEC | if write { OFlags::RDWR } else { OFlags::RDONLY };
    flags.set(OFlags::CREATE, create);
    let mode = Mode::from_raw_mode(0o666);
    let open = || rustix::io::retry_on_intr(|| openat(directory, name, flags, mode));
    Ok(open_above_standard(|| Ok(open()?))?.into())
}

/// The names in a directory, in any order.
///
/// # Errors
/// Those of open(2) and getdents(2).
pub fn names_in(directory: &File) -> io::Result<Vec<String>> {
    use rustix::fs::{Dir, Mode, OFlags, openat};
    // Opened anew: the position in a directory belongs to the open file.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = rustix::io::retry_on_intr(|| openat(directory, ".", flags, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in Dir::new(listing)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Removes the file `name` of a directory.
///
/// # Errors
/// Those of unlink(2).
pub fn remove_in(directory: &File, name: &Path) -> io::Result<()> {
    rustix::fs::unlinkat(directory, name, rustix::fs::AtFlags::empty()).map_err(Into::into)
}

/// True when `name` in a directory, following links, stands for `file` and not for another file or none.
///
/// # Errors
/// Those of stat(2), except "not found".
pub fn is_named_in(directory: impl AsFd, name: &Path, file: impl AsFd) -> io::Result<bool> {
    let file = rustix::fs::fstat(file)?;
    match rustix::fs::statat(directory, name, rustix::fs::AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
        Ok(named) => Ok((named.st_dev, named.st_ino) == (file.st_dev, file.st_ino)),
    }
}

/// As [`is_named_in`], for a path.
///
/// # Errors
/// As there.
pub fn is_named(path: &Path, file: impl AsFd) -> io::Result<bool> {
    is_named_in(rustix::fs::CWD, path, file)
}

/// What a devdax device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevdaxSize {
    /// Bytes of the device.
    pub bytes: u64,
    /// Mappings are multiples of so many bytes.
    pub align_bytes: u64,
}

/// Size and alignment of a devdax device; `None` when `path` is no such device.
#[must_use]
pub fn devdax_size(path: &Path) -> Option<DevdaxSize> {
    /// Where the kernel does not tell it.
    const ALIGN_BYTES: u64 = 2 << 20;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::metadata(path).ok()?;
    if !meta.file_type().is_char_device() {
        return None;
    }
    let device = meta.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = Path::new("/sys/dev/char").join(format!("{major}:{minor}"));
    // Other character devices may have an attribute of the name `size`.
    let subsystem = std::fs::canonicalize(folder.join("subsystem")).ok()?;
    if subsystem.file_name()? != "dax" {
        return None;
    }
    let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let align_bytes = number("align").filter(|align| align.is_power_of_two()).unwrap_or(ALIGN_BYTES);
    Some(DevdaxSize { bytes: number("size")?, align_bytes })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_holes_is_not_reserved() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        assert!(!is_reserved(&file, 1 << 20).unwrap());
        allocate(&file, 0, 512 << 10).unwrap();
        assert!(!is_reserved(&file, 1 << 20).unwrap(), "half of it has no space");
        assert!(!is_reserved(&file, 2 << 20).unwrap(), "it is not that long");
    }

    #[test]
    fn signals_that_come_all_the_time_prevent_no_reservation() {
        use rustix::io::Errno;
        let (start, len) = (4096, (10 << 20) + 5);
        let mut pieces = Vec::new();
        let done = in_pieces(start, len, |at, bytes| {
            // A longer call takes longer than the time between two signals.
            if bytes > 3 << 20 {
                return Err(Errno::INTR);
            }
            pieces.push((at, bytes));
            Ok(())
        });
        assert_eq!(done, Ok(()));
        let end = pieces.iter().fold(start, |end, &(at, bytes)| {
            assert_eq!(at, end, "{pieces:?}");
            at + bytes
        });
        assert_eq!(end, start + len);
        assert_eq!(in_pieces(0, 1, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
    }

    /// In a child, which alone has the limit, and the default action of the signal.
    #[test]
    fn a_file_size_limit_fails_the_call_and_ends_nobody() {
        let file = tempfile::tempfile().unwrap();
        // SAFETY: the child allocates nothing, and leaves by _exit.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
                let limited = libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0;
                let grown = allocate(&file, 0, 1 << 20).err().and_then(|e| e.raw_os_error());
                let fits = allocate(&file, 0, 4096).is_ok();
                libc::_exit(i32::from(!(limited && grown == Some(libc::EFBIG) && fits)));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "the child ended with {status:#x}"
        );
    }
}
