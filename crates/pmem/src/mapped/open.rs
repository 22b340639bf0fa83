//! Opening a pool whose region is mapped: dax and emulated.

use crate::checkpoint::ImageFiles;
use crate::emulated::model;
use crate::mapped::{Mapped, MappedFiles};
use crate::options::{MediumChoice, PoolOptions, Start};
use crate::read_only::ReadOnly;
use crate::recover::{open_part, read_sums, reserve};
use crate::stat::{MediumKind, OpenReport};
use crate::storage::{LockKind, OpenHow, Storage, StorageFile, here};
use crate::sums::{PAGE_BYTES, Sums, page_sum};
use crate::superblock::{Superblock, SuperblockFile};
use crate::{Error, Result};
use mangrove_sys::{MapKind, Reservation, fence, flush_range, without_signals};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that one worker verifies at a time.
const CHUNK_PAGES: u64 = 512;

/// What opening yields.
pub(crate) enum OpenMapped {
    ReadWrite(Arc<Mapped>),
    ReadOnly(Arc<ReadOnly>),
}

/// Opens a mapped pool; `superblock_file` is locked.
pub(crate) fn open_mapped(
    options: &PoolOptions,
    folder: &Path,
    sb: Superblock,
    superblock_file: Box<dyn StorageFile>,
) -> Result<(OpenMapped, OpenReport)> {
    let begun = std::time::Instant::now();
    let storage = &*options.storage;
    let image_path = sb.devdax.clone().unwrap_or_else(|| folder.join("image"));
    let sums_path = folder.join("sums");
    let files = ImageFiles {
        image: open_part(storage, &image_path, options.read_only)?,
        image_path,
        sums: open_part(storage, &sums_path, options.read_only)?,
        sums_path,
    };
    if sb.devdax.is_some() {
        let kind = if options.read_only { LockKind::Shared } else { LockKind::Exclusive };
        lock_device(&*files.image, &files.image_path, kind)?;
    }
    let size = usable_bytes(&files, &sb)?;
    if sb.medium == MediumKind::Dax && !sb.clean {
        write_caches_back(&files, &sb, options)?;
    }
    let memory = map(&files, &sb, size, options.read_only)?;
    let sums = read_sums(&files, &sb, size, memory.len() as u64)?;
    if sb.clean && options.start == Start::Read {
        verify(&memory, &sums, size, &files.image_path)?;
    }
    sums.are_of(&sb, size, &files.sums_path)?;
    let report = OpenReport {
        created: false,
        was_clean: sb.clean,
        image_bytes: size,
        groups: 0,
        records: 0,
        nanoseconds: begun.elapsed().as_nanos() as u64,
    };
    if options.read_only {
        // The lock must live as long as the region.
        let medium = ReadOnly::new(memory, sb.medium, size);
        medium.keep(superblock_file);
        medium.keep(files.image);
        return Ok((OpenMapped::ReadOnly(medium), report));
    }
    let latency = match options.medium {
        MediumChoice::Emulated(latency) => model(latency)?,
        _ => None,
    };
    let kind = sb.medium;
    let (image, device) =
        if sb.devdax.is_none() { (Some(files.image), None) } else { (None, Some(files.image)) };
    let mapped_files = MappedFiles {
        image,
        _device: device,
        image_path: files.image_path,
        sums_file: files.sums,
        sums_path: files.sums_path,
        sums,
        superblock: SuperblockFile::new(superblock_file, sb),
        superblock_path: folder.join("pool"),
    };
    let medium = Mapped::open(memory, kind, options.domain_resolved()?, latency, mapped_files, size)?;
    Ok((OpenMapped::ReadWrite(medium), report))
}

/// Bytes of the region that are there.
fn usable_bytes(files: &ImageFiles, sb: &Superblock) -> Result<u64> {
    let corrupt = |offset, what| Err(Error::Corrupt { path: files.image_path.clone(), offset, what });
    if sb.devdax.is_some() {
        let size = mangrove_sys::file::devdax_bytes(&files.image_path).unwrap_or(0);
        if size < sb.capacity {
            return corrupt(size, format!("the device has {size} bytes, the pool {}", sb.capacity));
        }
        return Ok(sb.capacity);
    }
    let size = files.image.size().map_err(|e| Error::from_io(files.image_path.clone(), "read", &e))?;
    if size < sb.image_bytes {
        return corrupt(size, format!("the image ends here, but had {} bytes", sb.image_bytes));
    }
    if size > sb.capacity {
        return corrupt(
            sb.capacity,
            format!("the image has {size} bytes, but the capacity is {}", sb.capacity),
        );
    }
    Ok(size - size % PAGE_BYTES as u64)
}

