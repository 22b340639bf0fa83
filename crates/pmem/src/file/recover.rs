//! Opening a file pool: reads and verifies the image in parallel, then applies the log.
//!
//! Invariants:
//! 1. No byte of a file changes before the pool is used, so a crash while opening changes nothing. (The
//!    image is given the space that a logged range needs, and some bytes are written again as they are.)
//! 2. Every byte that enters the working copy was under a checksum that fits; mapped copy on write, it is compared
//!    with its checksum afterwards (`verify_later.rs`).
//!
//! What remains then concerns the files alone: see `finish.rs`.

use crate::aside::{REFERENCE_BYTES, Reader, Reference, Waiting};
use crate::checkpoint::{Checkpointer, ImageFiles};
use crate::error::is_no_space;
use crate::file_medium::{FileParts, HUGE_PAGES_FROM_BYTES};
use crate::finish::Unfinished;
use crate::log::Log;
use crate::log_format::{GROUP_HEADER_BYTES, GroupHeader, Records, group_total};
use crate::log_scan::{Scan, refuse_hole, scan};
use crate::pool::opening;
use crate::stat::OpenReport;
use crate::storage::{OpenHow, PathKind, Storage, StorageFile, here};
use crate::sums::{PAGE_BYTES, SUM_BYTES, Sums, page_sum};
use crate::superblock::{Superblock, SuperblockFile};
use crate::{Error, Lsn, Result};
use mangrove_sys::{Mirror, Reservation, without_signals};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of image that one worker reads at a time.
const CHUNK_BYTES: u64 = 2 << 20;
/// Pages read at a time: what is verified next is still in the cache.
const READ_PAGES: u64 = 64;
/// Logs shorter than this are applied by one thread.
const PARALLEL_LOG_BYTES: u64 = 2 << 20;
/// Unit in which the region is dealt out to threads that apply the log.
const STRIPE_BYTES: u64 = 64 << 10;
/// Files of long units that recovery leaves open, at most. There are no more, but for a process with many threads that
/// commit such units at a time.
const KEPT_OPEN_MAX: usize = 16;
/// Images smaller than this are read by one thread.
const PARALLEL_FROM_BYTES: u64 = 4 << 20;

/// A file pool read into memory.
pub(crate) struct Recovered {
    pub(crate) memory: Reservation,
    pub(crate) files: ImageFiles,
    log_file: Box<dyn StorageFile>,
    ring: Mirror,
    sums: Sums,
    scan: Scan,
    /// The files of long units that the log names.
    asides: Vec<Waiting>,
    grown: u64,
    pub(crate) report: OpenReport,
    /// Bytes of the image that have not been compared with their sums.
    unverified: std::ops::Range<u64>,
}

/// Has `map` map `capacity` bytes, or, where the process may not have so much, half the greatest power
/// of two that it may (the other half is for its threads and its heap), but at least `needed`.
pub(crate) fn reserve(
    capacity: u64,
    needed: u64,
    map: impl Fn(usize) -> std::io::Result<Reservation>,
) -> Result<Reservation> {
    let mut len = capacity;
    loop {
        match map(len as usize) {
            Ok(memory) if len == capacity || len / 2 < needed => return Ok(memory),
            Ok(memory) => {
                drop(memory);
                len /= 2;
                let unsupported = |e| Error::Unsupported { what: format!("cannot map {len} bytes: {e}") };
                return map(len as usize).map_err(unsupported);
            }
            // valgrind says EINVAL where the kernel says ENOMEM.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)) => {
                let smaller = (len - 1).next_power_of_two() / 2;
                if smaller < needed.max(1 << 20) {
                    return Err(Error::Unsupported {
                        what: format!(
                            "cannot reserve {needed} bytes of address space ({e}); raise the limit (ulimit -v)"
                        ),
                    });
                }
                len = smaller;
            }
            Err(e) => return Err(Error::Unsupported { what: format!("cannot map {len} bytes: {e}") }),
        }
    }
}

/// As `reserve`, at the address that the pool's pointers were made for.
fn reserve_at(address: u64, capacity: u64, needed: u64) -> Result<Reservation> {
    let taken = std::cell::Cell::new(false);
    let at = |len| {
        Reservation::anonymous_at(address as usize, len)
            .inspect_err(|e| taken.set(e.kind() == std::io::ErrorKind::AlreadyExists))
    };
    reserve(capacity, needed, at)
        .map_err(|e| if taken.get() { Error::AddressTaken { address, len: capacity } } else { e })
}

