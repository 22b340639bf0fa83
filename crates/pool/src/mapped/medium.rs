//! Media whose region is the medium itself, mapped: dax (persistent memory) and emulated (DRAM in its place). A
//! flush writes cache lines back, a fence orders them, and nothing is logged.
//!
//! Invariants:
//! 1. The superblock says "not clean" before the region may be used. Durable-order: otherwise page checksums of a
//!    past closing would be compared with later bytes.
//! 2. Closing flushes every segment that was flushed into since opening, then writes its page checksums and syncs
//!    them, then says "clean". Durable-order: otherwise a closed pool could carry wrong checksums.
//! 3. A store into a 256 KiB segment into which nothing is ever flushed is not durable data: closing does not see
//!    it, and its page checksum would not match. (No owner of durable data does that.)
//! 4. The superblock's `image_bytes` is the length that may be used. Durable-order: the file's length before it,
//!    because a shorter file is refused as damaged; and it before any store beyond the old length, because a file that
//!    was cut there could otherwise not be told from one that never was longer.
//! 5. A growth that failed for another reason than a full medium poisons the pool: its sync is not repeated, and
//!    nothing is acknowledged any more.
//! 6. A child of fork(2) writes to none of its parent's files, and takes no lock. (A store to the region reaches the
//!    parent's: owners of durable data refuse in a child.)

use crate::config::Durability;
use crate::format::page_sums::{PAGE_BYTES, PageChecksums, page_checksum};
use crate::format::superblock::{VERSION, VERSION_OF_IMAGE_BYTES};
use crate::mapped::domain::PersistenceDomain;
use crate::mapped::latency::LatencyModel;
use crate::pool_files::{DataFiles, FileError, PoolFile, SuperblockFile};
use crate::stat::{MediumKind, PoolStat};
use crate::storage::traits::here;
use crate::sync::Mutex;
use crate::{ByteRange, Error, Lsn, MediumOps, Observers, ReadObserver, Region, Result, Site};
use mangrove_sys::{ProcessMark, Reservation, fence, flush_range, write_around};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The data file grows by an eighth of itself, up to this.
const GROW_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a segment. Closing computes the page checksums of whole segments that have changed.
const SEGMENT_BYTES: u64 = 256 << 10;

/// The files of a mapped pool.
pub(crate) struct MappedFiles {
    pub(crate) data: DataFiles,
    /// The data file is a devdax device, which has its size, and carries a lock.
    pub(crate) is_device: bool,
    pub(crate) sums: PageChecksums,
    pub(crate) superblock: SuperblockFile,
}

impl MappedFiles {
    /// The data file, unless it is a device.
    fn image(&self) -> Option<&PoolFile> {
        (!self.is_device).then_some(&self.data.image)
    }

    /// Makes the lengths and allocations of the files durable.
    fn sync_lengths(&self) -> Result<()> {
        self.data.sums.sync(here())?;
        // MAP_SYNC promises it for mapped blocks; the sync covers systems that do not.
        self.image().map_or(Ok(()), |image| image.sync(here()))
    }
}

/// A mapped region.
pub(crate) struct MappedRegion {
    memory: Reservation,
    kind: MediumKind,
    domain: PersistenceDomain,
    latency: Option<Arc<LatencyModel>>,
    /// For each segment a byte that says whether it has changed; `None` for memory without files.
    dirty: Option<Reservation>,
    files: Mutex<Option<MappedFiles>>,
    grown: AtomicU64,
    /// Closed, or failed.
    ended: AtomicBool,
    first_error: OnceLock<Error>,
    path: PathBuf,
    /// The process that opened it.
    process: ProcessMark,
}

impl MappedRegion {
    /// Memory without files, lost with the process.
    pub(crate) fn anonymous(
        memory: Reservation,
        domain: PersistenceDomain,
        latency: Option<LatencyModel>,
    ) -> Arc<Self> {
        let grown = memory.len() as u64;
        Arc::new(Self {
            memory,
            kind: MediumKind::Emulated,
            domain,
            latency: latency.map(Arc::new),
            dirty: None,
            files: Mutex::new(None),
            grown: AtomicU64::new(grown),
            ended: AtomicBool::new(false),
            first_error: OnceLock::new(),
            path: PathBuf::from("emulated memory"),
            process: ProcessMark::here(),
        })
    }

