//! The operating system's files.

use crate::Site;
use crate::error::is_no_descriptor;
use crate::storage::os_map::OsMap;
use crate::storage::traits::{
    BLOCK_BYTES, FileMap, LockKind, OpenHow, PathKind, SECTOR_BYTES, Storage, StorageFile,
};
use crate::storage::wide_sectors::WideSectors;
use mangrove_sys::file::NameKind;
use mangrove_sys::{KeptFromChildren, ProcessMark, file, open_above_standard};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsStorage;

/// Files of the operating system; those in one directory go by its descriptor.
#[derive(Clone, Debug)]
struct HeldDirectory {
    /// The directory's path when it was opened.
    path: PathBuf,
    file: Arc<File>,
}

struct OsFile {
    /// Since the first try to lock it, in whatever way. Dropped after the unlocking, and before the file is closed.
    kept: OnceLock<Option<KeptFromChildren>>,
    file: Arc<File>,
    /// The second handle, for durable writes and for reads past the page cache; `None` inside: not possible here.
    /// Decided once, at the first write at the latest: when a write past the page cache and one through it meet in a
    /// page, one may be lost.
    direct: OnceLock<Option<File>>,
    /// The handle for writes past the page cache that a sync makes durable; `None` inside: not possible here.
    past_cache: OnceLock<Option<File>>,
    /// How such writes are made since the disk refused one that was no multiple of its sectors.
    wide: OnceLock<WideSectors>,
    /// The process that locked it.
    locked: OnceLock<ProcessMark>,
    /// Why a sync has failed, by its error number; held while one runs.
    sync_failed: Mutex<Option<i32>>,
}

impl Storage for OsStorage {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Ok(PathKind::Folder),
            Ok(_) => Ok(PathKind::File),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(PathKind::Missing),
            Err(e) => Err(e),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create_dir(&self, path: &Path, _site: Site) -> io::Result<()> {
        match std::fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn open(&self, path: &Path, how: OpenHow, _site: Site) -> io::Result<Box<dyn StorageFile>> {
        if std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
            return Err(is_pipe());
        }
        let mut options = OpenOptions::new();
        options.read(true);
        match how {
            OpenHow::Read => {}
            OpenHow::Write => {
                options.write(true);
            }
            OpenHow::Create => {
                options.write(true).create(true).truncate(false);
            }
        }
        Ok(OsFile::boxed(open_above_standard(|| options.open(path))?))
    }

    fn remove(&self, path: &Path, _site: Site) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn remove_dir(&self, path: &Path, _site: Site) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path, _site: Site) -> io::Result<()> {
        file::sync_dir(path)
    }

    fn hold(&self, directory: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        let file = Arc::new(file::open_directory(directory)?);
        Ok(Some(Arc::new(HeldDirectory { path: directory.to_owned(), file })))
    }

    fn is_named(&self, path: &Path, file: &dyn StorageFile) -> io::Result<bool> {
        file.fd().map_or(Ok(true), |fd| file::is_named(path, fd))
    }

    fn random(&self) -> u64 {
        file::random_u64()
    }
}

impl HeldDirectory {
    /// `path` as seen from the directory, `.` for itself; `None` for a path that does not lie directly in it.
    fn place<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let mut rest = path.strip_prefix(&self.path).ok()?.components();
        match (rest.next(), rest.next()) {
            (None, _) => Some(Path::new(".")),
            (Some(Component::Normal(name)), None) => Some(Path::new(name)),
            _ => None,
        }
    }

    /// True for the directory itself.
    fn is_it(&self, path: &Path) -> bool {
        self.place(path) == Some(Path::new("."))
    }
}

impl Storage for HeldDirectory {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        let Some(place) = self.place(path) else { return OsStorage.kind(path) };
        Ok(match file::kind_in(&self.file, place)? {
            None => PathKind::Missing,
            Some(NameKind::Directory) => PathKind::Folder,
            Some(NameKind::Pipe | NameKind::Other) => PathKind::File,
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        if self.is_it(path) { file::names_in(&self.file) } else { OsStorage.list(path) }
    }

    fn create_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        if self.is_it(path) { Ok(()) } else { OsStorage.create_dir(path, site) }
    }