/// Opens one of the pool's files, which must be there and be a file.
pub(crate) fn open_part(storage: &dyn Storage, path: &Path, read_only: bool) -> Result<Box<dyn StorageFile>> {
    let kind = storage.kind(path).map_err(|e| Error::from_io(path.to_owned(), "read", &e))?;
    let corrupt = |what: &str| Err(Error::Corrupt { path: path.to_owned(), offset: 0, what: what.into() });
    match kind {
        PathKind::Missing => return corrupt("the file is missing"),
        PathKind::Folder => return corrupt("it is a folder, not a file"),
        PathKind::File => {}
    }
    let how = if read_only { OpenHow::Read } else { OpenHow::Write };
    storage.open(path, how, here()).map_err(|e| Error::from_io(path.to_owned(), opening(read_only), &e))
}

/// Reads the file pool in `folder` whose superblock is `sb`.
///
/// # Errors
/// `Corrupt` at the first damaged place, `Io`, `NoSpace`, `Unsupported`.
pub(crate) fn recover(
    storage: &dyn Storage,
    folder: &Path,
    sb: &Superblock,
    read_only: bool,
    lazy: bool,
) -> Result<Recovered> {
    let begun = std::time::Instant::now();
    let (image_path, log_path, sums_path) = (folder.join("image"), folder.join("log"), folder.join("sums"));
    let files = ImageFiles {
        image: open_part(storage, &image_path, read_only)?,
        image_path,
        sums: open_part(storage, &sums_path, read_only)?,
        sums_path,
    };
    let log_file = open_part(storage, &log_path, read_only)?;
    if !read_only {
        // Now: later there may be no descriptor left, and how the log is written is decided once.
        log_file.prepare_durable().map_err(|e| Error::from_io(log_path.clone(), "open", &e))?;
    }
    let log_size = log_file.size().map_err(|e| Error::from_io(log_path.clone(), "read", &e))?;
    if log_size != sb.log_bytes {
        return Err(Error::Corrupt {
            path: log_path,
            offset: log_size.min(sb.log_bytes),
            what: format!("the log has {log_size} bytes instead of {}", sb.log_bytes),
        });
    }
    let image_size = image_size(&files, sb)?;
    let memory = match sb.address {
        0 => reserve(sb.capacity, image_size, Reservation::anonymous)?,
        address => reserve_at(address, sb.capacity, image_size)?,
    };
    let sums = read_sums(&files, sb, image_size, memory.len() as u64)?;
    let mapped = lazy && map_image(&files, image_size, &memory)?;
    // What is mapped is not read now.
    let to_read = if mapped { 0 } else { image_size };
    if !mapped && image_size >= HUGE_PAGES_FROM_BYTES {
        memory.advise_huge(0, image_size as usize);
    }
    let mut ring = Mirror::new(sb.log_bytes as usize).map_err(|e| Error::Unsupported {
        what: format!("cannot map {} bytes for the log: {e}", sb.log_bytes),
    })?;
    let reader =
        ImageReader { files: &files, sums: &sums, size: to_read, memory: &memory, next: AtomicU64::new(0) };
    let reader = &reader;
    let (mut suspects, scan) = std::thread::scope(|scope| {
        let ring = &mut ring;
        let mut scanner = || match sb.clean {
            true => Ok(Scan::empty(sb)),
            false => scan(&*log_file, &log_path, sb, ring),
        };
        if to_read < PARALLEL_FROM_BYTES {
            let scan = scanner()?;
            return Ok((reader.read()?, scan));
        }
        // Who scans the log waits for the disk most of the time; then he reads along.
        let scan_and_read = move || scanner().and_then(|scan| Ok((reader.read()?, scan)));
        let scanning = without_signals(|| std::thread::Builder::new().spawn_scoped(scope, scan_and_read))
            .map_err(|e| Error::Unsupported { what: format!("cannot start a thread: {e}") })?;
        let help = |_| std::thread::Builder::new().spawn_scoped(scope, || reader.read()).ok();
        let helpers: Vec<_> = without_signals(|| (2..threads()).filter_map(help).collect());
        let mut suspects = reader.read()?;
        for helper in helpers {
            suspects.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        let (more, scan) = scanning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        suspects.extend(more);
        suspects.sort_unstable();
        Ok((suspects, scan))
    })?;
    if scan.image_end > memory.len() as u64 {
        return Err(Error::Unsupported {
            what: format!(
                "the pool needs {} bytes of address space, {} could be reserved",
                scan.image_end,
                memory.len()
            ),
        });
    }
    if sb.target > sb.tail {
        let size = files.sums.size().map_err(|e| Error::from_io(files.sums_path.clone(), "read", &e))?;
        let beyond = image_size / PAGE_BYTES as u64..(size / SUM_BYTES as u64).min(sums.pages());
        suspects.extend(beyond.filter(|&page| sums.get(page) != 0));
    }
    let keep_open = if read_only { 0 } else { KEPT_OPEN_MAX };
    let (seed, asides) = (sb.seed(), &scan.asides[..]);
    let mut log = LogParts { storage, folder, seed, ring: &ring, asides, keep_open, applied: Vec::new() };
    let mut records = log.apply(&memory, sb.tail, sb.target)?;
    verify_suspects(&suspects, &memory, &sums, &files)?;
    sums.are_of(sb, image_size, &files.sums_path)?;
    records += log.apply(&memory, sb.target, scan.end)?;
    let asides = log.applied;
    let verified_to = to_read;
    let grown = make_room(&files, image_size, scan.image_end.max(sb.image_bytes), read_only)?;
    let report = OpenReport {
        created: false,
        was_clean: sb.clean,
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
        asides,
        grown,
        report,
        unverified: verified_to..image_size,
    })
}