    /// A pool's region; marks the pool as not clean.
    pub(crate) fn open(
        memory: Reservation,
        kind: MediumKind,
        domain: PersistenceDomain,
        latency: Option<LatencyModel>,
        mut files: MappedFiles,
        mut grown: u64,
    ) -> Result<Arc<Self>> {
        let segments = (memory.len() as u64).div_ceil(SEGMENT_BYTES) as usize;
        let dirty = Reservation::anonymous(segments)
            .map_err(|e| Error::Unsupported { what: format!("cannot reserve {segments} bytes: {e}") })?;
        // The process before may have died before its sync of "not clean", and this one relies on it. The copy that was
        // read must also be durable before the other is overwritten.
        files.superblock.rewrite(here())?;
        let sb = files.superblock.current();
        if grown > sb.image_bytes {
            // A growth that was not finished, a pool of version 2, or a device, all of which is usable at once.
            let may_stay = !files.is_device && sb.version >= VERSION_OF_IMAGE_BYTES;
            match files.data.extend_sums(grown) {
                Err(e) if e.is_no_space() && may_stay => grown = sb.image_bytes,
                given => given.map_err(|e| e.doing("allocate space in"))?,
            }
        }
        let (was_clean, image_bytes) = (sb.clean, if files.is_device { sb.image_bytes } else { grown });
        let is_new = was_clean || sb.alone || sb.version < VERSION || sb.image_bytes != image_bytes;
        if image_bytes > sb.image_bytes && kind == MediumKind::Dax {
            files.sync_lengths()?;
        }
        // The older copy in any case: a process that was killed between the two may have left one that says "clean".
        for _ in 0..1 + u32::from(is_new) {
            // Durable-order: both copies, before the first store: see invariants 1 and 4.
            files.superblock.update(here(), |sb| (sb.clean, sb.image_bytes) = (false, image_bytes))?;
        }
        if !was_clean {
            // It is unknown what the crashed process flushed: closing computes all page checksums again.
            mark(&dirty, 0, grown);
        }
        let path = files.data.image.path().to_owned();
        Ok(Arc::new(Self {
            memory,
            kind,
            domain,
            latency: latency.map(Arc::new),
            dirty: Some(dirty),
            files: Mutex::new(Some(files)),
            grown: AtomicU64::new(grown),
            ended: AtomicBool::new(false),
            first_error: OnceLock::new(),
            path,
            process: ProcessMark::here(),
        }))
    }

    /// False in a child that was forked from the process that opened the pool.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_here()
    }

    /// Returns an error in a child of fork, before it takes a lock or writes to a file.
    fn refuse_child(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(Error::forked(&self.path)) }
    }

    /// See [`Pool::set_made`](crate::Pool::set_made).
    pub(crate) fn set_made(&self) -> Result<()> {
        self.refuse_child()?;
        let mut guard = self.files.lock();
        let Some(files) = guard.as_mut().filter(|_| self.first_error.get().is_none()) else {
            return Err(self.failure());
        };
        files.superblock.set_made().map_err(|e| self.poison(e))
    }

    pub(crate) fn region(self: &Arc<Self>) -> Region {
        let base = self.memory.base();
        // SAFETY: the medium owns the mapping.
        unsafe { Region::new(base, self.memory.len() as u64, Arc::clone(self) as Arc<dyn MediumOps>) }
    }

    /// Another handle of the data file.
    pub(crate) fn image_file(&self) -> Result<Option<std::os::fd::OwnedFd>> {
        self.refuse_child()?;
        let guard = self.files.lock();
        let Some(image) = guard.as_ref().and_then(MappedFiles::image) else { return Ok(None) };
        image.fd().map(|fd| fd.try_clone_to_owned()).transpose().map_err(|e| image.error("open", &e))
    }

    fn poison(&self, error: Error) -> Error {
        self.first_error.get_or_init(|| error.clone());
        // Release pairs with the Acquire in `wait`.
        self.ended.store(true, Ordering::Release);
        error
    }

    /// The error of a medium that has failed or was closed.
    #[cold]
    fn failure(&self) -> Error {
        match self.first_error.get() {
            Some(first) => Error::Poisoned { first: first.to_string() },
            None => Error::Closed { path: self.path.clone() },
        }
    }

    /// Computes the checksums of changed pages and marks the pool clean.
    pub(crate) fn settle(&self) -> Result<()> {
        self.refuse_child()?;
        if self.first_error.get().is_some() {
            return Err(self.failure());
        }
        let mut guard = self.files.lock();
        let Some(files) = guard.as_mut() else { return Ok(()) };
        let grown = self.grown.load(Ordering::Acquire);
        let mut block = [0u8; PAGE_BYTES];
        let mut last_block = None;
        for segment in 0..grown.div_ceil(SEGMENT_BYTES) {
            if !self.is_dirty(segment) {
                continue;
            }
            let start = segment * SEGMENT_BYTES;
            let len = SEGMENT_BYTES.min(grown - start) as usize;
            // SAFETY: inside the usable part of the mapping; no thread stores to it any more.
            let bytes = unsafe {
                let ptr = self.memory.base().as_ptr().add(start as usize);
                flush_range(self.domain.instruction, ptr, len);
                std::slice::from_raw_parts(ptr, len)
            };
            let first = start / PAGE_BYTES as u64;
            for (i, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                files.sums.set(first + i as u64, page_checksum(page));
            }
            // A segment's 64 checksums lie in one block of the file.
            let number = first / crate::format::page_sums::PAGES_PER_BLOCK;
            if last_block.is_some_and(|b| b != number) {
                write_block(files, last_block, &mut block)?;
            }
            last_block = Some(number);
        }
        write_block(files, last_block, &mut block)?;
        fence();
        files.data.sums.sync(here())?;
        if let Some(image) = files.image() {
            // The length and the allocation; on dax the bytes are durable already.
            image.sync(here())?;
        }
        let digest = files.sums.digest(grown / PAGE_BYTES as u64, files.superblock.current().seed());
        for _ in 0..2 {
            files.superblock.update(here(), |sb| {
                (sb.clean, sb.sums_digest) = (true, digest);
                sb.image_bytes = grown;
            })?;
        }
        Ok(())
    }

    /// Ends all use: flushes do nothing, waits fail, and the lock is released.
    pub(crate) fn shut_down(&self) {
        // Release pairs with the Acquire in `wait`.
        self.ended.store(true, Ordering::Release);
        *self.files.lock() = None;
    }

    fn is_dirty(&self, segment: u64) -> bool {
        // Relaxed: closing comes after all use; the caller has stopped the threads.
        self.dirty.as_ref().is_some_and(|d| dirty_byte(d, segment).load(Ordering::Relaxed) != 0)
    }

    pub(crate) fn stat(&self) -> PoolStat {
        let mut stat = PoolStat::new(self.kind, Durability::Sync);
        stat.domain = Some(self.domain);
        stat.reserved = self.memory.len() as u64;
        // Relaxed: a counter.
        stat.grown = self.grown.load(Ordering::Relaxed);
        stat.poisoned = self.first_error.get().map(ToString::to_string);
        stat
    }
}

