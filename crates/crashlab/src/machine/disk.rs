//! A simulated disk: files in memory, and a record of every write, sync and change of names.
//!
//! Invariants:
//! 1. Files and directories hold what a process sees; the record tells what a crash may take away.
//! 2. A late write (an injected fault) is visible at once, but its record comes after the next call that makes
//!    something durable.
//! 3. The disk is full: a page whose space was given back takes no write before space is allocated for it.

use crate::machine::site::{SiteKind, Sites};
use crate::machine::trace::Mark;
use crate::rng::mix;
use mangrove_pool::{FileMap, LockKind, OpenHow, PathKind, Site, Storage, StorageFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const PAGE_BYTES: u64 = 4096;

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskNode {
    /// A directory.
    Folder,
    /// The file with this number.
    File(u64),
}

/// The names in one directory.
pub(crate) type Names = BTreeMap<String, DiskNode>;

/// One step of a disk.
#[derive(Clone, Debug)]
pub enum DiskEvent {
    /// Bytes were written.
    Write {
        /// The file.
        file: u64,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: usize,
        /// Where the bytes lie in the record.
        at: usize,
    },
    /// The file has this length.
    Length {
        /// The file.
        file: u64,
        /// Bytes.
        len: u64,
    },
    /// A durable write of this range returned.
    Durable {
        /// The file.
        file: u64,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// The file was synced.
    Sync {
        /// The file.
        file: u64,
    },
    /// A directory has these names.
    Names {
        /// The directory.
        folder: PathBuf,
        /// Its names.
        names: Names,
    },
    /// A directory was synced.
    SyncFolder {
        /// The directory.
        folder: PathBuf,
    },
    /// The history advanced.
    Mark(Mark),
}

impl DiskEvent {
    /// True for an event that makes something durable.
    #[must_use]
    pub fn is_ordering(&self) -> bool {
        matches!(self, Self::Durable { .. } | Self::Sync { .. } | Self::SyncFolder { .. })
    }
}

/// Files and directories.
#[derive(Clone, Debug, Default)]
pub struct DiskTree {
    /// Contents by file number.
    pub files: BTreeMap<u64, Vec<u8>>,
    /// Names by directory.
    pub folders: BTreeMap<PathBuf, Names>,
    /// The number of the next new file.
    pub next_file: u64,
    /// Random numbers given so far.
    pub random: u64,
}

/// What a run did to the disk.
#[derive(Clone, Debug, Default)]
pub struct DiskRecord {
    /// The steps.
    pub events: Vec<DiskEvent>,
    /// The bytes of all writes.
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct DiskState {
    tree: DiskTree,
    record: DiskRecord,
    late: Vec<DiskEvent>,
    /// Files of the operating system with the same contents, for simulated files that the pool maps.
    mapped: BTreeMap<u64, Arc<File>>,
    /// Pages of files whose space this process gave back and did not allocate again.
    holes: BTreeSet<(u64, u64)>,
}

/// The pages of a part of a file, for `DiskState::holes`.
fn pages_of(file: u64, offset: u64, len: u64) -> std::ops::Range<(u64, u64)> {
    (file, offset / PAGE_BYTES)..(file, (offset + len).div_ceil(PAGE_BYTES))
}

impl DiskState {
    fn push(&mut self, event: DiskEvent) {
        let ordering = event.is_ordering();
        self.record.events.push(event);
        if ordering {
            self.record.events.append(&mut self.late);
        }
    }

    fn names(&mut self, folder: &Path) -> io::Result<&mut Names> {
        self.tree.folders.get_mut(folder).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_name(&mut self, path: &Path, node: Option<DiskNode>) -> io::Result<()> {
        let (folder, name) = split(path)?;
        let names = self.names(folder)?;
        match node {
            Some(node) => names.insert(name, node),
            None => names.remove(&name),
        };
        let names = names.clone();
        self.push(DiskEvent::Names { folder: folder.to_owned(), names });
        Ok(())
    }

    fn node(&self, path: &Path) -> Option<DiskNode> {
        if self.tree.folders.contains_key(path) {
            return Some(DiskNode::Folder);
        }
        let (folder, name) = split(path).ok()?;
        self.tree.folders.get(folder)?.get(&name).copied()
    }
}

fn split(path: &Path) -> io::Result<(&Path, String)> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().and_then(|n| n.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((folder, name.to_owned()))
}

/// A simulated disk.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<DiskState>>,
    sites: Arc<Sites>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a simulated disk")
    }
}

impl Disk {
    /// A disk that holds `tree`.
    #[must_use]
    pub fn new(tree: DiskTree, sites: Arc<Sites>) -> Self {
        Self { state: Arc::new(Mutex::new(DiskState { tree, ..DiskState::default() })), sites }
    }

    /// Notes where the history stands.
    pub fn mark(&self, mark: Mark) {
        self.lock().record.events.push(DiskEvent::Mark(mark));
    }

    /// Ends the recording.
    #[must_use]
    pub fn finish(&self) -> DiskRecord {
        let mut state = self.lock();
        let mut late = std::mem::take(&mut state.late);
        state.record.events.append(&mut late);
        std::mem::take(&mut state.record)
    }

    /// The disk as a process sees it.
    #[must_use]
    pub fn tree(&self) -> DiskTree {
        self.lock().tree.clone()
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Disk {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        Ok(match self.lock().node(path) {
            None => PathKind::Missing,
            Some(DiskNode::File(_)) => PathKind::File,
            Some(DiskNode::Folder) => PathKind::Folder,
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.lock().names(path)?.keys().cloned().collect())
    }

    fn create_dir(&self, path: &Path, _site: Site) -> io::Result<()> {
        let mut state = self.lock();
        match state.node(path) {
            Some(DiskNode::Folder) => return Ok(()),
            Some(DiskNode::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            None => {}
        }
        state.set_name(path, Some(DiskNode::Folder))?;
        state.tree.folders.insert(path.to_owned(), Names::new());
        Ok(())
    }

    fn open(&self, path: &Path, how: OpenHow, _site: Site) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.lock();
        let file = match (state.node(path), how) {
            (Some(DiskNode::Folder), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (None, OpenHow::Read | OpenHow::Write) => return Err(io::ErrorKind::NotFound.into()),
            (Some(DiskNode::File(file)), _) => file,
            (None, OpenHow::Create) => {
                let file = state.tree.next_file;
                state.tree.next_file += 1;
                state.tree.files.insert(file, Vec::new());
                state.set_name(path, Some(DiskNode::File(file)))?;
                file
            }
        };
        drop(state);
        Ok(Box::new(DiskFile { disk: self.clone(), file, mapped: OnceLock::new() }))
    }

    fn remove(&self, path: &Path, _site: Site) -> io::Result<()> {
        let mut state = self.lock();
        if state.node(path).is_some() { state.set_name(path, None) } else { Ok(()) }
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        if !self.sites.suppressed(SiteKind::Sync, site) {
            self.lock().push(DiskEvent::SyncFolder { folder: path.to_owned() });
        }
        Ok(())
    }

    fn random(&self) -> u64 {
        let mut state = self.lock();
        state.tree.random += 1;
        mix(0x006d_616e_6772_6f76, state.tree.random)
    }
}

/// A file in memory with these bytes.
fn memory_file(bytes: &[u8]) -> File {
    let fd = rustix::fs::memfd_create("crashlab", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(fd.expect("a file in memory"));
    file.set_len(bytes.len() as u64).expect("memory for a simulated file");
    // Zeros stay holes.
    for (n, page) in bytes.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|&b| b != 0)) {
        file.write_all_at(page, n as u64 * 4096).expect("memory for a simulated file");
    }
    file
}

/// An open file of a simulated disk.
struct DiskFile {
    disk: Disk,
    file: u64,
    mapped: OnceLock<Arc<File>>,
}

impl DiskFile {
    fn write(&self, offset: u64, bytes: &[u8], late: bool) -> io::Result<()> {
        let mut state = self.disk.lock();
        let state = &mut *state;
        if state.holes.range(pages_of(self.file, offset, bytes.len() as u64)).next().is_some() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let end = offset + bytes.len() as u64;
        let data = state.tree.files.entry(self.file).or_default();
        let grown = end > data.len() as u64;
        if grown {
            data.resize(end as usize, 0);
        }
        data[offset as usize..end as usize].copy_from_slice(bytes);
        if let Some(mapped) = state.mapped.get(&self.file) {
            mapped.write_all_at(bytes, offset).expect("memory for a simulated file");
        }
        let at = state.record.bytes.len();
        state.record.bytes.extend_from_slice(bytes);
        let write = DiskEvent::Write { file: self.file, offset, len: bytes.len(), at };
        let mut events = vec![write];
        if grown {
            events.push(DiskEvent::Length { file: self.file, len: end });
        }
        if late {
            state.late.append(&mut events);
        } else {
            state.record.events.append(&mut events);
        }
        Ok(())
    }
}

impl StorageFile for DiskFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.lock().tree.files.get(&self.file).map_or(0, Vec::len) as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.lock();
        let data = state.tree.files.get(&self.file).map_or(&[][..], Vec::as_slice);
        let start = (offset as usize).min(data.len());
        let n = bytes.len().min(data.len() - start);
        bytes[..n].copy_from_slice(&data[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        let late = self.disk.sites.suppressed(SiteKind::LateWrite, site);
        self.write(offset, bytes, late)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.write(offset, bytes, false)?;
        if !self.disk.sites.suppressed(SiteKind::DurableWrite, site) {
            let durable = DiskEvent::Durable { file: self.file, offset, len: bytes.len() as u64 };
            self.disk.lock().push(durable);
        }
        Ok(())
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        if !self.disk.sites.suppressed(SiteKind::Sync, site) {
            self.disk.lock().push(DiskEvent::Sync { file: self.file });
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64, _site: Site) -> io::Result<()> {
        let mut state = self.disk.lock();
        let end = offset + len;
        let part = pages_of(self.file, offset, len);
        state.holes.retain(|page| !part.contains(page));
        let data = state.tree.files.entry(self.file).or_default();
        if end > data.len() as u64 {
            data.resize(end as usize, 0);
            if let Some(mapped) = state.mapped.get(&self.file) {
                mapped.set_len(end).expect("memory for a simulated file");
            }
            state.push(DiskEvent::Length { file: self.file, len: end });
        }
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64, site: Site) -> io::Result<bool> {
        let part = pages_of(self.file, offset, len);
        // A hole may be made once more.
        self.disk.lock().holes.retain(|page| !part.contains(page));
        self.write_at(offset, &vec![0; len as usize], site)?;
        self.disk.lock().holes.extend((part.start.1..part.end.1).map(|page| (self.file, page)));
        Ok(true)
    }

    fn cut_off(&self, len: u64, _site: Site) -> io::Result<()> {
        let mut state = self.disk.lock();
        let data = state.tree.files.entry(self.file).or_default();
        if (len as usize) < data.len() {
            data.truncate(len as usize);
            state.push(DiskEvent::Length { file: self.file, len });
        }
        Ok(())
    }

    fn prepare_range(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        // One write: an allocation before it would hide that the zeros come late.
        self.write_at(offset, &vec![0; len as usize], site)
    }

    fn lock(&self, _kind: LockKind) -> io::Result<bool> {
        // One process at a time: a crash gives up every lock.
        Ok(true)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let mapped = self.mapped.get_or_init(|| {
            let mut state = self.disk.lock();
            let state = &mut *state;
            let data = state.tree.files.get(&self.file).map_or(&[][..], Vec::as_slice);
            let file = state.mapped.entry(self.file).or_insert_with(|| Arc::new(memory_file(data)));
            Arc::clone(file)
        });
        Some(mapped.as_fd())
    }

    fn map(&self) -> io::Result<Option<Box<dyn FileMap>>> {
        let mapped = OnceLock::new();
        Ok(Some(Box::new(DiskFile { disk: self.disk.clone(), file: self.file, mapped })))
    }
}

impl FileMap for DiskFile {
    fn store(&mut self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.write_at(offset, bytes, site)
    }

    fn store_word(&mut self, offset: u64, word: [u8; 8], site: Site) -> io::Result<()> {
        self.write_at(offset, &word, site)
    }
}