/// Maps the image into `memory`, copy on write; false where its storage has no file to map.
///
/// A page that has not been stored to shows the file, which a checkpoint changes. But a checkpoint writes what was
/// flushed from this very memory, and whoever flushes a byte has stored it first, or leaves it as it is.
fn map_image(files: &ImageFiles, size: u64, memory: &Reservation) -> Result<bool> {
    let Some(fd) = files.image.fd().filter(|_| size > 0) else { return Ok(false) };
    memory
        .replace_by_private(0, size as usize, fd, 0)
        .map_err(|e| Error::from_io(files.image_path.clone(), "map", &e))?;
    Ok(true)
}

fn image_size(files: &ImageFiles, sb: &Superblock) -> Result<u64> {
    let size = files.image.size().map_err(|e| Error::from_io(files.image_path.clone(), "read", &e))?;
    let corrupt = |offset, what| Err(Error::Corrupt { path: files.image_path.clone(), offset, what });
    if size < sb.image_bytes {
        return corrupt(size, format!("the image ends here, but had {} bytes", sb.image_bytes));
    }
    if size > sb.capacity {
        return corrupt(
            sb.capacity,
            format!("the image has {size} bytes, but the capacity is {}", sb.capacity),
        );
    }
    // A crash may leave a length that no page ends at: nothing was written beyond the last whole page.
    Ok(size - size % PAGE_BYTES as u64)
}

/// Reads the sums of a region of `addresses` bytes; those of pages beyond the image must be zero.
pub(crate) fn read_sums(
    files: &ImageFiles,
    sb: &Superblock,
    image_size: u64,
    addresses: u64,
) -> Result<Sums> {
    let mut sums = Sums::new(addresses)?;
    let path = &files.sums_path;
    let size = files.sums.size().map_err(|e| Error::from_io(path.clone(), "read", &e))?;
    let most = Sums::file_bytes(addresses / PAGE_BYTES as u64);
    let corrupt = |offset, what: String| Err(Error::Corrupt { path: path.clone(), offset, what });
    if size > most {
        return corrupt(most, format!("the file of page sums has {size} bytes, but {most} are the most"));
    }
    let needed = Sums::file_bytes(sb.image_bytes / PAGE_BYTES as u64);
    if size < needed {
        return corrupt(size, format!("the file of page sums ends here, but had {needed} bytes"));
    }
    let bytes = sums.bytes_mut(0..(size - size % 4) as usize);
    let n = files.sums.read_at(0, bytes).map_err(|e| Error::from_io(path.clone(), "read", &e))?;
    bytes[n..].fill(0);
    let used = (image_size / PAGE_BYTES as u64 * 4) as usize;
    // A checkpoint syncs the sums before the image: a crash may have taken the length that the image grew
    // by, and left its sums. Such pages are suspects.
    let interrupted = sb.target > sb.tail;
    let beyond = bytes.get(used..).and_then(|rest| rest.iter().position(|&b| b != 0));
    if let Some(at) = beyond.filter(|_| !interrupted) {
        return corrupt((used + at) as u64, "there is a sum for a page beyond the image".into());
    }
    Ok(sums)
}