/// Makes durable what a process that died had stored and not yet flushed: the CPU's caches still show it, to readers
/// too, and a power cut would take it back after it was answered.
fn write_caches_back(files: &ImageFiles, sb: &Superblock, options: &PoolOptions) -> Result<()> {
    if sb.devdax.is_none() {
        // The kernel knows the pages that were written through mappings, and writes their lines back.
        let synced = files.image.sync(here());
        return synced.map_err(|e| Error::from_io(files.image_path.clone(), "sync", &e));
    }
    // A device has no such list.
    let fd = files.image.fd().ok_or_else(|| no_fd(&files.image_path))?;
    let all = Reservation::file(fd, sb.capacity as usize, MapKind::Shared)
        .map_err(|e| Error::from_io(files.image_path.clone(), "map", &e))?;
    // SAFETY: the device's pages are mapped for all of its length, which was compared with the capacity.
    unsafe { flush_range(options.domain_resolved()?.instruction, all.base().as_ptr(), all.len()) };
    fence();
    Ok(())
}

fn no_fd(path: &Path) -> Error {
    Error::Unsupported {
        what: format!("{} cannot be mapped: its storage has no files to map", path.display()),
    }
}

fn map(files: &ImageFiles, sb: &Superblock, size: u64, read_only: bool) -> Result<Reservation> {
    let path = &files.image_path;
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
    let len = sb.capacity as usize;
    if read_only && sb.devdax.is_some() {
        // A device takes shared mappings only: a private copy instead.
        let source = Reservation::file(fd, len, MapKind::Shared).map_err(unsupported)?;
        let copy = Reservation::anonymous(len).map_err(unsupported)?;
        // SAFETY: both have `len` bytes; the device's pages are mapped.
        unsafe { std::ptr::copy_nonoverlapping(source.base().as_ptr(), copy.base().as_ptr(), size as usize) };
        return Ok(copy);
    }
    let kind = match sb.medium {
        _ if read_only => MapKind::Private,
        MediumKind::Dax => MapKind::SharedSync,
        _ => MapKind::Shared,
    };
    if let Err(e) = Reservation::file(fd, PAGE_BYTES, kind) {
        return Err(unsupported(e));
    }
    reserve(sb.capacity, size, |len| Reservation::file(fd, len, kind))
}

/// Compares every page of a closed pool with its sum.
fn verify(memory: &Reservation, sums: &Sums, size: u64, path: &Path) -> Result<()> {
    let pages = size / PAGE_BYTES as u64;
    let next = AtomicU64::new(0);
    let work = || -> Option<u64> {
        loop {
            // Relaxed: only hands out chunks.
            let first = next.fetch_add(CHUNK_PAGES, Ordering::Relaxed);
            if first >= pages {
                return None;
            }
            let end = (first + CHUNK_PAGES).min(pages);
            let bad = (first..end).find(|&page| {
                // SAFETY: inside the part of the mapping that the file covers; nobody writes it.
                let bytes = unsafe {
                    let ptr = memory.base().as_ptr().add(page as usize * PAGE_BYTES);
                    std::slice::from_raw_parts(ptr, PAGE_BYTES)
                };
                page_sum(bytes) != sums.get(page)
            });
            if bad.is_some() {
                return bad;
            }
        }
    };
    let threads =
        if pages < 2 * CHUNK_PAGES { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
    let bad = std::thread::scope(|scope| {
        let help = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = without_signals(|| (1..threads.min(16)).filter_map(help).collect());
        let mine = work();
        let theirs =
            helpers.into_iter().filter_map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        theirs.chain(mine).min()
    });
    match bad {
        None => Ok(()),
        Some(page) => Err(Error::Corrupt {
            path: path.to_owned(),
            offset: page * PAGE_BYTES as u64,
            what: "the page does not match its checksum".into(),
        }),
    }
}

/// True when files in `folder` can be mapped with MAP_SYNC. Leaves nothing behind.
pub(crate) fn supports_map_sync(storage: &dyn Storage, folder: &Path) -> bool {
    let path = folder.join("image");
    let Ok(file) = storage.open(&path, OpenHow::Create, here()) else { return false };
    let Some(fd) = file.fd() else { return false };
    // Mapping beyond the end of the file is allowed; nothing is touched.
    Reservation::file(fd, PAGE_BYTES, MapKind::SharedSync).is_ok()
}

/// True when the nearest existing folder above `path` lies on a file system mounted with dax.
pub(crate) fn is_on_dax_mount(path: &Path) -> bool {
    let above = path.ancestors().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let Some(folder) = above.filter_map(|p| std::fs::canonicalize(p).ok()).next() else { return false };
    mangrove_sys::dax_mounts().iter().any(|mount| folder.starts_with(mount))
}

/// Locks a device among processes, and among pools: the lock of a pool says nothing about what else lies on its device.
fn lock_device(file: &dyn StorageFile, device: &Path, kind: LockKind) -> Result<()> {
    match file.lock(kind) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Busy { path: device.to_owned() }),
        Err(e) => Err(Error::from_io(device.to_owned(), "lock", &e)),
    }
}

