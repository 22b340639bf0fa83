//! Media whose region is the medium itself, mapped: dax (persistent memory) and emulated (DRAM that
//! pretends). A flush writes cache lines back, a fence orders them, and nothing is logged.
//!
//! Invariants:
//! 1. The superblock says "not clean" before the region is given out. Durable-order: otherwise sums
//!    of a past closing would be compared with later bytes.
//! 2. Closing flushes every segment that was flushed into since opening, then writes its sums and syncs
//!    them, then says "clean". Durable-order: otherwise a closed pool could carry wrong sums.
//! 3. A store into a 256 KiB segment into which nothing is ever flushed is not durable data: closing
//!    does not see it, and its sums would not fit. (No owner of durable data does that.)
//! 4. A growth that failed for another reason than want of space latches: its sync is not repeated, and nothing is
//!    acknowledged any more.

use crate::domain::Domain;
use crate::latency::LatencyModel;
use crate::options::Durability;
use crate::stat::{MediumKind, PoolStat};
use crate::storage::{StorageFile, here};
use crate::sums::{PAGE_BYTES, Sums, page_sum};
use crate::superblock::SuperblockFile;
use crate::sync::Mutex;
use crate::{Error, Lsn, Medium, Region, Result, Site, error::is_no_space};
use mangrove_sys::{Reservation, fence, flush_range, write_around};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The image grows by an eighth of itself, up to this.
const GROW_BYTES_MAX: u64 = 64 << 20;
/// Unit in which closing finds out what to sum again.
const SEGMENT_BYTES: u64 = 256 << 10;

/// The files of a mapped pool.
pub(crate) struct MappedFiles {
    /// `None` for a devdax device, which has its size.
    pub(crate) image: Option<Box<dyn StorageFile>>,
    /// That device, whose lock it carries.
    pub(crate) _device: Option<Box<dyn StorageFile>>,
    pub(crate) image_path: PathBuf,
    pub(crate) sums_file: Box<dyn StorageFile>,
    pub(crate) sums_path: PathBuf,
    pub(crate) sums: Sums,
    pub(crate) superblock: SuperblockFile,
    pub(crate) superblock_path: PathBuf,
}

/// A mapped region.
pub(crate) struct Mapped {
    memory: Reservation,
    kind: MediumKind,
    domain: Domain,
    latency: Option<LatencyModel>,
    /// One byte a segment; `None` for memory without files.
    dirty: Option<Reservation>,
    files: Mutex<Option<MappedFiles>>,
    grown: AtomicU64,
    /// Closed, or failed.
    ended: AtomicBool,
    first_error: OnceLock<Error>,
    path: PathBuf,
}

impl Mapped {
    /// Memory without files: gone with the process.
    pub(crate) fn anonymous(memory: Reservation, domain: Domain, latency: Option<LatencyModel>) -> Arc<Self> {
        let grown = memory.len() as u64;
        Arc::new(Self {
            memory,
            kind: MediumKind::Emulated,
            domain,
            latency,
            dirty: None,
            files: Mutex::new(None),
            grown: AtomicU64::new(grown),
            ended: AtomicBool::new(false),
            first_error: OnceLock::new(),
            path: PathBuf::from("emulated memory"),
        })
    }

