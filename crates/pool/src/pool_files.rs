//! The files of a pool's directory. An error of the operating system about one of them becomes the pool's error,
//! with the file's path, here and nowhere else.

use crate::damage_check::DamageCheck;
use crate::error::{is_no_descriptor, is_no_space};
use crate::format::page_sums::{CHECKSUM_BYTES, PAGE_BYTES, PAGES_PER_BLOCK, PageChecksums};
use crate::format::ring_layout::RingLayout;
use crate::format::superblock;
use crate::format::superblock::{COPY_BYTES, RecordedGroup, SavedSizes, Superblock, VERSION};
use crate::stat::{Damage, MediumKind};
use crate::storage::traits::{FileMap, LockKind, OpenHow, PathKind, Storage, StorageFile, here};
use crate::sync::Mutex;
use crate::{ByteRange, Error, Lsn, Result, Site};
use std::collections::BTreeSet;
use std::io;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What `path` names.
pub(crate) fn kind_of(storage: &dyn Storage, path: &Path) -> Result<PathKind> {
    storage.kind(path).map_err(|e| Error::from_io(path.to_owned(), "read", &e))
}

/// Parts of a file that are told apart from its holes, at most.
const DATA_RANGES_MAX: usize = 4096;

/// The names in a directory.
pub(crate) fn names_in(storage: &dyn Storage, directory: &Path) -> Result<Vec<String>> {
    storage.list(directory).map_err(|e| Error::from_io(directory.to_owned(), "read", &e))
}

/// `storage` with the pool's `directory` held; `doing` is the verb of the error message.
pub(crate) fn hold(
    storage: &Arc<dyn Storage>,
    directory: &Path,
    doing: &'static str,
) -> Result<Arc<dyn Storage>> {
    let held = storage.hold(directory).map_err(|e| Error::from_io(directory.to_owned(), doing, &e))?;
    Ok(held.unwrap_or_else(|| Arc::clone(storage)))
}

/// An open file of a pool, and its path.
pub(crate) struct PoolFile {
    file: Box<dyn StorageFile>,
    path: PathBuf,
    /// For a salvage or a check: the pages that the medium could not read, which count as zeros.
    unread: Option<Mutex<BTreeSet<u64>>>,
}

/// An error of the operating system about a file, before its meaning for the pool is known.
pub(crate) struct FileError {
    path: PathBuf,
    pub(crate) error: io::Error,
}

impl FileError {
    pub(crate) fn new(path: PathBuf, error: io::Error) -> Self {
        Self { path, error }
    }

    /// True when the medium, or the user's share of it, is full.
    pub(crate) fn is_no_space(&self) -> bool {
        is_no_space(&self.error)
    }

    /// True when the process, or the system, has no file descriptor left: nothing was written.
    pub(crate) fn is_no_descriptor(&self) -> bool {
        is_no_descriptor(&self.error)
    }

    /// The error while `doing` something to the file.
    pub(crate) fn doing(self, doing: &'static str) -> Error {
        Error::from_io(self.path, doing, &self.error)
    }

    /// As `doing`; but on a full medium the error that `wanted` more bytes were wanted.
    pub(crate) fn doing_with_space(self, doing: &'static str, wanted: u64) -> Error {
        if self.is_no_space() { Error::no_space(self.path, wanted, &self.error) } else { self.doing(doing) }
    }
}

impl PoolFile {
    pub(crate) fn new(file: Box<dyn StorageFile>, path: PathBuf) -> Self {
        Self { file, path, unread: None }
    }

    /// Opens `path`. `doing` is the verb of the error message; see [`opening`].
    #[track_caller]
    pub(crate) fn open(
        storage: &dyn Storage,
        path: PathBuf,
        how: OpenHow,
        doing: &'static str,
    ) -> Result<Self> {
        match storage.open(&path, how, here()) {
            Ok(file) => Ok(Self::new(file, path)),
            // A new file may find no space, too.
            Err(e) => Err(FileError::new(path, e).doing_with_space(doing, 0)),
        }
    }

