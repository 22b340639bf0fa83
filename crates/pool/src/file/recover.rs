//! Opening a file pool: reads and verifies the data file in parallel, then applies the log.
//!
//! Invariants:
//! 1. No byte of a file changes before the pool is used, so a crash while opening changes nothing. (Opening only
//!    reserves space in the data file for logged ranges, rewrites some bytes unchanged, writes to the log what recent
//!    writes continue it with, and makes an empty file for its own.)
//!
//! The rest of opening concerns the files alone: see `file/finish_recovery.rs`.

use crate::damage_check::DamageCheck;
use crate::file::apply_log::LogParts;
use crate::file::checkpoint::{Checkpointer, page_buffer};
use crate::file::damage_notes::DamageNotes;
use crate::file::finish_recovery::DeferredRecovery;
use crate::file::huge_pages::SparseBlocks;
use crate::file::image::{ImageReader, make_room, map_image, verify_suspect};
use crate::file::medium::FileParts;
use crate::file::released::Released;
use crate::format::page_sums::{CHECKSUM_BYTES, PAGE_BYTES, PageChecksums};
use crate::format::superblock::Superblock;
use crate::limits::{cannot_map, fits_memory, reserve};
use crate::log::recent::{LeftRecent, Recent, UnusedRecent};
use crate::log::ring::Log;
use crate::log::scan::{LogScan, closed_log, is_requested, refuse_grown, refuse_hole, scan};
use crate::log::spill::PendingSpill;
use crate::look::gate::CheckpointGate;
use crate::look::hole::refuse_hole_beside;
use crate::options::{PoolOptions, Start};
use crate::pool_files::{DataFiles, PoolFile, SuperblockFile};
use crate::stat::OpenReport;
use crate::storage::traits::{Storage, here};
use crate::sync::Mutex;
use crate::{Error, Result};
use mangrove_sys::{Mirror, Reservation, fan_out};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Spill files that recovery leaves open, at most. Usually there are fewer; a process with many threads that commit
/// long atomic groups at a time may leave more.
const KEPT_OPEN_MAX: usize = 16;
/// Data files smaller than this are read by one thread.
const PARALLEL_FROM_BYTES: u64 = 4 << 20;

/// A file pool read into memory.
pub(crate) struct Recovered {
    pub(crate) memory: Reservation,
    pub(crate) files: DataFiles,
    log_file: PoolFile,
    ring: Mirror,
    sums: PageChecksums,
    scan: LogScan,
    /// The files of recent writes that were there.
    recent: Vec<LeftRecent>,
    /// Nonce of the groups that this process writes.
    nonce: u64,
    /// The spill files that the log names.
    spills: Vec<PendingSpill>,
    grown: u64,
    pub(crate) report: OpenReport,
    /// The damage that an opening for a salvage has passed over.
    notes: DamageNotes,
    /// What was given back and not written again.
    released: Arc<Released>,
    /// Bytes of the data file that have not been compared with their page checksums.
    unverified: std::ops::Range<u64>,
    sparse: SparseBlocks,
}

/// As `reserve`, at the address that the pool's pointers were made for.
fn reserve_at(path: &Path, address: u64, capacity: u64, needed: u64) -> Result<Reservation> {
    let taken = std::cell::Cell::new(false);
    let at = |len| {
        Reservation::anonymous_at(address as usize, len)
            .inspect_err(|e| taken.set(e.kind() == std::io::ErrorKind::AlreadyExists))
    };
    reserve(path, capacity, needed, at)
        .map_err(|e| if taken.get() { Error::AddressTaken { address, len: capacity } } else { e })
}

/// Reserves the address space of the region of the pool at `path`, `needed` bytes at least.
///
/// # Errors
/// `AddressTaken`, `MemoryLimit`, `Unsupported`.
pub(super) fn reserve_region(
    path: &Path,
    options: &PoolOptions,
    sb: &Superblock,
    needed: u64,
) -> Result<Reservation> {
    match sb.address {
        _ if options.away => reserve(path, sb.capacity, needed, Reservation::anonymous),
        0 => reserve(path, sb.capacity, needed, Reservation::anonymous),
        address => reserve_at(path, address, sb.capacity, needed),
    }
}

