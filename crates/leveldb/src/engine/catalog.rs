//! The directory of a database: its lock, and the catalog, which says what the database is.
//!
//! | name | what |
//! |---|---|
//! | `LOCK` | empty; the process that has the database open holds a lock on it |
//! | `MANGROVE` | three lines of text: format, engine, comparator; a fourth with their CRC-32C |
//! | `CURRENT` | keeps LevelDB itself out (`leveldb_files.rs`) |
//! | `pool` | the engine's files |
//!
//! `MANGROVE` is the commit point of creation: it is renamed into place once the engine's files are there. A
//! directory without it holds no database.

use crate::engine::{leveldb_files, small_files};
use crate::status::{Failure, Result};
use mangrove_sys::file::{try_lock, unlock};
use mangrove_sys::{KeptFromChildren, ProcessMark, open_above_standard};
use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FORMAT: &str = "mangrove-leveldb 1";
const LOCK_FILE: &str = "LOCK";
const CATALOG_FILE: &str = "MANGROVE";
const CATALOG_FILE_NEW: &str = "MANGROVE.new";
const POOL_DIRECTORY: &str = "pool";
/// A catalog is a few lines; a longer file is not one.
const CATALOG_BYTES_MAX: u64 = 1 << 20;

/// Which engine holds the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordEngine {
    /// An ordered structure in memory, made durable by the runtime.
    Durable,
    /// The durable map.
    Map,
}

impl RecordEngine {
    const ALL: [Self; 2] = [Self::Durable, Self::Map];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Map => "map",
        }
    }

    /// The engine that wrote a pool of this kind.
    pub(crate) fn of_pool(kind: &str) -> Self {
        if kind == "map" { Self::Map } else { Self::Durable }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The engine and the order of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) engine: RecordEngine,
    /// Name of the comparator.
    pub(crate) comparator: Vec<u8>,
}

impl Catalog {
    /// The catalog of the database in `directory`; `None` when there is no database.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(CATALOG_FILE);
        // Another kind of file with that name is not a catalog either. Reading a pipe would wait.
        let is_one = |m: &Metadata| m.is_file() && m.len() <= CATALOG_BYTES_MAX;
        let bytes = match std::fs::metadata(&path)
            .and_then(|m| if is_one(&m) { std::fs::read(&path) } else { Ok(Vec::new()) })
        {
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(Failure::io("read", &path, &e)),
        };
        let parsed = std::str::from_utf8(&bytes).ok().and_then(Self::parse);
        parsed.map(Some).ok_or_else(|| {
            Failure::corruption(format!(
                "{} is damaged, or of a newer version; leveldb_repair_db writes it anew",
                path.display()
            ))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (lines, sum) = text.rsplit_once("crc32c ")?;
        if u32::from_str_radix(sum.trim(), 16).ok()? != crc32c::crc32c(lines.as_bytes()) {
            return None;
        }
        let mut lines = lines.lines();
        if lines.next()? != FORMAT {
            return None;
        }
        let engine = RecordEngine::from_name(lines.next()?.strip_prefix("engine ")?)?;
        let comparator = unescape(lines.next()?.strip_prefix("comparator ")?)?;
        Some(Self { engine, comparator })
    }

    fn text(&self) -> String {
        let engine = self.engine.name();
        let comparator = escape(&self.comparator);
        let lines = format!("{FORMAT}\nengine {engine}\ncomparator {comparator}\n");
        let sum = crc32c::crc32c(lines.as_bytes());
        format!("{lines}crc32c {sum:08x}\n")
    }

    /// Puts the catalog in place, durably: from then on the database exists. Refuses a comparator's name that is too
    /// long for [`Catalog::read`].
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let text = self.text();
        if text.len() as u64 > CATALOG_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "the comparator's name of {} bytes is too long; give it a shorter one",
                self.comparator.len()
            )));
        }
        // Durable-order: the directory's name before what makes it a database; otherwise a crash may lose all that is
        // in it.
        sync_name(directory).map_err(|e| Failure::io("sync the name of", directory, &e))?;
        leveldb_files::keep_leveldb_out(directory)?;
        // Whole, because a name without text would be a damaged catalog.
        small_files::place(directory, CATALOG_FILE_NEW, CATALOG_FILE, text.as_bytes())
    }
}

