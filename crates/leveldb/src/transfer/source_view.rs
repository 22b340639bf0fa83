//! A LevelDB database, seen so that LevelDB can open it and leave it as it is.
//!
//! LevelDB writes into the directory of a database that it opens: it replays the log, begins new files and removes
//! old ones. So it opens a directory of symbolic links instead. It follows them to read; what it creates and
//! removes are names of that directory. It opens no linked file to write it, because new files get numbers that no
//! linked file has: files which an interrupted LevelDB had begun, and would use again, are not linked.

use super::manifest::Manifest;
use super::outcome::{Result, TransferError};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CURRENT: &str = "CURRENT";
const LOCK: &str = "LOCK";

/// The directory of links, and the lock of the database.
pub(super) struct SourceView {
    pub(super) folder: PathBuf,
    /// The database's own directory, by its whole name.
    source: PathBuf,
    /// Bytes of the database's files.
    pub(super) bytes: u64,
    pub(super) manifest: Manifest,
    /// Keeps programs out that would write the database.
    _lock: Option<File>,
}

impl SourceView {
    /// Links the database in `source` from `folder`, which is created.
    pub(super) fn create(source: &Path, folder: PathBuf) -> Result<Self> {
        let lock = lock(source)?;
        let manifest_name = current(source)?;
        let manifest = Manifest::read(&source.join(&manifest_name))?;
        let source = source.canonicalize().map_err(|e| TransferError::io("find", source, &e))?;
        std::fs::create_dir(&folder).map_err(|e| TransferError::io("create", &folder, &e))?;
        let mut bytes = 0;
        let names = std::fs::read_dir(&source).map_err(|e| TransferError::io("read", &source, &e))?;
        for name in names {
            let name = name.map_err(|e| TransferError::io("read", &source, &e))?.file_name();
            let Some(text) = name.to_str() else { continue };
            if !is_needed(text, &manifest_name, manifest.next_file) {
                continue;
            }
            let (from, to) = (source.join(text), folder.join(text));
            bytes += std::fs::metadata(&from).map_err(|e| TransferError::io("read", &from, &e))?.len();
            std::os::unix::fs::symlink(&from, &to).map_err(|e| TransferError::io("create", &to, &e))?;
        }
        Ok(Self { folder, source, bytes, manifest, _lock: lock })
    }

    /// What the newest MANIFEST of the directory of links says, which LevelDB has written when it replayed the log.
    pub(super) fn manifest_now(&self) -> Result<Manifest> {
        Manifest::read(&self.folder.join(current(&self.folder)?))
    }

    /// LevelDB maps the files of the records into memory, and leaves them there as long as it has them open. Gives
    /// that memory back; what is read again comes from the files.
    ///
    /// Costs a microsecond a page, so it does nothing while mapped files take at most `resident_bytes_max`.
    pub(super) fn give_back_mapped(&self, resident_bytes_max: u64) {
        if mapped_files_bytes().is_some_and(|bytes| bytes <= resident_bytes_max) {
            return;
        }
        let Ok(maps) = std::fs::read("/proc/self/maps") else { return };
        for (base, len) in maps.split(|&b| b == b'\n').filter_map(|line| mapped_from(line, &self.source)) {
            // SAFETY: this advice, unlike MADV_DONTNEED, changes no content of whatever memory lies there by now:
            // LevelDB's threads may have unmapped the file since. It is refused where the kernel cannot do it.
            unsafe { libc::madvise(base as *mut libc::c_void, len, libc::MADV_PAGEOUT) };
        }
    }
}

/// Bytes of this process's memory that show files.
fn mapped_files_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(2)?.parse::<u64>().ok()?;
    // SAFETY: no memory is involved; a negative result means "not known".
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
}

/// Address and length of a mapping, if the line of `/proc/self/maps` is one of a file in the directory.
fn mapped_from(line: &[u8], folder: &Path) -> Option<(usize, usize)> {
    let at = line.iter().position(|&b| b == b'/')?;
    if Path::new(OsStr::from_bytes(&line[at..])).parent() != Some(folder) {
        return None;
    }
    let (base, end) = std::str::from_utf8(&line[..at]).ok()?.split_once(' ')?.0.split_once('-')?;
    let base = usize::from_str_radix(base, 16).ok()?;
    Some((base, usize::from_str_radix(end, 16).ok()?.checked_sub(base)?))
}

/// True for the files that LevelDB reads when it opens the database.
fn is_needed(name: &str, manifest: &str, next_file: u64) -> bool {
    if name == CURRENT || name == manifest {
        return true;
    }
    let Some((number, kind)) = name.split_once('.') else { return false };
    let Ok(number) = number.parse::<u64>() else { return false };
    match kind {
        "log" => true,
        "ldb" | "sst" => number < next_file,
        _ => false,
    }
}