/// Reads the file pool in `directory` whose superblock is `sb`, and whose other files are `files` and `log_file`.
///
/// # Errors
/// `Corrupt` at the first damaged place, `Io`, `NoSpace`, `Unsupported`.
pub(crate) fn recover(
    options: &PoolOptions,
    directory: &Path,
    sb: &Superblock,
    files: DataFiles,
    log_file: PoolFile,
) -> Result<Recovered> {
    let begun = std::time::Instant::now();
    let (storage, read_only) = (&*options.storage, options.config.read_only);
    let lazy = options.start == Start::CopyOnWrite && !read_only;
    if !read_only {
        // Now, because later there may be no descriptor left, and the way to write the log is decided once.
        log_file.prepare_durable()?;
    }
    let notes = DamageNotes::new(options.salvage);
    notes.pass(check_log_length(&log_file, sb), || ())?;
    notes.pass(refuse_grown(&log_file, sb, directory.join("pool")), || ())?;
    let image_size = match notes.pass(files.image_size(sb).map(Some), || None)? {
        Some(size) => size,
        None => files.image.size()?.min(sb.capacity) / PAGE_BYTES as u64 * PAGE_BYTES as u64,
    };
    if !lazy {
        let limit = options.config.memory_bytes_max;
        fits_memory(directory, limit, image_size, 0)?;
    }
    let memory = reserve_region(directory, options, sb, image_size)?;
    let sums = match notes.pass(files.read_sums(sb, memory.len() as u64).map(Some), || None)? {
        Some(sums) => sums,
        // By these no page with bytes is right.
        None => PageChecksums::new(directory, memory.len() as u64)?,
    };
    notes.pass(files.refuse_sums_beyond(sb, image_size, &sums), || ())?;
    let mapped = lazy && map_image(&files, image_size, &memory)?;
    // A mapped file is not read now.
    let to_read = if mapped { 0 } else { image_size };
    let sparse = SparseBlocks::advise(&memory, &sums, to_read);
    // It lies there twice.
    let ring = Mirror::new(sb.log_bytes as usize);
    let mut ring = ring.map_err(|e| cannot_map(directory, 2 * sb.log_bytes, &e))?;
    let reader = ImageReader {
        files: &files,
        sums: &sums,
        size: to_read,
        memory: &memory,
        next: AtomicU64::new(0),
        check_ended: &|| options.check_ended(directory),
    };
    // A live process may write there, and what it writes is not durable.
    let recent = match options.beside_writer || options.nothing_left {
        true => Vec::new(),
        false => notes.pass(LeftRecent::all_in(storage, directory), Vec::new)?,
    };
    // A salvage takes the log without what cannot be read of them.
    let recent = match options.salvage {
        true => recent.into_iter().map(LeftRecent::noting_unread).collect(),
        false => recent,
    };
    let nonce = storage.random();
    let is_past_cache = !read_only && !is_requested(sb.log_bytes) && log_file.raw().is_direct();
    if !sb.clean && !options.beside_writer && !is_past_cache {
        // The process wrote its log past the page cache, so it must be read from the disk: start with all of it now,
        // for `refuse_hole` too.
        log_file.will_read_ring(sb.tail, sb.ring());
    }
    let scan_log = |ring: &mut Mirror| {
        let scan = scan_log(&log_file, (&recent, nonce), sb, directory, ring);
        notes.pass(scan, || LogScan::empty(sb))
    };
    let (mut suspects, scan) = read_and_scan(&reader, &mut ring, scan_log)?;
    if scan.image_end > memory.len() as u64 {
        return Err(Error::MemoryLimit { path: directory.to_owned(), wanted: scan.image_end, limit: 0 });
    }
    if sb.target > sb.tail {
        let size = files.sums.size()?;
        let beyond = image_size / PAGE_BYTES as u64..(size / CHECKSUM_BYTES as u64).min(sums.pages());
        suspects.extend(beyond.filter(|&page| sums.get(page) != 0));
    }
    let keep_open = if read_only { 0 } else { KEPT_OPEN_MAX };
    let (seed, spills) = (sb.seed(), &scan.spills[..]);
    let mut log = LogParts {
        storage,
        directory,
        seed,
        ring: &ring,
        layout: sb.ring(),
        spills,
        keep_open,
        shows_file: mapped,
        applied: Vec::new(),
    };
    // Of a damaged log a salvage takes nothing, also not what an interrupted checkpoint was to apply.
    let target = sb.target.min(scan.end);
    let applied = notes.pass(log.apply(&memory, sb.tail, target).map(Some), || None)?;
    for page in suspects {
        notes.pass(verify_suspect(page, &memory, &sums, &files), || ())?;
    }
    notes.pass(sums.are_of(sb, image_size, files.sums.path()), || ())?;
    let mut records = applied.unwrap_or(0);
    // Nor what follows a damaged spill file.
    if applied.is_some() {
        records += notes.pass(log.apply(&memory, target, scan.end), || 0)?;
    }
    let (mut beyond, released) = (Vec::new(), Released::default());
    let needed = scan.image_end.max(sb.image_bytes);
    if !read_only && needed > image_size {
        beyond = log.pages_beyond(image_size, sb.tail..scan.end)?;
    }
    if !read_only && scan.gives_back {
        log.given_back(&released, sb.tail..scan.end)?;
    }
    let spills = log.applied;
    let verified_to = to_read;
    let grown = make_room(&files, image_size, needed, &beyond, read_only)?;
    let report = OpenReport {
        created: false,
        was_clean: sb.clean && scan.groups == 0,
        image_bytes: to_read,
        groups: scan.groups,
        records,
        nanoseconds: begun.elapsed().as_nanos() as u64,
    };
    Ok(Recovered {
        memory,
        files,
        log_file,
        ring,
        sums,
        scan,
        recent,
        nonce,
        spills,
        grown,
        report,
        notes,
        released: Arc::new(released),
        unverified: verified_to..image_size,
        sparse,
    })
}