    /// Opens one of the pool's files. It must exist and be a file.
    pub(crate) fn open_part(storage: &dyn Storage, path: PathBuf, read_only: bool) -> Result<Self> {
        let corrupt = |path, what: &str| Err(Error::Corrupt { path, offset: 0, what: what.into() });
        match kind_of(storage, &path)? {
            PathKind::Missing => return corrupt(path, "the file is missing"),
            PathKind::Folder => return corrupt(path, "it is a directory, not a file"),
            PathKind::File => {}
        }
        let how = if read_only { OpenHow::Read } else { OpenHow::Write };
        Self::open(storage, path, how, opening(read_only))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, for a caller whose error messages differ.
    pub(crate) fn raw(&self) -> &dyn StorageFile {
        &*self.file
    }

    /// The error for `e`, which occurred while `doing` something to this file.
    pub(crate) fn error(&self, doing: &'static str, e: &io::Error) -> Error {
        Error::from_io(self.path.clone(), doing, e)
    }

    /// The error that the file is damaged at `offset`.
    pub(crate) fn corrupt(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { path: self.path.clone(), offset, what: what.into() }
    }

    pub(crate) fn size(&self) -> Result<u64> {
        self.file.size().map_err(|e| self.error("read", &e))
    }

    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let read = self.file.read_at(offset, bytes);
        self.or_by_pages(read, offset, bytes)
    }

    /// As `read_at`; see [`StorageFile::read_past_cache`].
    pub(crate) fn read_past_cache(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let read = self.file.read_past_cache(offset, bytes);
        self.or_by_pages(read, offset, bytes)
    }

    /// What a read at `offset` into `bytes` has returned; where pages that cannot be read are noted, read by pages.
    fn or_by_pages(&self, read: io::Result<usize>, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        match (read, &self.unread) {
            (Err(e), Some(unread)) if is_unreadable(&e) => self.read_by_pages(offset, bytes, unread),
            (read, _) => read.map_err(|e| self.error("read", &e)),
        }
    }

    /// As `read_at`, where a page that the medium cannot read is zeros, and is noted.
    #[cold]
    fn read_by_pages(&self, offset: u64, bytes: &mut [u8], unread: &Mutex<BTreeSet<u64>>) -> Result<usize> {
        let (page_bytes, mut done) = (PAGE_BYTES as u64, 0);
        while done < bytes.len() {
            let at = offset + done as u64;
            let len = ((page_bytes - at % page_bytes) as usize).min(bytes.len() - done);
            let part = &mut bytes[done..done + len];
            match self.file.read_at(at, part) {
                Ok(n) if n < len => return Ok(done + n),
                Ok(_) => {}
                Err(e) if is_unreadable(&e) => {
                    part.fill(0);
                    unread.lock().insert(at / page_bytes);
                }
                Err(e) => return Err(self.error("read", &e)),
            }
            done += len;
        }
        Ok(done)
    }

    /// The file, of which from now on a page that the medium cannot read counts as zeros, and is noted.
    pub(crate) fn noting_unread(mut self) -> Self {
        self.unread = Some(Mutex::default());
        self
    }

    /// True when the page at `offset` was noted.
    pub(crate) fn is_unread(&self, offset: u64) -> bool {
        self.unread.as_ref().is_some_and(|unread| unread.lock().contains(&(offset / PAGE_BYTES as u64)))
    }

    /// The pages that were noted.
    pub(crate) fn unread(&self) -> Vec<Damage> {
        let pages = self.unread.as_ref().map(|unread| unread.lock().clone()).unwrap_or_default();
        let damage = |page: u64| Damage {
            path: self.path.clone(),
            offset: page * PAGE_BYTES as u64,
            what: "the medium cannot read the page".into(),
        };
        pages.into_iter().map(damage).collect()
    }

    /// Fills all of `bytes`; those beyond the end of the file with zeros.
    pub(crate) fn read_padded(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let n = self.read_at(offset, bytes)?;
        bytes[n..].fill(0);
        Ok(())
    }

    /// Reads the bytes at a position of the log whose `ring` this file holds; see `read_padded`.
    pub(crate) fn read_ring(&self, lsn: Lsn, ring: RingLayout, bytes: &mut [u8]) -> Result<()> {
        let physical = ring.place(lsn);
        let (first, rest) = bytes.split_at_mut(bytes.len().min((ring.bytes - physical) as usize));
        self.read_padded(physical, first)?;
        self.read_padded(0, rest)
    }