/// Threads that open a pool.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(16)
}

/// Reads the image into memory, on as many threads as call it.
struct ImageReader<'a> {
    files: &'a ImageFiles,
    sums: &'a Sums,
    size: u64,
    memory: &'a Reservation,
    /// What has been handed out to threads.
    next: AtomicU64,
}

impl ImageReader<'_> {
    /// Reads until all has been handed out; returns the pages whose sum does not fit (they may be torn).
    fn read(&self) -> Result<Vec<u64>> {
        let mut suspects = Vec::new();
        loop {
            // Relaxed: only hands out chunks.
            let offset = self.next.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
            if offset >= self.size {
                return Ok(suspects);
            }
            self.read_chunk(offset, CHUNK_BYTES.min(self.size - offset), &mut suspects)?;
        }
    }

    fn read_chunk(&self, offset: u64, len: u64, suspects: &mut Vec<u64>) -> Result<()> {
        let (mut page, end) = (offset / PAGE_BYTES as u64, (offset + len) / PAGE_BYTES as u64);
        while page < end {
            let is_zero = self.sums.get(page) == 0;
            let run = (page..end.min(page + READ_PAGES))
                .take_while(|&p| (self.sums.get(p) == 0) == is_zero)
                .count() as u64;
            if is_zero {
                self.read_zeros(page..page + run, suspects)?;
            } else {
                // SAFETY: inside the reservation (the image is no longer than it); each chunk is one worker's.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(self.place(page), run as usize * PAGE_BYTES) };
                self.read_pages(page, bytes)?;
                for (number, content) in (page..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                    if page_sum(content) != self.sums.get(number) {
                        suspects.push(number);
                    }
                }
            }
            page += run;
        }
        Ok(())
    }

    /// Pages whose sum says zero stay untouched memory, not committed; those that the file has bytes for are
    /// looked at, since the sum may be what was damaged.
    fn read_zeros(&self, pages: std::ops::Range<u64>, suspects: &mut Vec<u64>) -> Result<()> {
        let io = |e| Error::from_io(self.files.image_path.clone(), "read", &e);
        let Some(data) = self.files.image.next_data(pages.start * PAGE_BYTES as u64).map_err(io)? else {
            return Ok(());
        };
        let first = data / PAGE_BYTES as u64;
        if first >= pages.end {
            return Ok(());
        }
        let mut bytes = vec![0; (pages.end - first) as usize * PAGE_BYTES];
        self.read_pages(first, &mut bytes)?;
        for (number, content) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            if page_sum(content) != 0 {
                // SAFETY: as in `read_chunk`.
                unsafe { std::slice::from_raw_parts_mut(self.place(number), PAGE_BYTES) }
                    .copy_from_slice(content);
                suspects.push(number);
            }
        }
        Ok(())
    }

    fn place(&self, page: u64) -> *mut u8 {
        self.memory.base().as_ptr().wrapping_add(page as usize * PAGE_BYTES)
    }

    /// Reads pages from `first` on; beyond the end of the file they are zero.
    fn read_pages(&self, first: u64, bytes: &mut [u8]) -> Result<()> {
        let n = self
            .files
            .image
            .read_at(first * PAGE_BYTES as u64, bytes)
            .map_err(|e| Error::from_io(self.files.image_path.clone(), "read", &e))?;
        bytes[n..].fill(0);
        Ok(())
    }
}

/// The log, and the files of its long units.
struct LogParts<'a> {
    storage: &'a dyn Storage,
    folder: &'a Path,
    seed: u32,
    ring: &'a Mirror,
    asides: &'a [(Lsn, Reference)],
    /// So many of them stay open.
    keep_open: usize,
    applied: Vec<Waiting>,
}