fn check_log_length(log_file: &PoolFile, sb: &Superblock) -> Result<()> {
    let log_size = log_file.size()?;
    if log_size >= sb.log_bytes || !DamageCheck::LogLength.is_on() {
        return Ok(());
    }
    let what = format!("the log has {log_size} bytes instead of {}", sb.log_bytes);
    Err(log_file.corrupt(log_size, what))
}

/// What the log holds, and recent writes continue.
fn scan_log(
    log_file: &PoolFile,
    (recent, nonce): (&[LeftRecent], u64),
    sb: &Superblock,
    directory: &Path,
    ring: &mut Mirror,
) -> Result<LogScan> {
    if sb.clean {
        let scan = closed_log(log_file, sb, directory.join("pool"))?;
        if recent.is_empty() {
            return Ok(scan);
        }
    }
    scan(log_file, recent, nonce, sb, ring)
}

/// Reads the data file and the log at the same time. Returns the pages that may be torn, and what the log holds.
fn read_and_scan(
    reader: &ImageReader<'_>,
    ring: &mut Mirror,
    scan_log: impl Fn(&mut Mirror) -> Result<LogScan> + Sync,
) -> Result<(Vec<u64>, LogScan)> {
    if reader.size < PARALLEL_FROM_BYTES {
        let scan = scan_log(ring)?;
        return Ok((reader.read()?, scan));
    }
    let ring = Mutex::new(ring);
    // The thread that scans the log waits for the disk most of the time; then it reads along.
    let threads = threads().max(2);
    let results = fan_out(threads, |number| -> Result<_> {
        let scan = if number == threads - 1 { Some(scan_log(&mut ring.lock())?) } else { None };
        Ok((reader.read()?, scan))
    });
    let (mut suspects, mut scanned) = (Vec::new(), None);
    for result in results {
        let (more, scan) = result?;
        suspects.extend(more);
        scanned = scanned.or(scan);
    }
    suspects.sort_unstable();
    Ok((suspects, scanned.expect("the last thread has scanned the log")))
}

/// Threads that open a pool.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(16)
}

impl Recovered {
    /// True when recent writes continue the log.
    pub(crate) fn takes_recent(&self) -> bool {
        self.scan.recent.is_some()
    }

    /// Removes the files of recent writes that hold nothing which the log needs: each process that died while it opened
    /// the pool has left one, so without this such processes could fill the medium.
    ///
    /// # Errors
    /// `Corrupt` when the log has a hole: then nothing is removed; `Io`.
    pub(crate) fn remove_superfluous(&self, storage: &dyn Storage, sb: &Superblock) -> Result<()> {
        let is_taken =
            |left: &&LeftRecent| self.scan.recent.is_some() && left.nonce() == self.scan.source_nonce;
        let superfluous: Vec<_> = self.recent.iter().filter(|left| !is_taken(left)).collect();
        if !superfluous.is_empty() && !sb.clean {
            refuse_hole(&self.log_file, sb, &self.scan)?;
        }
        superfluous.into_iter().try_for_each(|left| left.remove(storage))
    }