    /// Announces that all of the log, whose ring this file holds, will be read from a position on through the page
    /// cache.
    pub(crate) fn will_read_ring(&self, lsn: Lsn, ring: RingLayout) {
        let physical = ring.place(lsn);
        self.file.will_read(physical, ring.bytes - physical);
        self.file.will_read(0, physical);
    }

    pub(crate) fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.file.next_data(offset).map_err(|e| self.error("read", &e))
    }

    /// The parts of `offset..end` that may not be zero, in order; at most [`DATA_RANGES_MAX`], of which the last may
    /// have holes in it.
    pub(crate) fn data_ranges(&self, offset: u64, end: u64) -> Result<Vec<ByteRange>> {
        let (mut ranges, mut at) = (Vec::new(), offset);
        while at < end
            && let Some(begin) = self.next_data(at)?.filter(|&begin| begin < end)
        {
            let is_last = ranges.len() + 1 == DATA_RANGES_MAX;
            let hole = if is_last {
                None
            } else {
                self.file.next_hole(begin).map_err(|e| self.error("read", &e))?
            };
            at = hole.filter(|&hole| hole > begin).map_or(end, |hole| hole.min(end));
            ranges.push(ByteRange { offset: begin, len: at - begin });
        }
        Ok(ranges)
    }

    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8], site: Site) -> Result<()> {
        self.file.write_at(offset, bytes, site).map_err(|e| self.error("write", &e))
    }

    /// See [`StorageFile::write_past_cache`].
    pub(crate) fn write_past_cache(&self, offset: u64, bytes: &[u8], site: Site) -> Result<()> {
        self.file.write_past_cache(offset, bytes, site).map_err(|e| self.error("write", &e))
    }

    pub(crate) fn write_zeros(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.file.write_zeros(offset, len, site).map_err(|e| self.error("write", &e))
    }

    /// See [`StorageFile::cut_off`].
    pub(crate) fn cut_off(&self, len: u64, site: Site) -> Result<()> {
        self.file.cut_off(len, site).map_err(|e| self.error("shorten", &e))
    }

    /// See [`StorageFile::punch`]. False, too, where the medium has no space to record a hole: then any part of the
    /// range may be one.
    pub(crate) fn punch(&self, offset: u64, len: u64, site: Site) -> Result<bool> {
        match self.file.punch(offset, len, site) {
            Err(e) if is_no_space(&e) => Ok(false),
            punched => punched.map_err(|e| self.error("write", &e)),
        }
    }

    pub(crate) fn prepare_durable(&self) -> Result<()> {
        self.file.prepare_durable().map_err(|e| self.error("open", &e))
    }

    pub(crate) fn write_durable(&self, offset: u64, bytes: &[u8], site: Site) -> Result<()> {
        self.file.write_durable(offset, bytes, site).map_err(|e| self.error("write", &e))
    }

    pub(crate) fn sync(&self, site: Site) -> Result<()> {
        self.file.sync(site).map_err(|e| self.error("sync", &e))
    }

    /// As `sync`, for a reader, which never gets `ReadOnly` (that advises to open the pool read-only): EROFS comes from
    /// a file system that an I/O error of its own has made read-only. One that nothing is ever written to (squashfs,
    /// ISO 9660) has no such call (EINVAL): all that it has is durable.
    pub(crate) fn sync_for_reader(&self, site: Site) -> Result<()> {
        match self.file.sync(site) {
            Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(()),
            Err(e) => {
                let (path, code, message) = (self.path.clone(), e.raw_os_error(), e.to_string());
                Err(Error::Io { path, doing: "sync", code, message })
            }
            Ok(()) => Ok(()),
        }
    }

    pub(crate) fn allocate(&self, offset: u64, len: u64, site: Site) -> std::result::Result<(), FileError> {
        self.file.allocate(offset, len, site).map_err(|e| FileError::new(self.path.clone(), e))
    }

    /// See [`StorageFile::prepare_range`].
    pub(crate) fn prepare_range(
        &self,
        offset: u64,
        len: u64,
        site: Site,
    ) -> std::result::Result<(), FileError> {
        self.file.prepare_range(offset, len, site).map_err(|e| FileError::new(self.path.clone(), e))
    }

    /// See [`StorageFile::keep_from_children`].
    pub(crate) fn keep_from_children(&self) {
        self.file.keep_from_children();
    }

    pub(crate) fn lock(&self, kind: LockKind) -> Result<bool> {
        self.file.lock(kind).map_err(|e| self.error("lock", &e))
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }

    /// The file as memory. `None` where it cannot be mapped, also after an error: the caller then writes to the file.
    pub(crate) fn map(&self) -> Option<Box<dyn FileMap>> {
        self.file.map().unwrap_or_default()
    }
}