impl LogParts<'_> {
    /// Applies the records of `from..to`; returns how many.
    fn apply(&mut self, memory: &Reservation, mut from: Lsn, to: Lsn) -> Result<u64> {
        let mut count = 0;
        let part = from..to;
        for &(at, reference) in self.asides.iter().filter(|(at, _)| part.contains(at)) {
            count += apply(self.ring, memory, from, at);
            let mut reader = Reader::open(self.storage, self.folder, reference, self.seed)?;
            let mut chunk = Vec::new();
            while reader.next(&mut chunk)? {
                count += apply_bytes(&chunk, memory, 0, 1).ok_or_else(|| Error::Corrupt {
                    path: reference.path(self.folder),
                    offset: 0,
                    what: "a group with a right checksum holds no records".into(),
                })?;
            }
            let file = (self.applied.len() < self.keep_open).then(|| reader.into_file());
            self.applied.push(Waiting { number: reference.number, file });
            from = at + group_total(REFERENCE_BYTES);
        }
        Ok(count + apply(self.ring, memory, from, to))
    }
}

/// Applies the records of the groups in `from..to`; returns how many.
///
/// Several threads each read the whole log and apply what falls into their stripes of the region: the
/// time goes into cache misses of the copies, and each byte has one thread, which keeps its order.
fn apply(ring: &Mirror, memory: &Reservation, from: Lsn, to: Lsn) -> u64 {
    let threads = if to - from < PARALLEL_LOG_BYTES {
        1
    } else {
        std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64
    };
    if threads == 1 {
        return apply_stripes(ring, memory, from..to, 0, 1);
    }
    std::thread::scope(|scope| {
        let spawn = |stripe| {
            let work = move || apply_stripes(ring, memory, from..to, stripe, threads);
            (stripe, std::thread::Builder::new().spawn_scoped(scope, work))
        };
        let helpers: Vec<_> = without_signals(|| (1..threads).map(spawn).collect());
        let count = apply_stripes(ring, memory, from..to, 0, threads);
        for (stripe, helper) in helpers {
            match helper {
                Ok(helper) => {
                    helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
                Err(_) => {
                    apply_stripes(ring, memory, from..to, stripe, threads);
                }
            }
        }
        count
    })
}

/// Applies what falls into every `stripes`-th stripe from `stripe` on; returns the records read.
fn apply_stripes(
    ring: &Mirror,
    memory: &Reservation,
    range: std::ops::Range<Lsn>,
    stripe: u64,
    stripes: u64,
) -> u64 {
    let physical = (range.start % ring.len() as u64) as usize;
    let len = (range.end - range.start) as usize;
    // SAFETY: the ring is mapped twice in a row, the groups are at most its length in total, and
    // nobody writes it.
    let bytes = unsafe { std::slice::from_raw_parts(ring.base().as_ptr().add(physical), len) };
    apply_bytes(bytes, memory, stripe, stripes).expect("the scan read these groups")
}

/// As `apply_stripes`, for verified groups; `None` when they hold no records.
fn apply_bytes(bytes: &[u8], memory: &Reservation, stripe: u64, stripes: u64) -> Option<u64> {
    let mut at = 0;
    let mut count = 0;
    while at < bytes.len() {
        let header = GroupHeader::decode(&bytes[at..])?;
        let payload =
            bytes.get(at + GROUP_HEADER_BYTES..at + GROUP_HEADER_BYTES + header.payload as usize)?;
        let mut records = Records::new(payload, memory.len() as u64);
        for record in records.by_ref() {
            count += 1;
            let (mut offset, mut rest) = (record.offset, record.bytes);
            while !rest.is_empty() {
                let in_stripe = (STRIPE_BYTES - offset % STRIPE_BYTES).min(rest.len() as u64);
                let (piece, behind) = rest.split_at(in_stripe as usize);
                if offset / STRIPE_BYTES % stripes == stripe {
                    // SAFETY: `Records` yields only ranges inside the reservation, which is ours alone,
                    // and every byte of it is one thread's.
                    unsafe {
                        let place = memory.base().as_ptr().add(offset as usize);
                        std::ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len());
                    }
                }
                (offset, rest) = (offset + in_stripe, behind);
            }
        }
        if records.damaged() {
            return None;
        }
        at += header.total() as usize;
    }
    Some(count)
}