    fn open(&self, path: &Path, how: OpenHow, site: Site) -> io::Result<Box<dyn StorageFile>> {
        let Some(place) = self.place(path) else { return OsStorage.open(path, how, site) };
        if matches!(file::kind_in(&self.file, place), Ok(Some(NameKind::Pipe))) {
            return Err(is_pipe());
        }
        let file = file::open_in(&self.file, place, how != OpenHow::Read, how == OpenHow::Create)?;
        Ok(OsFile::boxed(file))
    }

    fn remove(&self, path: &Path, site: Site) -> io::Result<()> {
        let Some(place) = self.place(path) else { return OsStorage.remove(path, site) };
        match file::remove_in(&self.file, place) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        if self.is_it(path) { self.file.sync_all() } else { OsStorage.sync_dir(path, site) }
    }

    fn hold(&self, directory: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        if self.is_it(directory) { Ok(Some(Arc::new(self.clone()))) } else { OsStorage.hold(directory) }
    }

    fn is_named(&self, path: &Path, file: &dyn StorageFile) -> io::Result<bool> {
        let Some(place) = self.place(path) else { return OsStorage.is_named(path, file) };
        file.fd().map_or(Ok(true), |fd| file::is_named_in(&self.file, place, fd))
    }

    fn random(&self) -> u64 {
        OsStorage.random()
    }
}

/// Opening a pipe would wait for the process at its other end.
fn is_pipe() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, not a file")
}

impl OsFile {
    fn boxed(file: File) -> Box<dyn StorageFile> {
        Box::new(Self {
            kept: OnceLock::new(),
            file: Arc::new(file),
            direct: OnceLock::new(),
            past_cache: OnceLock::new(),
            sync_failed: Mutex::new(None),
            wide: OnceLock::new(),
            locked: OnceLock::new(),
        })
    }

    fn direct(&self) -> Option<&File> {
        self.direct.get_or_init(|| file::open_direct_durable(&self.file).ok()).as_ref()
    }

    fn write_and_sync(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES as u64) && bytes.len().is_multiple_of(SECTOR_BYTES));
        if let Some(direct) = self.direct() {
            if self.wide.get().is_none() {
                match direct.write_all_at(bytes, offset) {
                    // A disk with larger sectors, or a file system that accepts the flag but not the write: nothing
                    // has been written.
                    Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                    other => return other,
                }
            }
            match self.wide.get_or_init(WideSectors::default).write(&self.file, direct, offset, bytes) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                Err(e) => return Err(e),
            }
        }
        // As durable.
        self.file.write_all_at(bytes, offset)?;
        self.sync_data()
    }

    /// Threads sync one after the other, and after a failure no sync succeeds: the system reports a failed write to one
    /// of the syncs that wait for it, and the others may return as if their bytes were durable. A sync that a signal
    /// interrupted (EINTR, on network and user file systems) is not repeated: the system may already count a failed
    /// write as reported then, and the second sync would succeed although bytes are lost.
    fn sync_data(&self) -> io::Result<()> {
        let mut failed = self.sync_failed.lock();
        if let Some(code) = *failed {
            return Err(io::Error::from_raw_os_error(code));
        }
        file::sync_data(&self.file).inspect_err(|e| *failed = Some(e.raw_os_error().unwrap_or(libc::EIO)))
    }
}