/// The name of the newest MANIFEST file.
fn current(source: &Path) -> Result<String> {
    let path = source.join(CURRENT);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let name = text.trim_end_matches('\n');
            if !name.starts_with("MANIFEST-") || name.contains('/') {
                return Err(TransferError::refused(format!("{}: is damaged", path.display())));
            }
            Ok(name.to_owned())
        }
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(TransferError::refused(format!(
                "{}: holds no LevelDB database (it has no file {CURRENT})",
                source.display()
            )))
        }
        Err(e) => Err(TransferError::io("read", &path, &e)),
    }
}

/// Locks the database against programs that would write it, as LevelDB does, but to read. `None` where no program has
/// ever locked it.
fn lock(source: &Path) -> Result<Option<File>> {
    let path = source.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(TransferError::io("open", &path, &e)),
    };
    let whole = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: an open file, and a structure for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const whole) } == 0 {
        return Ok(Some(file));
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(TransferError::refused(format!(
            "{}: a program has the database open; close it there first",
            source.display()
        ))),
        // A file system without locks.
        Some(libc::ENOLCK | libc::EINVAL | libc::ENOTSUP) => Ok(None),
        _ => Err(TransferError::io("lock", &path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_leveldb_might_write_again_are_not_linked() {
        let needed = |name| is_needed(name, "MANIFEST-000004", 10);
        let linked = ["CURRENT", "MANIFEST-000004", "000003.log", "000011.log", "000009.ldb", "000001.sst"];
        assert!(linked.into_iter().all(needed));
        let left = [
            "LOCK",
            "LOG",
            "LOG.old",
            "MANIFEST-000002",
            "000010.ldb",
            "000012.sst",
            "000005.dbtmp",
            "x.ldb",
            "diary",
        ];
        assert!(!left.into_iter().any(needed));
    }

    #[test]
    fn mappings_of_the_folders_files_alone_are_given_back() {
        let of = |line: &str| mapped_from(line.as_bytes(), Path::new("/data/old db"));
        assert_eq!(of("7f00-8f00 r--s 0 fe:00 7 \t /data/old db/000005.ldb"), Some((0x7f00, 0x1000)));
        for other in [
            "",
            "7f00-8f00 rw-p 00000000 00:00 0",
            "7f00-8f00 rw-p 00000000 00:00 0 [heap]",
            "7f00-8f00 r--s 00000000 fe:00 7 /data/old db.partial/000005.ldb",
            "7f00-8f00 r--s 00000000 fe:00 7 /data/old db",
            "8f00-7f00 r--s 00000000 fe:00 7 /data/old db/000005.ldb",
            "x-y /data/old db/000005.ldb",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn memory_that_is_given_back_reads_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().canonicalize().unwrap();
        let path = source.join("000005.ldb");
        let len = 4 << 20;
        std::fs::write(&path, (0..len).map(|at| (at / 4096) as u8).collect::<Vec<_>>()).unwrap();
        let file = File::open(&path).unwrap();
        // Clean pages; others are written before they go.
        file.sync_all().unwrap();
        // SAFETY: a new mapping of a file that is as long, read inside its bounds.
        let mapped = unsafe {
            let base =
                libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(base, libc::MAP_FAILED);
            std::slice::from_raw_parts(base.cast::<u8>(), len)
        };
        let all_as_written = || mapped.iter().enumerate().all(|(at, &byte)| byte == (at / 4096) as u8);
        assert!(all_as_written());
        assert_eq!(resident(&path), len);
        let manifest = Manifest { comparator: Vec::new(), next_file: 9, ..Manifest::default() };
        let view = SourceView { folder: source.clone(), source, bytes: 0, manifest, _lock: None };
        view.give_back_mapped(u64::MAX);
        assert_eq!(resident(&path), len);
        assert!(mapped_files_bytes().unwrap() >= len as u64);
        view.give_back_mapped(len as u64 - 1);
        let left = resident(&path);
        assert!(is_in_memory_only(&file) || left <= len / 4, "{left} bytes of {len} are still there");
        assert!(all_as_written());
    }

    /// Bytes of this process's memory that show the file.
    fn resident(path: &Path) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
        let size = mapping.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        size.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// True on a tmpfs, whose files have no other place than memory.
    fn is_in_memory_only(file: &File) -> bool {
        let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: an open file, and space for the result, which is there when the call succeeds.
        unsafe {
            assert_eq!(libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()), 0);
            about.assume_init().f_type == libc::TMPFS_MAGIC
        }
    }
}