    /// A pool's region; marks the pool as not clean.
    pub(crate) fn open(
        memory: Reservation,
        kind: MediumKind,
        domain: Domain,
        latency: Option<LatencyModel>,
        mut files: MappedFiles,
        grown: u64,
    ) -> Result<Arc<Self>> {
        let segments = (memory.len() as u64).div_ceil(SEGMENT_BYTES) as usize;
        let dirty = Reservation::anonymous(segments)
            .map_err(|e| Error::Unsupported { what: format!("cannot reserve {segments} bytes: {e}") })?;
        if files.superblock.current().clean {
            for _ in 0..2 {
                let r = files.superblock.update(here(), |sb| sb.clean = false);
                r.map_err(|e| Error::from_io(files.superblock_path.clone(), "write", &e))?;
            }
        } else {
            // Nobody knows what the crashed process flushed: everything is summed again at closing.
            mark(&dirty, 0, grown);
        }
        let path = files.image_path.clone();
        Ok(Arc::new(Self {
            memory,
            kind,
            domain,
            latency,
            dirty: Some(dirty),
            files: Mutex::new(Some(files)),
            grown: AtomicU64::new(grown),
            ended: AtomicBool::new(false),
            first_error: OnceLock::new(),
            path,
        }))
    }

    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the mapping.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn Medium>) }
    }

    /// Another handle of the image's file.
    pub(crate) fn image_file(&self) -> Result<Option<std::os::fd::OwnedFd>> {
        let guard = self.files.lock();
        let fd = guard.as_ref().and_then(|files| files.image.as_ref()).and_then(|image| image.fd());
        fd.map(|fd| fd.try_clone_to_owned())
            .transpose()
            .map_err(|e| Error::from_io(self.path.clone(), "open", &e))
    }

    fn latch(&self, error: Error) -> Error {
        self.first_error.get_or_init(|| error.clone());
        // Release pairs with the Acquire in `wait`.
        self.ended.store(true, Ordering::Release);
        error
    }

    /// Why there is no more to be had.
    #[cold]
    fn failure(&self) -> Error {
        match self.first_error.get() {
            Some(first) => Error::Poisoned { first: first.to_string() },
            None => Error::Closed { path: self.path.clone() },
        }
    }

    /// Sums what changed and marks the pool clean.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.first_error.get().is_some() {
            return Err(self.failure());
        }
        let mut guard = self.files.lock();
        let Some(files) = guard.as_mut() else { return Ok(()) };
        let grown = self.grown.load(Ordering::Acquire);
        let mut block = [0u8; PAGE_BYTES];
        let mut last_block = None;
        let io = |path: &PathBuf, doing| {
            let path = path.clone();
            move |e: std::io::Error| Error::from_io(path, doing, &e)
        };
        for segment in 0..grown.div_ceil(SEGMENT_BYTES) {
            if !self.is_dirty(segment) {
                continue;
            }
            let start = segment * SEGMENT_BYTES;
            let len = SEGMENT_BYTES.min(grown - start) as usize;
            // SAFETY: inside the usable part of the mapping; nobody stores to it any more.
            let bytes = unsafe {
                let ptr = self.memory.base().as_ptr().add(start as usize);
                flush_range(self.domain.instruction, ptr, len);
                std::slice::from_raw_parts(ptr, len)
            };
            let first = start / PAGE_BYTES as u64;
            for (i, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                files.sums.set(first + i as u64, page_sum(page));
            }
            // A segment's 64 sums lie in one block of the sums file.
            let number = first / crate::sums::PAGES_PER_BLOCK;
            if last_block.is_some_and(|b| b != number) {
                write_block(files, last_block, &mut block).map_err(io(&files.sums_path, "write"))?;
            }
            last_block = Some(number);
        }
        write_block(files, last_block, &mut block).map_err(io(&files.sums_path, "write"))?;
        fence();
        files.sums_file.sync(here()).map_err(io(&files.sums_path, "sync"))?;
        if let Some(image) = &files.image {
            // The length and the allocation; on dax the bytes are durable already.
            image.sync(here()).map_err(io(&files.image_path, "sync"))?;
        }
        let digest = files.sums.digest(grown / PAGE_BYTES as u64, files.superblock.current().seed());
        for _ in 0..2 {
            let r = files.superblock.update(here(), |sb| {
                (sb.clean, sb.sums_digest) = (true, digest);
                sb.image_bytes = grown;
            });
            r.map_err(io(&files.superblock_path, "write"))?;
        }
        Ok(())
    }

    /// Ends all use: flushes do nothing, waits fail, the lock is given up.
    pub(crate) fn shut_down(&self) {
        // Release pairs with the Acquire in `wait`.
        self.ended.store(true, Ordering::Release);
        *self.files.lock() = None;
    }

    fn is_dirty(&self, segment: u64) -> bool {
        // Relaxed: closing comes after all use, ordered by whoever stopped the users.
        self.dirty.as_ref().is_some_and(|d| dirty_byte(d, segment).load(Ordering::Relaxed) != 0)
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let mut stat = PoolStat::new(self.kind, Durability::Sync);
        stat.domain = Some(self.domain);
        stat.reserved = self.memory.len() as u64;
        // Relaxed: a number to look at.
        stat.grown = self.grown.load(Ordering::Relaxed);
        stat
    }
}