fn write_block(files: &MappedFiles, block: Option<u64>, buffer: &mut [u8; PAGE_BYTES]) -> Result<()> {
    let Some(block) = block else { return Ok(()) };
    files.sums.block(block, buffer);
    files.data.sums.write_at(block * PAGE_BYTES as u64, buffer, here())
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
    let (mut segment, last) = (offset / SEGMENT_BYTES, (offset + len - 1) / SEGMENT_BYTES);
    loop {
        let byte = dirty_byte(dirty, segment);
        // Relaxed, and a load first: the line stays shared once marked.
        if byte.load(Ordering::Relaxed) == 0 {
            byte.store(1, Ordering::Relaxed);
        }
        if segment >= last {
            return;
        }
        segment += 1;
    }
}

impl MediumOps for MappedRegion {
    fn observers(self: Arc<Self>) -> Observers {
        let model = self.latency.clone().filter(|model| model.models_reads());
        Observers { reads: model.map(|model| model as Arc<dyn ReadObserver>), ..Observers::default() }
    }

    #[inline]
    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, _site: Site) {
        if let Some(dirty) = &self.dirty {
            mark(dirty, offset, len as u64);
        }
        // SAFETY: the caller guarantees the range.
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
        // SAFETY: the caller guarantees the range.
        let done = unsafe { write_around(self.domain.instruction, to, bytes) };
        if let (true, Some(latency)) = (done, &self.latency) {
            latency.flushed(offset, bytes.len(), self.domain.instruction);
        }
        done
    }

    #[inline]
    fn fence(&self, _site: Site) {
        fence();
        if let Some(latency) = &self.latency {
            latency.fenced();
        }
    }

    #[inline]
    fn fence_completes(&self, site: Site) -> bool {
        self.fence(site);
        // Acquire pairs with the Release in `shut_down`.
        !self.ended.load(Ordering::Acquire)
    }

    #[inline]
    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        // Acquire pairs with the Release in `shut_down`.
        if self.ended.load(Ordering::Acquire) { Err(self.failure()) } else { Ok(()) }
    }

    fn grown(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.grown.load(Ordering::Acquire)
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
        self.refuse_child()?;
        let mut guard = self.files.lock();
        let grown = self.grown.load(Ordering::Acquire);
        if bytes <= grown {
            return Ok(());
        }
        let Some(files) = guard.as_mut().filter(|_| self.first_error.get().is_none()) else {
            return Err(self.failure());
        };
        let spare = (grown / 8).clamp(SEGMENT_BYTES, GROW_BYTES_MAX).next_multiple_of(SEGMENT_BYTES);
        let exact = bytes.next_multiple_of(SEGMENT_BYTES).min(capacity);
        let generous = (grown + spare).clamp(exact, capacity);
        let allocate = |to: u64| match files.is_device {
            true => files.data.allocate_sums(grown, to),
            false => files.data.allocate(grown, to),
        };
        let (mut to, mut result) = (generous, allocate(generous));
        if generous > exact && result.as_ref().is_err_and(FileError::is_no_space) {
            (to, result) = (exact, allocate(exact));
        }
        if let Err(e) = result {
            // The error names the data file even if the file of page checksums has no space.
            let (is_full, e) = (e.is_no_space(), FileError::new(self.path.clone(), e.error));
            let error = e.doing_with_space("allocate space in", to - grown);
            return Err(if is_full { error } else { self.poison(error) });
        }
        if self.kind == MediumKind::Dax {
            files.sync_lengths().map_err(|e| self.poison(e))?;
        }
        if !files.is_device {
            // Durable-order: invariant 4.
            files.superblock.update(here(), |sb| sb.image_bytes = to).map_err(|e| self.poison(e))?;
        }
        self.grown.store(to, Ordering::Release);
        Ok(())
    }

    fn data_ranges(&self, range: ByteRange) -> Vec<ByteRange> {
        if !self.is_ours() {
            return vec![range];
        }
        let guard = self.files.lock();
        let Some(image) = guard.as_ref().and_then(MappedFiles::image) else { return vec![range] };
        // The kernel counts pages that were stored to through a mapping as data. Who asks can do without an answer.
        image.data_ranges(range.offset, range.offset + range.len).unwrap_or_else(|_| vec![range])
    }

    fn poisoned(&self) -> Option<Error> {
        self.first_error.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool_files::LockedPool;
    use crate::storage::traits::OpenHow;
    use crate::{Create, Fault, FaultKind, Faulty, FaultyOperation, Latency, Medium, OsStorage, PoolOptions};
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
            let options = PoolOptions::new().create(Create::IfMissing).capacity(CAPACITY as u64);
            let options = options.medium(Medium::Emulated(Latency::default()));
            options.open(&path).unwrap().close().unwrap();
            let superblock_path = path.join("pool");
            let bytes = std::fs::read(&superblock_path).unwrap();
            let sb = crate::format::superblock::decode(&superblock_path, &bytes).unwrap();
            let storage = Faulty::new(Arc::new(OsStorage));
            let open =
                |name: &str| PoolFile::open(&storage, path.join(name), OpenHow::Write, "open").unwrap();
            let held = Arc::new(storage.clone()) as Arc<dyn crate::Storage>;
            let locked = LockedPool::take(&held, &path, OpenHow::Write, 1).unwrap().unwrap();
            let image = open("image");
            let memory = Reservation::file(image.fd().unwrap(), CAPACITY, MapKind::Shared).unwrap();
            let files = MappedFiles {
                data: DataFiles { image, sums: open("sums") },
                is_device: false,
                sums: PageChecksums::new(std::path::Path::new("p"), CAPACITY as u64).unwrap(),
                superblock: SuperblockFile::new(locked, sb),
            };
            let domain = options.domain_resolved().unwrap();
            let mapped = MappedRegion::open(memory, MediumKind::Dax, domain, None, files, 0).unwrap();
            let (file, operations) = (Some("image".to_owned()), vec![FaultyOperation::Sync]);
            storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(code) });
            mapped.wait(0, here()).unwrap();
            assert!(matches!(mapped.grow(4096), Err(Error::Io { doing: "sync", .. })));
            assert!(matches!(mapped.poisoned(), Some(Error::Io { .. })));
            assert!(mapped.stat().poisoned.is_some_and(|why| why.starts_with("cannot sync ")));
            assert!(matches!(mapped.grow(4096), Err(Error::Poisoned { .. })));
            assert!(matches!(mapped.wait(0, here()), Err(Error::Poisoned { .. })));
            assert!(matches!(mapped.settle(), Err(Error::Poisoned { .. })));
            assert_eq!((storage.seen(), mapped.grown.load(Ordering::Relaxed)), (1, 0));
        }
    }
}