impl StorageFile for OsFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_past_cache(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(Some(direct)) = self.direct.get()
            && [offset, bytes.len() as u64, bytes.as_ptr().addr() as u64].iter().all(|n| n % BLOCK_BYTES == 0)
            && direct.read_exact_at(bytes, offset).is_ok()
        {
            return Ok(bytes.len());
        }
        // Also at the end of the file, and where the file system accepts the flag but not the read.
        self.read_at(offset, bytes)
    }

    fn will_read(&self, offset: u64, len: u64) {
        file::will_read(&self.file, offset, len);
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        file::next_data(&self.file, offset)
    }

    fn next_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        file::next_hole(&self.file, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _site: Site) -> io::Result<()> {
        mangrove_sys::without_size_signal(|| self.file.write_all_at(bytes, offset))
    }

    fn write_past_cache(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        if let Some(past) = self.past_cache.get_or_init(|| file::open_direct(&self.file).ok()) {
            match mangrove_sys::without_size_signal(|| past.write_all_at(bytes, offset)) {
                // A file system that accepts the flag but not the write: nothing has been written.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                other => return other,
            }
        }
        self.write_at(offset, bytes, site)?;
        file::start_writing(&self.file, offset, bytes.len() as u64);
        Ok(())
    }

    fn prepare_durable(&self) -> io::Result<()> {
        if self.direct.get().is_none() {
            match file::open_direct_durable(&self.file) {
                Err(e) if is_no_descriptor(&e) => return Err(e),
                opened => {
                    // Another thread may have decided first.
                    let _ = self.direct.set(opened.ok());
                }
            }
        }
        Ok(())
    }

    fn write_durable(&self, offset: u64, bytes: &[u8], _site: Site) -> io::Result<()> {
        mangrove_sys::without_size_signal(|| self.write_and_sync(offset, bytes))
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, offset: u64, len: u64, _site: Site) -> io::Result<()> {
        file::allocate(&self.file, offset, len)
    }

    fn cut_off(&self, len: u64, _site: Site) -> io::Result<()> {
        if self.file.metadata()?.len() > len { self.file.set_len(len) } else { Ok(()) }
    }

    fn punch(&self, offset: u64, len: u64, _site: Site) -> io::Result<bool> {
        file::punch(&self.file, offset, len)
    }

    fn keep_from_children(&self) {
        self.kept.get_or_init(|| KeptFromChildren::of(&self.file));
    }

    fn lock(&self, kind: LockKind) -> io::Result<bool> {
        self.keep_from_children();
        let locked = file::try_lock(&self.file, kind == LockKind::Exclusive)?;
        if locked {
            self.locked.get_or_init(ProcessMark::here);
        }
        Ok(locked)
    }

    fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn map(&self) -> io::Result<Option<Box<dyn FileMap>>> {
        Ok(OsMap::of(&self.file)?.map(|map| Box::new(map) as Box<dyn FileMap>))
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        // A child of fork shares the open file and its lock: closing alone would leave the lock with the child.
        if self.locked.get().is_some_and(|process| process.is_here()) {
            // Closing follows, and in a process without children it releases the lock, too.
            let _ = file::unlock(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::traits::here;

    /// What is only in the page cache so far, what was written past it, and the end of the file within a block.
    #[test]
    fn a_read_past_the_page_cache_reads_what_the_file_has() {
        const LEN: usize = 5 * 4096 + 100;
        let folder = tempfile::tempdir().unwrap();
        let file = OsStorage.open(&folder.path().join("file"), OpenHow::Create, here()).unwrap();
        let mut space = vec![0; 8 * 4096];
        let start = space.as_ptr().align_offset(4096);
        let buffer = &mut space[start..];
        let mut expected: Vec<u8> = (0..LEN).map(|at| (at / 64) as u8).collect();
        file.write_at(0, &expected, here()).unwrap();
        file.prepare_durable().unwrap();
        expected[2 * 4096..3 * 4096].fill(255);
        buffer[..4096].fill(255);
        file.write_durable(2 * 4096, &buffer[..4096], here()).unwrap();
        for from in [0, 100, 512, 4096, 2 * 4096, 5 * 4096, 6 * 4096] {
            for (begin, len) in [(0, 4096), (0, 4 * 4096), (0, 6 * 4096), (512, 4096), (1, 300)] {
                let to = &mut buffer[begin..begin + len];
                to.fill(7);
                let read = file.read_past_cache(from as u64, to).unwrap();
                let wanted = &expected[from.min(LEN)..LEN.min(from + len)];
                assert_eq!(&to[..read], wanted, "{len} bytes at {from}, to {begin}");
            }
        }
    }
}