/// Pages whose sum did not fit must fit now that the interrupted checkpoint's records are applied.
fn verify_suspects(suspects: &[u64], memory: &Reservation, sums: &Sums, files: &ImageFiles) -> Result<()> {
    for &page in suspects {
        // SAFETY: inside the reservation; nobody writes it now.
        let bytes = unsafe {
            std::slice::from_raw_parts(memory.base().as_ptr().add(page as usize * PAGE_BYTES), PAGE_BYTES)
        };
        if page_sum(bytes) != sums.get(page) {
            return Err(Error::Corrupt {
                path: files.image_path.clone(),
                offset: page * PAGE_BYTES as u64,
                what: "the page does not match its checksum".into(),
            });
        }
    }
    Ok(())
}

/// The image may have lost space that `grow` gave it (a length is durable only at a checkpoint), and so may the file
/// of sums alone: the next checkpoint will say that both are as long as what may be used.
fn make_room(files: &ImageFiles, image_size: u64, needed: u64, read_only: bool) -> Result<u64> {
    let needed = needed.next_multiple_of(PAGE_BYTES as u64);
    let mut usable = image_size.max(needed);
    if read_only {
        return Ok(usable);
    }
    if needed > image_size {
        files.allocate(image_size, needed).map_err(|(path, e)| no_room(path, &e, needed - image_size))?;
    }
    let sums = files.sums.size().map_err(|e| Error::from_io(files.sums_path.clone(), "read", &e))?;
    let give = |to: u64| {
        let wanted = Sums::file_bytes(to / PAGE_BYTES as u64);
        if sums < wanted { files.sums.allocate(sums, wanted - sums, here()) } else { Ok(()) }
    };
    let mut room = give(usable);
    if usable > needed && room.as_ref().is_err_and(is_no_space) {
        // The end of the image is what a growth left that failed on a full medium: nobody has written there.
        usable = needed;
        room = give(usable);
    }
    let wanted = Sums::file_bytes(usable / PAGE_BYTES as u64);
    room.map_err(|e| no_room(files.sums_path.clone(), &e, wanted - sums))?;
    Ok(usable)
}

fn no_room(path: PathBuf, error: &std::io::Error, wanted: u64) -> Error {
    if is_no_space(error) {
        Error::no_space(path, wanted, error)
    } else {
        Error::from_io(path, "allocate space in", error)
    }
}

impl Recovered {
    /// What is left to do before anybody may know that the pool, opened for writing, is open.
    pub(crate) fn unfinished(
        &self,
        storage: &dyn Storage,
        folder: &Path,
        sb: &Superblock,
    ) -> Result<Unfinished> {
        Unfinished::new(storage, folder, sb, &self.scan)
    }

    /// The same for a pool opened read-only, done.
    ///
    /// # Errors
    /// `Corrupt` when the log has a hole; `Io`.
    pub(crate) fn finish_for_reader(&self, folder: &Path, sb: &Superblock) -> Result<()> {
        if sb.clean {
            return Ok(());
        }
        let path = folder.join("log");
        refuse_hole(&*self.log_file, &path, sb, &self.scan)?;
        // Durable-order: rule 2 of `finish.rs`, as far as one can go who does not write.
        self.log_file.sync(here()).map_err(|e| Error::from_io(path, "sync", &e))
    }

    /// What the medium is made of.
    pub(crate) fn into_parts(
        self,
        storage: Arc<dyn Storage>,
        folder: &Path,
        superblock: SuperblockFile,
    ) -> FileParts {
        let sb = superblock.current();
        let interrupted = (sb.target > sb.tail).then_some((sb.target, self.scan.target_nonce));
        let (tail, seed) = (sb.tail, sb.seed());
        let nonce = storage.random();
        let files = Arc::new(self.files);
        let checkpointer = Checkpointer {
            files: Arc::clone(&files),
            storage: Arc::clone(&storage),
            sums: self.sums,
            interrupted,
            finished: 0,
            bytes_written: 0,
            syncs: 0,
        };
        FileParts {
            memory: self.memory,
            log: Log::new(self.ring, self.log_file, tail, self.scan.end, seed, nonce, self.asides),
            superblock,
            superblock_path: folder.join("pool"),
            files,
            storage,
            checkpointer,
            grown: self.grown,
            unverified: self.unverified,
        }
    }
}
