//! Opening a pool whose region is mapped: dax and emulated.

use crate::config::Medium;
use crate::damage_check::DamageCheck;
use crate::format::page_sums::{PAGE_BYTES, PageChecksums, page_checksum};
use crate::format::superblock::Superblock;
use crate::limits::reserve;
use crate::mapped::dax::{lock_device, no_fd};
use crate::mapped::emulated::model;
use crate::mapped::medium::{MappedFiles, MappedRegion};
use crate::options::{PoolOptions, Start, Unread};
use crate::pool_files::{DataFiles, LockedPool, SuperblockFile};
use crate::read_only::ReadOnlyRegion;
use crate::stat::{MediumKind, OpenReport};
use crate::storage::traits::{Device, LockKind, here};
use crate::{Error, Result};
use mangrove_sys::{MapKind, Reservation, copy_nonzero_pages, fan_out, fence, flush_range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that one thread verifies at a time.
const CHUNK_PAGES: u64 = 512;

/// The medium of an opened pool.
pub(crate) enum OpenMapped {
    ReadWrite(Arc<MappedRegion>),
    ReadOnly(Arc<ReadOnlyRegion>),
}

/// Opens a mapped pool of these files; `superblock_file` is locked.
pub(crate) fn open_mapped(
    options: &PoolOptions,
    sb: Superblock,
    superblock_file: LockedPool,
    files: DataFiles,
) -> Result<(OpenMapped, OpenReport)> {
    let begun = std::time::Instant::now();
    if sb.devdax.is_some() {
        let kind = if options.config.read_only { LockKind::Shared } else { LockKind::Exclusive };
        lock_device(&files.image, kind)?;
    }
    let size = usable_bytes(&files, &sb, options)?;
    if sb.medium == MediumKind::Dax && !sb.clean {
        write_caches_back(&files, &sb, options)?;
    }
    let memory = match &sb.devdax {
        Some(device) => map_device(&files, &sb, options.storage.device(device), options.config.read_only)?,
        None => map(&files, &sb, size, options.config.read_only)?,
    };
    let sums = files.read_sums(&sb, memory.len() as u64)?;
    files.refuse_sums_beyond(&sb, size, &sums)?;
    if sb.clean && options.start == Start::Read {
        verify_closed(&memory, &sums, size, &files, options)?;
    }
    sums.are_of(&sb, size, files.sums.path())?;
    let report = OpenReport {
        created: false,
        was_clean: sb.clean,
        image_bytes: size,
        groups: 0,
        records: 0,
        nanoseconds: begun.elapsed().as_nanos() as u64,
    };
    if options.config.read_only {
        // The lock must live as long as the region.
        let medium = ReadOnlyRegion::new(memory, sb.medium, size, size);
        medium.keep(superblock_file);
        medium.keep(files.image);
        return Ok((OpenMapped::ReadOnly(medium), report));
    }
    let latency = match options.config.medium {
        Medium::Emulated(latency) => model(latency)?,
        _ => None,
    };
    let (kind, is_device) = (sb.medium, sb.devdax.is_some());
    let mut superblock = SuperblockFile::new(superblock_file, sb);
    superblock.save()?;
    let mapped_files = MappedFiles { is_device, data: files, sums, superblock };
    let medium = MappedRegion::open(memory, kind, options.domain_resolved()?, latency, mapped_files, size)?;
    Ok((OpenMapped::ReadWrite(medium), report))
}

/// Bytes of the region that exist.
fn usable_bytes(files: &DataFiles, sb: &Superblock, options: &PoolOptions) -> Result<u64> {
    if let Some(device) = &sb.devdax {
        let size = options.storage.device(device).map_or(0, |device| device.bytes);
        if size < sb.capacity {
            let what = format!("the device has {size} bytes, the pool {}", sb.capacity);
            return Err(files.image.corrupt(size, what));
        }
        return Ok(sb.capacity);
    }
    files.image_size(sb)
}

/// Makes durable what a process that died had stored but not yet flushed. The CPU's caches still show it, to
/// readers too, so it may be answered now, and a power cut would lose it afterwards.
fn write_caches_back(files: &DataFiles, sb: &Superblock, options: &PoolOptions) -> Result<()> {
    if sb.devdax.is_none() {
        // The kernel records the pages that were written through mappings, and writes their lines back.
        return files.image.sync(here());
    }
    // For a device the kernel has no such record.
    let fd = files.image.fd().ok_or_else(|| no_fd(files.image.path()))?;
    let all = Reservation::file(fd, sb.capacity as usize, MapKind::SharedRead)
        .map_err(|e| files.image.error("map", &e))?;
    // SAFETY: the device's pages are mapped for all of its length, which was compared with the capacity.
    unsafe { flush_range(options.domain_resolved()?.instruction, all.base().as_ptr(), all.len()) };
    fence();
    Ok(())
}

fn map(files: &DataFiles, sb: &Superblock, size: u64, read_only: bool) -> Result<Reservation> {
    let path = files.image.path();
    let fd = files.image.fd().ok_or_else(|| no_fd(path))?;
    let unsupported = |e: std::io::Error| Error::Unsupported {
        what: match sb.medium {
            MediumKind::Dax if !read_only => {
                format!(
                    "{} cannot be mapped with MAP_SYNC ({e}): is its file system mounted with dax?",
                    path.display()
                )
            }
            _ => format!("{} cannot be mapped: {e}", path.display()),
        },
    };
    let kind = match sb.medium {
        _ if read_only => MapKind::Private,
        MediumKind::Dax => MapKind::SharedSync,
        _ => MapKind::Shared,
    };
    if let Err(e) = Reservation::file(fd, PAGE_BYTES, kind) {
        return Err(unsupported(e));
    }
    reserve(path, sb.capacity, size, |len| Reservation::file(fd, len, kind))
}

/// As `map`, for a pool on a device. It is mapped as a whole: a device takes no mapping of a page, and none beyond its
/// end.
fn map_device(
    files: &DataFiles,
    sb: &Superblock,
    device: Option<Device>,
    read_only: bool,
) -> Result<Reservation> {
    let path = files.image.path();
    let fd = files.image.fd().ok_or_else(|| no_fd(path))?;
    let unsupported =
        |e: std::io::Error| Error::Unsupported { what: format!("{} cannot be mapped: {e}", path.display()) };
    let len = sb.capacity as usize;
    if !read_only {
        let is_file = device.is_some_and(|device| device.is_file);
        let kind = if is_file { MapKind::Shared } else { MapKind::SharedSync };
        return Reservation::file(fd, len, kind).map_err(unsupported);
    }
    // A device allows shared mappings only: the region is a copy instead, which takes no memory for zeros.
    let source = Reservation::file(fd, len, MapKind::SharedRead).map_err(unsupported)?;
    let copy = Reservation::anonymous(len).map_err(unsupported)?;
    // SAFETY: both have `len` bytes; the device's are mapped, and those of the copy are zero.
    unsafe { copy_nonzero_pages(source.base().as_ptr(), copy.base().as_ptr(), len) };
    Ok(copy)
}

/// Compares every page of a closed pool with its checksum, except those that its owner does not read.
fn verify_closed(
    memory: &Reservation,
    sums: &PageChecksums,
    size: u64,
    files: &DataFiles,
    options: &PoolOptions,
) -> Result<()> {
    let page = PAGE_BYTES as u64;
    let Some(Unread { header_bytes, part }) = options.unread else {
        return verify(memory, sums, 0..size / page, files);
    };
    let header = size.min(header_bytes.next_multiple_of(page)) / page * page;
    verify(memory, sums, 0..header / page, files)?;
    // SAFETY: inside the part of the mapping that the file covers; no thread writes it.
    let bytes = unsafe { std::slice::from_raw_parts(memory.base().as_ptr(), header as usize) };
    let unread = part(bytes);
    let [from, to] = [unread.offset.next_multiple_of(page), unread.offset.saturating_add(unread.len)]
        .map(|at| (at / page).clamp(header / page, size / page));
    verify(memory, sums, header / page..from, files)?;
    verify(memory, sums, to.max(from)..size / page, files)
}

/// Compares these pages with their checksums.
fn verify(
    memory: &Reservation,
    sums: &PageChecksums,
    pages: std::ops::Range<u64>,
    files: &DataFiles,
) -> Result<()> {
    let next = AtomicU64::new(pages.start);
    let work = || -> Option<u64> {
        loop {
            // Relaxed: only gives each part to one thread.
            let first = next.fetch_add(CHUNK_PAGES, Ordering::Relaxed);
            if first >= pages.end {
                return None;
            }
            let end = (first + CHUNK_PAGES).min(pages.end);
            let bad = (first..end).find(|&page| {
                // SAFETY: inside the part of the mapping that the file covers; no thread writes it.
                let bytes = unsafe {
                    let ptr = memory.base().as_ptr().add(page as usize * PAGE_BYTES);
                    std::slice::from_raw_parts(ptr, PAGE_BYTES)
                };
                page_checksum(bytes) != sums.get(page) && DamageCheck::PageChecksum.is_on()
            });
            if bad.is_some() {
                return bad;
            }
        }
    };
    let is_short = pages.end - pages.start < 2 * CHUNK_PAGES;
    let threads = if is_short { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
    match fan_out(threads.min(16), |_| work()).into_iter().flatten().min() {
        None => Ok(()),
        Some(page) => Err(files.damaged_page(page)),
    }
}