    /// The rest of opening for writing. It must be done before a caller may see what the pool holds.
    pub(crate) fn deferred(
        &self,
        options: &PoolOptions,
        directory: &Path,
        sb: &Superblock,
    ) -> Result<DeferredRecovery> {
        DeferredRecovery::new(options, directory, sb, &self.scan)
    }

    /// True when the first line is zero: nothing has been made in the region, or what was is not durable.
    pub(crate) fn begins_blank(&self) -> bool {
        // SAFETY: no region is shorter than a page, and no thread writes it now.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr(), 64) };
        bytes.iter().all(|&byte| byte == 0)
    }

    /// What a pool opened read-only consists of: its memory, how much of it may be used, and the damage in it.
    pub(crate) fn into_reader(self) -> (Reservation, u64, Vec<String>) {
        let files = [&self.files.image, &self.files.sums, &self.log_file].map(PoolFile::unread);
        let recent = self.recent.iter().map(LeftRecent::unread);
        (self.memory, self.grown, self.notes.into_notes(files.into_iter().chain(recent).flatten()))
    }

    /// Does the same for a pool opened read-only: refuses a log with a hole.
    ///
    /// # Errors
    /// `Corrupt` when the log has a hole; `Io`.
    pub(crate) fn check_for_reader(&self, sb: &Superblock, beside_writer: bool) -> Result<()> {
        if sb.clean {
            return Ok(());
        }
        if beside_writer {
            return refuse_hole_beside(&self.log_file, sb, &self.scan);
        }
        self.notes.pass(refuse_hole(&self.log_file, sb, &self.scan), || ())
    }

    /// The end of opening read-only.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn sync_for_reader(&self, sb: &Superblock) -> Result<()> {
        // Durable-order: rule 2 of `file/finish_recovery.rs`. A reader cannot write the bytes again, but it can
        // sync them.
        if self.scan.recent.is_some() {
            self.recent.iter().try_for_each(LeftRecent::sync)?;
        }
        if sb.clean { Ok(()) } else { self.log_file.sync_for_reader(here()) }
    }

    /// The parts of the medium; with `keeps_recent` it has a new file of recent writes, `made` if that is there.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: those of making that file.
    pub(crate) fn into_parts(
        self,
        storage: Arc<dyn Storage>,
        directory: &Path,
        superblock: SuperblockFile,
        keeps_recent: bool,
        made: Option<UnusedRecent>,
    ) -> Result<FileParts> {
        let sb = superblock.current();
        let end = self.scan.end;
        let taken = self.scan.recent.map_or(end, |(from, _)| from)..end;
        let buffer = page_buffer(directory)?;
        let recent = match made.and_then(UnusedRecent::into_used) {
            None if keeps_recent => Some(Recent::create(&*storage, directory, sb.seed(), self.nonce, taken)?),
            made => made,
        };
        let nonce = recent.as_ref().map_or(self.nonce, Recent::nonce);
        let interrupted = (sb.target > sb.tail).then_some((sb.target, self.scan.target_nonce));
        let log = Log::new(self.ring, self.log_file, sb, &self.scan, nonce, self.spills, recent);
        let files = Arc::new(self.files);
        let checkpointer = Checkpointer {
            files: Arc::clone(&files),
            storage: Arc::clone(&storage),
            directory: directory.to_owned(),
            sums: self.sums,
            released: self.released,
            buffer,
            work: Vec::new(),
            spare: Vec::new(),
            interrupted,
            gate: CheckpointGate::new(),
            finished: 0,
            bytes_written: 0,
            syncs: 0,
        };
        Ok(FileParts {
            memory: self.memory,
            log,
            superblock,
            directory: directory.to_owned(),
            files,
            storage,
            checkpointer,
            grown: self.grown,
            // What was not read has got no advice.
            unadvised: self.unverified.start..self.grown,
            unverified: self.unverified,
            sparse: self.sparse,
        })
    }
}