/// True when the medium cannot read what lies there.
fn is_unreadable(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EIO)
}

/// The verb of the error message when opening fails. It decides the variant, too: a caller that only reads must not
/// get the error that the file cannot be written.
pub(crate) fn opening(read_only: bool) -> &'static str {
    if read_only { "read" } else { "open" }
}

/// The data file (or the device in its place), and the file of its page checksums.
pub(crate) struct DataFiles {
    pub(crate) image: PoolFile,
    pub(crate) sums: PoolFile,
}

/// The pool's files besides the superblock, open.
pub(crate) struct PoolFiles {
    pub(crate) data: DataFiles,
    /// Only on the file medium.
    pub(crate) log: Option<PoolFile>,
}

impl PoolFiles {
    /// Opens the files of the pool in `directory` whose superblock is `sb`.
    ///
    /// # Errors
    /// `Corrupt` when one is missing or is no file, or the device is none; `Io`, `ReadOnly`.
    pub(crate) fn open(
        storage: &dyn Storage,
        directory: &Path,
        sb: &Superblock,
        read_only: bool,
    ) -> Result<Self> {
        let part = |path| PoolFile::open_part(storage, path, read_only);
        if let Some(path) = &sb.devdax
            && storage.device(path).is_none()
            && kind_of(storage, path)? == PathKind::File
        {
            // Before it is opened: that alone has effects on some devices.
            let what = "the superblock names it as the pool's device, but it is no devdax device";
            return Err(Error::Corrupt { path: path.clone(), offset: 0, what: what.into() });
        }
        let image = part(sb.devdax.clone().unwrap_or_else(|| directory.join("image")))?;
        let data = DataFiles { image, sums: part(directory.join("sums"))? };
        let log = if sb.medium == MediumKind::File { Some(part(directory.join("log"))?) } else { None };
        Ok(Self { data, log })
    }

    /// The files, each as by [`PoolFile::noting_unread`].
    pub(crate) fn noting_unread(self) -> Self {
        let Self { data: DataFiles { image, sums }, log } = self;
        let data = DataFiles { image: image.noting_unread(), sums: sums.noting_unread() };
        Self { data, log: log.map(PoolFile::noting_unread) }
    }
}

impl DataFiles {
    /// Bytes of the data file, in whole pages.
    ///
    /// # Errors
    /// `Corrupt` for a size that this superblock excludes; `Io`.
    pub(crate) fn image_size(&self, sb: &Superblock) -> Result<u64> {
        let size = self.image.size()?;
        if size < sb.image_bytes && DamageCheck::ImageLength.is_on() {
            let what = format!("the data file ends here, but had {} bytes", sb.image_bytes);
            return Err(self.image.corrupt(size, what));
        }
        if size > sb.capacity {
            let what = format!("the data file has {size} bytes, but the capacity is {}", sb.capacity);
            return Err(self.image.corrupt(sb.capacity, what));
        }
        // After a crash the length may end inside a page: nothing was written beyond the last whole page.
        Ok(size - size % PAGE_BYTES as u64)
    }

    /// Reserves space on the medium for the data file from `from` to `to`, and for its page checksums.
    pub(crate) fn allocate(&self, from: u64, to: u64) -> std::result::Result<(), FileError> {
        self.image.allocate(from, to - from, here())?;
        self.allocate_sums(from, to)
    }

    /// Reserves space for whole pages of the data file from `from` to `to`, wherever they lie, and for their checksums.
    pub(crate) fn provide(&self, from: u64, to: u64) -> std::result::Result<(), FileError> {
        self.image.allocate(from, to - from, here())?;
        let first = from / PAGE_BYTES as u64 / PAGES_PER_BLOCK * PAGE_BYTES as u64;
        let end = PageChecksums::file_bytes(to / PAGE_BYTES as u64);
        self.sums.allocate(first, end - first, here())
    }