/// Zeroes a new devdax device; its bytes.
pub(crate) fn zero_device(
    storage: &dyn Storage,
    device: &Path,
    instruction: mangrove_sys::FlushInstruction,
) -> Result<u64> {
    let unsupported = |what: String| Error::Unsupported { what };
    let Some(bytes) = mangrove_sys::file::devdax_bytes(device) else {
        return Err(unsupported(format!("{} is not a devdax device", device.display())));
    };
    let file = storage
        .open(device, OpenHow::Write, here())
        .map_err(|e| Error::from_io(device.to_owned(), "open", &e))?;
    zero_blank(&*file, device, bytes as usize, instruction)?;
    Ok(bytes)
}

/// Zeroes `len` bytes of a device of which the first page is blank. Every pool's region begins with bytes that are
/// not zero: another pool's device, named by mistake, is left as it is.
fn zero_blank(
    file: &dyn StorageFile,
    device: &Path,
    len: usize,
    instruction: mangrove_sys::FlushInstruction,
) -> Result<()> {
    lock_device(file, device, LockKind::Exclusive)?;
    let name = device.display();
    let fd = file.fd().ok_or_else(|| no_fd(device))?;
    let memory = Reservation::file(fd, len, MapKind::Shared)
        .map_err(|e| Error::Unsupported { what: format!("{name} cannot be mapped: {e}") })?;
    let base = memory.base().as_ptr();
    // SAFETY: the whole device is mapped, and no other pool has it (its lock is held).
    let first = unsafe { std::slice::from_raw_parts(base, PAGE_BYTES.min(len)) };
    if first.iter().any(|&byte| byte != 0) {
        return Err(Error::Unsupported {
            what: format!(
                "{name} is not blank, and may hold another pool; if nothing on it is wanted, clear it (daxio --zero -o {name})"
            ),
        });
    }
    // SAFETY: as above.
    unsafe {
        std::ptr::write_bytes(base, 0, len);
        mangrove_sys::flush_range(instruction, base, len);
    }
    mangrove_sys::fence();
    Ok(())
}

/// Where a new dax pool's region shall lie.
pub(crate) fn devdax_of(options: &PoolOptions) -> Option<PathBuf> {
    options.devdax.clone().map(|device| std::fs::canonicalize(&device).unwrap_or(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsStorage;

    /// On a file instead of a device.
    #[test]
    fn a_device_that_is_locked_or_not_blank_is_not_zeroed() {
        const LEN: usize = 64 << 10;
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("dax0.0");
        let instruction = PoolOptions::new().domain_resolved().unwrap().instruction;
        let open = || OsStorage.open(&device, OpenHow::Write, here()).unwrap();
        let mut bytes = vec![0; LEN];
        bytes[4096..].fill(7);
        std::fs::write(&device, &bytes).unwrap();
        let other = open();
        lock_device(&*other, &device, LockKind::Shared).unwrap();
        lock_device(&*open(), &device, LockKind::Shared).unwrap();
        let error = zero_blank(&*open(), &device, LEN, instruction).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        drop(other);
        bytes[64] = 1;
        std::fs::write(&device, &bytes).unwrap();
        let text = zero_blank(&*open(), &device, LEN, instruction).unwrap_err().to_string();
        assert!(text.contains("not blank") && text.contains(device.to_str().unwrap()), "{text}");
        assert!(std::fs::read(&device).unwrap() == bytes);
        bytes[64] = 0;
        std::fs::write(&device, &bytes).unwrap();
        zero_blank(&*open(), &device, LEN, instruction).unwrap();
        assert!(std::fs::read(&device).unwrap() == [0; LEN]);
    }
}