/// Makes the name of a directory durable, even if an attempt that was killed created it.
pub(crate) fn sync_name(directory: &Path) -> std::io::Result<()> {
    let directory = std::fs::canonicalize(directory)?;
    let device = |path: &Path| Ok::<_, std::io::Error>(std::fs::metadata(path)?.dev());
    match directory.parent().map(File::open) {
        // A file system is mounted here: its name is not stored in the directory above, which perhaps cannot be
        // synced.
        Some(_) if device(&directory)? != device(&directory.join(".."))? => Ok(()),
        Some(Ok(above)) => above.sync_all(),
        // The directory above may be entered but not read: sync the whole file system instead.
        Some(Err(e)) if e.kind() == ErrorKind::PermissionDenied => {
            // SAFETY: an open file.
            match unsafe { libc::syncfs(File::open(directory)?.as_raw_fd()) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
        Some(Err(e)) => Err(e),
        // The root has no name.
        None => Ok(()),
    }
}

/// Printable ASCII but `%` as it is, everything else as `%xx`.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

/// The engine's files.
pub(crate) fn pool(directory: &Path) -> PathBuf {
    directory.join(POOL_DIRECTORY)
}

/// Refuses a directory that holds files of LevelDB itself.
pub(crate) fn refuse_leveldb(directory: &Path) -> Result<()> {
    leveldb_files::refuse(directory, directory.join(CATALOG_FILE).exists())
}

/// Keeps LevelDB itself out of a database, also of one that an earlier version has made.
pub(crate) fn keep_leveldb_out(directory: &Path) {
    // It protects from a mistake: a directory that cannot be written is as good without.
    let _ = leveldb_files::keep_leveldb_out(directory);
}

/// A locked directory.
pub(crate) struct DirectoryLock {
    /// Dropped after the unlocking, and before the file is closed.
    _kept: Option<KeptFromChildren>,
    file: File,
    process: ProcessMark,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // A child of fork has a copy of the file, and with it of the lock: closing the file here would leave the lock
        // to the child. And when the child ends, this process must keep its lock.
        if self.process.is_here() {
            let _ = unlock(&self.file);
        }
    }
}

/// Locks the directory, which exists, for as long as the result lives.
pub(crate) fn lock(directory: &Path) -> Result<DirectoryLock> {
    let path = directory.join(LOCK_FILE);
    loop {
        // For reading too: otherwise opening a pipe of that name would wait.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = open_above_standard(|| options.open(&path)).map_err(|e| Failure::io("open", &path, &e))?;
        let kept = KeptFromChildren::of(&file);
        if !try_lock(&file, true).map_err(|e| Failure::io("lock", &path, &e))? {
            return Err(Failure::new(
                crate::status::FailureKind::IoError,
                format!(
                    "lock {}: already held by this process or another; close the database there first",
                    path.display()
                ),
            ));
        }
        // The previous holder may have removed the file with the database: then this lock protects nothing.
        if is_at(&file, &path) {
            return Ok(DirectoryLock { _kept: kept, file, process: ProcessMark::here() });
        }
    }
}

/// True when `path` still names `file`.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Removes the database in `directory`, its engine's files only when they are `ours`, and the directory if nothing
/// else is in it. The caller holds the lock.
pub(crate) fn remove(directory: &Path, ours: bool) -> Result<()> {
    if ours {
        let pool = pool(directory);
        small_files::gone(std::fs::remove_dir_all(&pool), &pool)?;
    }
    leveldb_files::remove(directory)?;
    // The lock file last: a process that waits for it must not find a half removed database.
    for name in [CATALOG_FILE, CATALOG_FILE_NEW, LOCK_FILE] {
        small_files::remove(directory, name)?;
    }
    // As LevelDB does: other files in the directory are not this library's, and keep it.
    let _ = std::fs::remove_dir(directory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(name: &[u8]) -> Catalog {
        Catalog { engine: RecordEngine::Map, comparator: name.to_vec() }
    }

    #[test]
    fn what_is_written_is_read_whatever_the_name() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Catalog::read(directory.path()), Ok(None));
        for name in [&b"leveldb.BytewiseComparator"[..], b"", b"a\nb %25 \xff\xc3", b"crc32c 0"] {
            catalog(name).write(directory.path()).unwrap();
            assert_eq!(Catalog::read(directory.path()), Ok(Some(catalog(name))));
        }
    }

    #[test]
    fn a_name_that_could_not_be_read_again_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let longest = vec![b'n'; CATALOG_BYTES_MAX as usize - catalog(b"").text().len()];
        catalog(&longest).write(directory.path()).unwrap();
        assert_eq!(Catalog::read(directory.path()), Ok(Some(catalog(&longest))));
        let longer = [longest.as_slice(), b"n"].concat();
        assert!(catalog(&longer).write(directory.path()).is_err_and(|e| e.to_string().contains("too long")));
        assert_eq!(Catalog::read(directory.path()), Ok(Some(catalog(&longest))));
    }

    #[test]
    fn any_damage_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let text = catalog(b"order").text();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                std::fs::write(directory.path().join(CATALOG_FILE), &bytes).unwrap();
                let read = Catalog::read(directory.path());
                // The case of a hexadecimal digit and the white space at the end mean nothing.
                assert!(
                    read.is_err() || read == Ok(Some(catalog(b"order"))),
                    "byte {at} bit {bit}: {read:?}"
                );
            }
            std::fs::write(directory.path().join(CATALOG_FILE), &text.as_bytes()[..at]).unwrap();
            let read = Catalog::read(directory.path());
            assert!(read.is_err() || at + 1 == text.len(), "cut at {at}: {read:?}");
        }
    }

    #[test]
    fn pipes_are_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        for name in [CATALOG_FILE, LOCK_FILE] {
            let made =
                std::process::Command::new("mkfifo").arg(directory.path().join(name)).status().unwrap();
            assert!(made.success());
        }
        assert!(Catalog::read(directory.path()).is_err_and(|e| e.to_string().contains("is damaged")));
        lock(directory.path()).unwrap();
    }

    #[test]
    fn a_child_that_lives_on_keeps_nobody_out_and_one_that_ends_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).unwrap();
        let child = |milliseconds: u64| {
            // SAFETY: the child only sleeps and exits.
            match unsafe { libc::fork() } {
                0 => {
                    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
                    // SAFETY: ends the child without running anything of its parent's.
                    unsafe { libc::_exit(0) }
                }
                pid => pid,
            }
        };
        // SAFETY: our own children.
        let end = |pid| assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        end(child(0));
        assert!(lock(directory.path()).is_err());
        let lives_on = child(60_000);
        drop(first);
        lock(directory.path()).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::kill(lives_on, libc::SIGKILL) }, 0);
        end(lives_on);
    }

    #[test]
    fn a_folder_where_a_file_system_is_mounted_needs_no_name() {
        // In directories of sysfs, devtmpfs and the root; the first cannot be synced.
        let mounted = ["/sys/fs/cgroup", "/dev/shm", "/proc"].map(Path::new);
        let (mut there, mut hard) = (0, 0);
        for directory in mounted.into_iter().filter(|directory| directory.is_dir()) {
            let above = File::open(directory.join("..")).unwrap();
            if above.metadata().unwrap().dev() == directory.metadata().unwrap().dev() {
                continue;
            }
            there += 1;
            hard += i32::from(above.sync_all().is_err());
            sync_name(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        }
        if hard == 0 {
            eprintln!("of {there} mounted directories none lies in one that cannot be synced");
        }
    }

    #[test]
    fn one_holds_the_lock_and_a_removed_one_is_nobodys() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).unwrap();
        assert!(lock(directory.path()).is_err_and(|e| e.to_string().contains("already held")));
        drop(first);
        let _again = lock(directory.path()).unwrap();
        remove(directory.path(), true).unwrap();
        std::fs::create_dir(directory.path()).unwrap();
        lock(directory.path()).unwrap();
    }
}