    /// As `allocate`, for the page checksums alone.
    pub(crate) fn allocate_sums(&self, from: u64, to: u64) -> std::result::Result<(), FileError> {
        let [from, to] = [from, to].map(|bytes| PageChecksums::file_bytes(bytes / PAGE_BYTES as u64));
        if to > from { self.sums.allocate(from, to - from, here()) } else { Ok(()) }
    }

    /// Makes the file of page checksums long enough for `image_bytes` of the data file.
    pub(crate) fn extend_sums(&self, image_bytes: u64) -> std::result::Result<(), FileError> {
        let wanted = PageChecksums::file_bytes(image_bytes / PAGE_BYTES as u64);
        let size = self.sums.raw().size().map_err(|e| FileError::new(self.sums.path.clone(), e))?;
        if size < wanted { self.sums.allocate(size, wanted - size, here()) } else { Ok(()) }
    }

    /// The error that a page of the data file does not match its checksum.
    pub(crate) fn damaged_page(&self, page: u64) -> Error {
        self.image.corrupt(page * PAGE_BYTES as u64, "the page does not match its checksum")
    }

    /// Reads the page checksums of a region of `addresses` bytes.
    pub(crate) fn read_sums(&self, sb: &Superblock, addresses: u64) -> Result<PageChecksums> {
        let mut checksums = PageChecksums::new(self.sums.path(), addresses)?;
        let size = self.sums.size()?;
        let most = PageChecksums::file_bytes(addresses / PAGE_BYTES as u64);
        if size > most {
            let what = format!("the file of page checksums has {size} bytes, but {most} are the most");
            return Err(self.sums.corrupt(most, what));
        }
        let needed = PageChecksums::file_bytes(sb.image_bytes / PAGE_BYTES as u64);
        if size < needed {
            let what = format!("the file of page checksums ends here, but had {needed} bytes");
            return Err(self.sums.corrupt(size, what));
        }
        let bytes = checksums.bytes_mut(0..(size - size % CHECKSUM_BYTES as u64) as usize);
        self.sums.read_padded(0, bytes)?;
        Ok(checksums)
    }

    /// Refuses checksums of pages beyond the data file, which must be zero.
    pub(crate) fn refuse_sums_beyond(
        &self,
        sb: &Superblock,
        image_size: u64,
        sums: &PageChecksums,
    ) -> Result<()> {
        // A checkpoint syncs the page checksums before the data file. A crash may have lost the length that the
        // data file grew by and kept the new checksums, so recovery verifies those pages later.
        if sb.target > sb.tail {
            return Ok(());
        }
        let entries = (self.sums.size()? / CHECKSUM_BYTES as u64).min(sums.entries());
        match (image_size / PAGE_BYTES as u64..entries).find(|&page| sums.get(page) != 0) {
            None => Ok(()),
            Some(page) => Err(self
                .sums
                .corrupt(page * CHECKSUM_BYTES as u64, "there is a sum for a page beyond the image")),
        }
    }
}

/// The whole file `pool`, and one byte more than it can have. Where the medium cannot read one copy of the superblock,
/// and the other one is whole, the former is zeros.
pub(crate) fn read_superblock_file(file: &PoolFile) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; superblock::FILE_BYTES + 1];
    let error = match file.raw().read_at(0, &mut bytes) {
        Ok(n) => {
            bytes.truncate(n);
            return Ok(bytes);
        }
        Err(e) => e,
    };
    if !is_unreadable(&error) || file.size()? != superblock::FILE_BYTES as u64 {
        return Err(file.error("read", &error));
    }
    bytes.truncate(superblock::FILE_BYTES);
    for (place, copy) in (0..).zip(bytes.chunks_exact_mut(COPY_BYTES)) {
        match file.raw().read_at(place * COPY_BYTES as u64, copy) {
            Ok(_) => {}
            Err(e) if is_unreadable(&e) => copy.fill(0),
            Err(e) => return Err(file.error("read", &e)),
        }
    }
    // Zeros that were not read must not pass for a pool whose creation was interrupted.
    match superblock::decode(file.path(), &bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(file.error("read", &error)),
    }
}