fn write_block(
    files: &MappedFiles,
    block: Option<u64>,
    buffer: &mut [u8; PAGE_BYTES],
) -> std::io::Result<()> {
    let Some(block) = block else { return Ok(()) };
    files.sums.block(block, buffer);
    files.sums_file.write_at(block * PAGE_BYTES as u64, buffer, here())
}

fn dirty_byte(dirty: &Reservation, segment: u64) -> &AtomicU8 {
    assert!((segment as usize) < dirty.len());
    // SAFETY: inside the reservation, which is only ever accessed as these atomics.
    unsafe { AtomicU8::from_ptr(dirty.base().as_ptr().add(segment as usize)) }
}

#[inline]
fn mark(dirty: &Reservation, offset: u64, len: u64) {
    if len == 0 {
        return;
    }
    for segment in offset / SEGMENT_BYTES..=(offset + len - 1) / SEGMENT_BYTES {
        let byte = dirty_byte(dirty, segment);
        // Relaxed, and a load first: the line stays shared once marked.
        if byte.load(Ordering::Relaxed) == 0 {
            byte.store(1, Ordering::Relaxed);
        }
    }
}

impl Medium for Mapped {
    #[inline]
    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, _site: Site) {
        if let Some(dirty) = &self.dirty {
            mark(dirty, offset, len as u64);
        }
        // SAFETY: the caller vouches for the range.
        unsafe { flush_range(self.domain.instruction, ptr, len) };
        if let Some(latency) = &self.latency {
            latency.flushed(offset, len, self.domain.instruction);
        }
    }

    #[inline]
    unsafe fn write_through(&self, offset: u64, to: *mut u8, bytes: &[u8], _site: Site) -> bool {
        if let Some(dirty) = &self.dirty {
            mark(dirty, offset, bytes.len() as u64);
        }
        // SAFETY: the caller vouches for the range.
        let done = unsafe { write_around(self.domain.instruction, to, bytes) };
        if let (true, Some(latency)) = (done, &self.latency) {
            latency.flushed(offset, bytes.len(), self.domain.instruction);
        }
        done
    }

    #[inline]
    fn fence(&self, _site: Site) {
        fence();
    }

    #[inline]
    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        // Acquire pairs with the Release in `shut_down`.
        if self.ended.load(Ordering::Acquire) { Err(self.failure()) } else { Ok(()) }
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        // Acquire pairs with the Release below.
        if bytes <= self.grown.load(Ordering::Acquire) {
            return Ok(());
        }
        let capacity = self.memory.len() as u64;
        if bytes > capacity {
            return Err(Error::NoSpace { path: self.path.clone(), wanted: bytes - capacity });
        }
        let guard = self.files.lock();
        let grown = self.grown.load(Ordering::Acquire);
        if bytes <= grown {
            return Ok(());
        }
        let Some(files) = guard.as_ref().filter(|_| self.first_error.get().is_none()) else {
            return Err(self.failure());
        };
        let spare = (grown / 8).clamp(SEGMENT_BYTES, GROW_BYTES_MAX).next_multiple_of(SEGMENT_BYTES);
        let exact = bytes.next_multiple_of(SEGMENT_BYTES).min(capacity);
        let generous = (grown + spare).clamp(exact, capacity);
        let allocate = |to: u64| -> std::io::Result<()> {
            if let Some(image) = &files.image {
                image.allocate(grown, to - grown, here())?;
            }
            let (a, b) =
                (Sums::file_bytes(grown / PAGE_BYTES as u64), Sums::file_bytes(to / PAGE_BYTES as u64));
            if b > a { files.sums_file.allocate(a, b - a, here()) } else { Ok(()) }
        };
        let (mut to, mut result) = (generous, allocate(generous));
        if generous > exact && result.as_ref().is_err_and(is_no_space) {
            (to, result) = (exact, allocate(exact));
        }
        let failed =
            |doing| move |e: std::io::Error| self.latch(Error::from_io(self.path.clone(), doing, &e));
        match result {
            Err(e) if is_no_space(&e) => return Err(Error::no_space(self.path.clone(), to - grown, &e)),
            other => other.map_err(failed("allocate space in"))?,
        }
        if let (Some(image), MediumKind::Dax) = (&files.image, self.kind) {
            // Durable-order: the length before any store beyond the old one counts as durable.
            // MAP_SYNC promises it for mapped blocks; the sync covers systems that do not.
            image.sync(here()).map_err(failed("sync"))?;
        }
        self.grown.store(to, Ordering::Release);
        Ok(())
    }

    fn poisoned(&self) -> Option<Error> {
        self.first_error.get().cloned()
    }

    fn records_reads(&self) -> bool {
        self.latency.as_ref().is_some_and(LatencyModel::models_reads)
    }

    #[inline]
    fn reading(&self, offset: u64, len: usize) {
        if let Some(latency) = &self.latency {
            latency.reading(offset, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{OpenHow, Storage};
    use crate::{
        CreateMode, Fault, FaultKind, Faulty, Latency, MediumChoice, Operation, OsStorage, PoolOptions,
    };
    use mangrove_sys::MapKind;

    /// A dax pool, except that its file is not on persistent memory.
    #[test]
    fn a_failed_sync_of_a_growth_latches_and_is_not_repeated() {
        const CAPACITY: usize = 16 << 20;
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        for code in [EIO, ENOSPC] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("p");
            let options = PoolOptions::new().create(CreateMode::CreateIfMissing).capacity(CAPACITY as u64);
            let options = options.medium(MediumChoice::Emulated(Latency::default()));
            options.open(&path).unwrap().close().unwrap();
            let superblock_path = path.join("pool");
            let bytes = std::fs::read(&superblock_path).unwrap();
            let sb = crate::superblock::decode(&superblock_path, &bytes).unwrap();
            let storage = Faulty::new(Arc::new(OsStorage));
            let open = |name: &str| storage.open(&path.join(name), OpenHow::Write, here()).unwrap();
            let image = open("image");
            let memory = Reservation::file(image.fd().unwrap(), CAPACITY, MapKind::Shared).unwrap();
            let files = MappedFiles {
                image: Some(image),
                _device: None,
                image_path: path.join("image"),
                sums_file: open("sums"),
                sums_path: path.join("sums"),
                sums: Sums::new(CAPACITY as u64).unwrap(),
                superblock: SuperblockFile::new(open("pool"), sb),
                superblock_path,
            };
            let domain = options.domain_resolved().unwrap();
            let mapped = Mapped::open(memory, MediumKind::Dax, domain, None, files, 0).unwrap();
            let (file, operations) = (Some("image".to_owned()), vec![Operation::Sync]);
            storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(code) });
            mapped.wait(0, here()).unwrap();
            assert!(matches!(mapped.grow(4096), Err(Error::Io { doing: "sync", .. })));
            assert!(matches!(mapped.poisoned(), Some(Error::Io { .. })));
            assert!(matches!(mapped.grow(4096), Err(Error::Poisoned { .. })));
            assert!(matches!(mapped.wait(0, here()), Err(Error::Poisoned { .. })));
            assert!(matches!(mapped.settle(), Err(Error::Poisoned { .. })));
            assert_eq!((storage.seen(), mapped.grown.load(Ordering::Relaxed)), (1, 0));
        }
    }
}