/// A probe holds the locks for an instant, so an opener retries this many times, `LOCK_PAUSE` apart, before it reports
/// `Busy`. On a busy machine a probe may lose the processor while it holds a lock: a fifth of a second outlasts that.
pub(crate) const LOCK_TRIES: u32 = 100;
/// See [`LOCK_TRIES`].
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Tries of an opener that waits so long for another one.
pub(crate) fn lock_tries(wait: Duration) -> u32 {
    LOCK_TRIES.saturating_add(u32::try_from(wait.as_nanos() / LOCK_PAUSE.as_nanos()).unwrap_or(u32::MAX))
}

/// The file `pool`, locked together with its directory.
///
/// Every opener takes the directory's lock first, then the file's. An editor or rsync may rename another file to
/// `pool`, and that one would not be locked; the directory stays the same. Programs of earlier versions lock the file
/// alone, and so does this one where a directory cannot be locked.
pub(crate) struct LockedPool {
    // Released in this order.
    file: PoolFile,
    directory: Option<Arc<dyn StorageFile>>,
    storage: Arc<dyn Storage>,
}

impl LockedPool {
    /// Opens and locks the file `pool` in `directory`; `None` when another process, or another opening, has not given
    /// up a lock in the way after so many tries.
    pub(crate) fn take(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        how: OpenHow,
        mut tries: u32,
    ) -> Result<Option<Self>> {
        let doing = opening(how == OpenHow::Read);
        let kind = if how == OpenHow::Read { LockKind::Shared } else { LockKind::Exclusive };
        let mut try_again = || {
            tries -= 1;
            if tries > 0 {
                std::thread::sleep(LOCK_PAUSE);
            }
            tries > 0
        };
        let mut held = match storage.open(directory, OpenHow::Read, here()) {
            Ok(held) => Some(Arc::<dyn StorageFile>::from(held)),
            // It may be searched but not read, or lies on a simulated disk.
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::IsADirectory) => None,
            Err(e) => return Err(Error::from_io(directory.to_owned(), doing, &e)),
        };
        while let Some(lock) = held.as_ref().map(|held| held.lock(kind)) {
            match lock {
                Ok(true) => break,
                Ok(false) if try_again() => {}
                Ok(false) => return Ok(None),
                // This file system does not lock directories.
                Err(_) => held = None,
            }
        }
        loop {
            let file = PoolFile::open(&**storage, directory.join("pool"), how, doing)?;
            let locked = file.lock(kind)?;
            let taken = Self { file, directory: None, storage: Arc::clone(storage) };
            // Another file may have got the name since this one was opened.
            if locked && taken.is_named()? {
                return Ok(Some(Self { directory: held, ..taken }));
            }
            if !try_again() {
                return Ok(None);
            }
        }
    }

    /// Opens the file `pool` for reading without a lock.
    pub(crate) fn unlocked(storage: &Arc<dyn Storage>, directory: &Path) -> Result<Self> {
        let file = PoolFile::open(&**storage, directory.join("pool"), OpenHow::Read, "read")?;
        Ok(Self { file, directory: None, storage: Arc::clone(storage) })
    }

    pub(crate) fn file(&self) -> &PoolFile {
        &self.file
    }

    /// The directory, which stays locked until this is dropped, too. None where it cannot be locked.
    pub(crate) fn directory(&self) -> Option<Arc<dyn StorageFile>> {
        self.directory.clone()
    }

    /// False when the name `pool` stands for another file by now.
    fn is_named(&self) -> Result<bool> {
        let named = self.storage.is_named(&self.file.path, self.file.raw());
        named.map_err(|e| self.file.error("read", &e))
    }
}

/// The superblock in its file. A change writes the older copy, then syncs it.
pub(crate) struct SuperblockFile {
    /// `None` once released.
    file: Option<LockedPool>,
    path: PathBuf,
    current: Superblock,
    /// The next change says that the owner has made its object.
    made: bool,
}

impl SuperblockFile {
    pub(crate) fn new(file: LockedPool, current: Superblock) -> Self {
        Self { path: file.file.path.clone(), file: Some(file), made: current.made, current }
    }

    pub(crate) fn current(&self) -> &Superblock {
        &self.current
    }

    /// Closes the file, which releases the pool's locks. Later updates fail.
    pub(crate) fn release(&mut self) {
        self.file = None;
    }

    /// Writes the newer copy again as it is, and syncs it. If the disk has it already, a tear between equal bytes
    /// changes nothing; if not, nothing relied on it, and the older copy is still whole.
    pub(crate) fn rewrite(&self, site: Site) -> Result<()> {
        self.write(&self.current, site)
    }

    /// Writes what this opening has changed: see [`Superblock::unsaved`].
    ///
    /// Durable-order: before the region grows beyond the old capacity, and the log beyond the old limit. Otherwise the
    /// next opening would find files that are longer than the superblock allows. Both copies, so that damage to one of
    /// them later does not bring the old numbers back.
    pub(crate) fn save(&mut self) -> Result<()> {
        let Some(SavedSizes { capacity, log_bytes_max }) = self.current.unsaved else { return Ok(()) };
        // As in `set_dirty`: the copy that was read must be durable before the other is overwritten.
        self.write(&Superblock { capacity, log_bytes_max, ..self.current.clone() }, here())?;
        for _ in 0..2 {
            self.update(here(), |sb| sb.unsaved = None)?;
        }
        Ok(())
    }

    /// Says that the pool is not clean, in every copy that may become whole.
    pub(crate) fn set_dirty(&mut self) -> Result<()> {
        let Superblock { clean, alone, .. } = self.current;
        if !clean && !alone {
            return Ok(());
        }
        // Durable-order: the copy that was read is durable before the other is overwritten. The process
        // that wrote it may have died before its sync, and a power cut could then tear both.
        self.rewrite(here())?;
        // Both copies: if the newer one were damaged later, the older must not say clean.
        // The log of a closed pool may be anything, so no group of it is recorded any more.
        for _ in 0..1 + u32::from(clean) {
            let group = if clean { None } else { self.current.group };
            self.update(here(), |sb| (sb.clean, sb.group) = (false, group))?;
        }
        Ok(())
    }

    /// Records a group of the first write of a process, which is durable.
    pub(crate) fn record(&mut self, group: Option<RecordedGroup>) -> Result<()> {
        // Of an older version both copies: a program of that version must not find one that it can read.
        let is_older = self.current.version < VERSION;
        for _ in 0..1 + u32::from(is_older) {
            // Durable-order: after the group, before any write in it is acknowledged. A record of a group that is not
            // durable would make recovery refuse what a crash left; an acknowledged group without a record would be
            // lost silently with the log.
            self.update(here(), |sb| sb.group = group)?;
        }
        Ok(())
    }

    /// Says that the owner has made its object: now, or with the next change if nothing has been written since the
    /// pool was closed.
    #[track_caller]
    pub(crate) fn set_made(&mut self) -> Result<()> {
        self.made = true;
        if self.current.made || self.current.clean { Ok(()) } else { self.update(here(), |_| {}) }
    }

    /// Applies `change`, writes the older copy and syncs it. Nothing that relies on the change may happen before
    /// this returned `Ok`. A superblock of an older version becomes one of this version.
    pub(crate) fn update(&mut self, site: Site, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut next = self.current.clone();
        change(&mut next);
        next.seq += 1;
        (next.version, next.made, next.alone) = (VERSION, self.made, false);
        self.write(&next, site)?;
        self.current = next;
        Ok(())
    }

    /// Writes the copy that the number of `sb` names, and syncs it. A failed sync is reported as a failed write.
    ///
    /// Durable-order: it fails when the file has lost its name, before anything that relies on the change may happen.
    /// Otherwise a checkpoint would free the log that the file of that name still needs.
    fn write(&self, sb: &Superblock, site: Site) -> Result<()> {
        let write = || {
            let Some(locked) = &self.file else { return Err(io::Error::other("the pool has been closed")) };
            let file = &locked.file;
            if !locked.storage.is_named(&file.path, file.raw())? {
                return Err(io::Error::other("it was replaced or removed while the pool was open"));
            }
            file.raw().write_at((sb.seq & 1) * COPY_BYTES as u64, &sb.encode()[..], site)?;
            file.raw().sync(site)
        };
        write().map_err(|e| Error::from_io(self.path.clone(), "write", &e))
    }
}
