//! Creating a pool.
//!
//! Durable-order: the names, the log and the empty data file before the superblock; the superblock last. Otherwise
//! a valid superblock could name a log whose bytes are not there. A process that is killed, or a machine that is
//! cut off, in between leaves a blank superblock file and an empty data file: that is no pool, and the next
//! creation recognises it and starts again.

use crate::config::Medium;
use crate::format::page_sums::PageChecksums;
use crate::format::superblock;
use crate::format::superblock::{COPY_BYTES, DEVDAX_BYTES_MAX, FILE_BYTES, Superblock, VERSION};
use crate::limits::LOG_BYTES_FIRST;
use crate::mapped::dax::{supports_map_sync, zero_device};
use crate::neighbours;
use crate::options::{AddressChoice, PoolOptions};
use crate::pool_files::{FileError, PoolFile, kind_of};
use crate::stat::MediumKind;
use crate::storage::traits::{OpenHow, PathKind, SECTOR_BYTES, Storage, StorageFile, here};
use crate::{Error, Result, Site};
use mangrove_sys::Reservation;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where regions with an address of their own lie: above the shadow memory of the address sanitizer, below the
/// place where Linux on x86-64 puts position-independent programs.
const ADDRESS_START: u64 = 0x1200_0000_0000;
const ADDRESS_END: u64 = 0x5000_0000_0000;
const ADDRESS_ALIGN_BYTES: u64 = 1 << 30;
const ADDRESS_TRIES_MAX: usize = 256;
/// A probe reserves only so much, because a process may not be allowed to reserve a whole capacity; see `reserve`.
const ADDRESS_PROBE_BYTES: u64 = 1 << 20;

/// Bytes of zeros written at a time.
const ZERO_BYTES: usize = 1 << 20;

/// Names that a pool uses, besides `pool`.
pub(crate) const PARTS: [&str; 3] = ["image", "log", "sums"];

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |e| FileError::new(path, e).doing_with_space(doing, 0)
}

/// Creates the directory, if it is not there, and makes its name durable.
pub(crate) fn make_directory(storage: &dyn Storage, directory: &Path) -> Result<()> {
    storage.create_dir(directory, here()).map_err(io_error(directory, "create"))?;
    sync_name(storage, directory, |_| false).inspect_err(|_| drop(storage.remove_dir(directory, here())))
}

/// Makes the name of a directory durable that is there, perhaps with a pool: the process that made it may have been
/// killed before it synced the name. A parent that this process may not sync is no error: the directory is its user's
/// then.
pub(crate) fn keep_directory(storage: &dyn Storage, directory: &Path) -> Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    let may_not = |e: &io::Error| {
        matches!(e.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
    };
    sync_name(storage, directory, may_not)
}

/// Makes the name of a directory durable, unless that fails with an error that `passes`.
fn sync_name(storage: &dyn Storage, directory: &Path, passes: impl Fn(&io::Error) -> bool) -> Result<()> {
    let Some(parent) = directory.parent() else { return Ok(()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match storage.sync_dir(parent, here()) {
        Err(e) if !passes(&e) => Err(io_error(parent, "sync")(e)),
        _ => Ok(()),
    }
}

/// True when the bytes of the file `pool` are those of a pool whose creation was interrupted: nothing, or sectors
/// of a first superblock, some of them not written. Before anything is stored both copies are changed, so a copy that
/// was changed is damaged.
fn is_half_made(bytes: &[u8]) -> bool {
    let blank = |b: &[u8]| b.iter().all(|&x| x == 0);
    bytes.len() <= FILE_BYTES
        && (0..).zip(bytes.chunks(COPY_BYTES)).all(|(place, copy)| {
            let head = &copy[..copy.len().min(512)];
            let middle = copy.get(1536..copy.len().min(COPY_BYTES - 4)).unwrap_or(&[]);
            (blank(head) || superblock::begins_unchanged(head, place)) && blank(middle)
        })
}

/// True when the directory holds the beginning of a pool in which nothing was ever durable; `bytes` are those of its
/// file `pool`, which hold no whole superblock.
pub(crate) fn is_unfinished(storage: &dyn Storage, directory: &Path, bytes: &[u8]) -> Result<bool> {
    Ok(superblock::is_loading(bytes) || (is_half_made(bytes) && has_nothing(storage, directory)?))
}

/// True when nothing was ever stored: a half-created pool has an empty data file, or none, and so for its page
/// checksums. (A pool on a devdax device never has the former. The latter it has once it was closed.) Its log, if it
/// has one, begins with zeros: a crash may keep the log's first group and lose the lengths of the other two.
fn has_nothing(storage: &dyn Storage, directory: &Path) -> Result<bool> {
    for name in ["image", "sums"] {
        let path = directory.join(name);
        let is_empty = match kind_of(storage, &path)? {
            PathKind::Missing => true,
            PathKind::Folder => false,
            PathKind::File => PoolFile::open(storage, path, OpenHow::Read, "open")?.size()? == 0,
        };
        if !is_empty {
            return Ok(false);
        }
    }
    let path = directory.join("log");
    if kind_of(storage, &path)? != PathKind::File {
        return Ok(true);
    }
    let mut first = [0; SECTOR_BYTES];
    PoolFile::open(storage, path, OpenHow::Read, "open")?.read_padded(0, &mut first)?;
    Ok(first.iter().all(|&byte| byte == 0))
}

/// Fills the locked, blank file `pool` and creates the pool's other files. The caller made sure that any file there
/// belongs to a half-created pool.
pub(crate) fn create(options: &PoolOptions, directory: &Path, pool_file: &PoolFile) -> Result<()> {
    let mut sb = make_parts(options, directory)?;
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    bytes.extend_from_slice(&sb.encode()[..]);
    sb.seq = 1;
    bytes.extend_from_slice(&sb.encode()[..]);
    write_first(pool_file, &bytes, here())
}

/// Writes and syncs the first bytes of the file `pool`.
fn write_first(pool_file: &PoolFile, bytes: &[u8], site: Site) -> Result<()> {
    let written = pool_file.raw().write_at(0, bytes, site).and_then(|()| pool_file.raw().sync(site));
    written.map_err(io_error(pool_file.path(), "write"))
}

/// As `create`, for a pool that is filled without a log: the file `pool` says so, and its superblock is returned. A
/// pool on another medium is created at once, and there is none to return.
///
/// Durable-order: the mark before any byte of the data file. Otherwise a crash would leave a data file that is not
/// empty without a superblock, which is damage.
pub(crate) fn create_for_load(
    options: &PoolOptions,
    directory: &Path,
    pool_file: &PoolFile,
) -> Result<Option<Superblock>> {
    if choose_medium(options, directory)? != MediumKind::File {
        return create(options, directory, pool_file).map(|()| None);
    }
    let sb = make_parts(options, directory)?;
    write_first(pool_file, &superblock::loading()[..], here())?;
    Ok(Some(sb))
}

/// Makes the pool's other files anew; they go when that fails.
fn make_parts(options: &PoolOptions, directory: &Path) -> Result<Superblock> {
    let storage = &*options.storage;
    for name in PARTS {
        let path = directory.join(name);
        storage.remove(&path, here()).map_err(io_error(&path, "remove"))?;
    }
    prepare(options, directory).inspect_err(|_| {
        // No superblock names these files yet; on a full file system their space is needed.
        for name in PARTS {
            let _ = storage.remove(&directory.join(name), here());
        }
    })
}

/// Creates the pool's other files, durably, and returns the superblock to write.
fn prepare(options: &PoolOptions, directory: &Path) -> Result<Superblock> {
    let storage = &*options.storage;
    let medium = choose_medium(options, directory)?;
    let devdax = if medium == MediumKind::Dax { devdax_of(options) } else { None };
    let mut capacity = options.capacity_bytes().next_multiple_of(4096);
    if let Some(device) = &devdax {
        if device.as_os_str().len() > DEVDAX_BYTES_MAX {
            return Err(Error::Unsupported { what: format!("the name {} is too long", device.display()) });
        }
        let zeroed = zero_device(storage, device, options.domain_resolved()?.instruction)?;
        // A device is mapped in multiples of its alignment only.
        let most = zeroed.bytes / zeroed.align_bytes * zeroed.align_bytes;
        capacity = capacity.next_multiple_of(zeroed.align_bytes).min(most);
    } else {
        let path = directory.join("image");
        storage.open(&path, OpenHow::Create, here()).map_err(io_error(&path, "create"))?;
    }
    let log_bytes_max = if medium == MediumKind::File { options.log_bytes_max() } else { 0 };
    let log_bytes =
        options.config.log_bytes_first.unwrap_or(LOG_BYTES_FIRST).next_multiple_of(4096).min(log_bytes_max);
    let path = directory.join("sums");
    storage.open(&path, OpenHow::Create, here()).map_err(io_error(&path, "create"))?;
    if medium == MediumKind::File {
        let path = directory.join("log");
        let log = storage.open(&path, OpenHow::Create, here()).map_err(io_error(&path, "create"))?;
        write_zeros(&*log, log_bytes).map_err(|e| match io_error(&path, "write")(e) {
            Error::NoSpace { path, .. } => Error::NoSpace { path, wanted: log_bytes },
            Error::FileLimit { path, .. } => Error::FileLimit { path, wanted: log_bytes },
            other => other,
        })?;
    }
    storage.sync_dir(directory, here()).map_err(io_error(directory, "sync"))?;
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&storage.random().to_le_bytes());
    uuid[8..].copy_from_slice(&storage.random().to_le_bytes());
    // Version 4, variant 1 of RFC 9562.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let address = match options.address {
        AddressChoice::Anywhere => 0,
        _ if medium != MediumKind::File => {
            return Err(Error::Unsupported {
                what: format!("the region of a pool on the medium {medium} has no address of its own"),
            });
        }
        AddressChoice::At(address) => address,
        AddressChoice::Chosen => {
            choose_address_beside(capacity, storage.random(), &neighbours::addresses(directory))?
        }
    };
    let mut sb = Superblock {
        version: VERSION,
        seq: 0,
        uuid,
        medium,
        clean: true,
        kind: options.kind.clone(),
        capacity,
        image_bytes: 0,
        log_bytes,
        shift: 0,
        log_bytes_max,
        tail: 0,
        target: 0,
        nonce: 0,
        devdax,
        address,
        sums_digest: 0,
        group: None,
        made: false,
        alone: false,
        unsaved: None,
    };
    // So that this superblock is not taken for that of a pool which has been written since.
    sb.sums_digest = PageChecksums::digest_of_none(sb.seed());
    Ok(sb)
}

/// An address for a region of `capacity` bytes. It divides the middle of the address space into places and returns
/// the first free one, beginning at a random one, so that pools of one process rarely meet. Programs, heaps, stacks
/// and the shadow memory of sanitizers lie below and above.
///
/// # Errors
/// `Unsupported` when none of those tried is free.
pub fn choose_address(capacity: u64, random: u64) -> Result<u64> {
    choose_address_beside(capacity, random, &[])
}

/// As [`choose_address`], where no range of `taken` lies: a process may open those pools together with this one.
fn choose_address_beside(capacity: u64, random: u64, taken: &[Range<u64>]) -> Result<u64> {
    let stride = capacity.next_multiple_of(ADDRESS_ALIGN_BYTES);
    let places = (ADDRESS_END - ADDRESS_START) / stride;
    let is_free = |address: u64| {
        let bytes = capacity.min(ADDRESS_PROBE_BYTES) as usize;
        Reservation::anonymous_at(address as usize, bytes).is_ok()
    };
    let meets =
        |address: u64| taken.iter().any(|range| address < range.end && range.start < address + capacity);
    let addresses = || (0..places).map(|n| ADDRESS_START + (random.wrapping_add(n) % places) * stride);
    let apart = addresses().filter(|address| !meets(*address)).take(ADDRESS_TRIES_MAX).find(|a| is_free(*a));
    // With so many pools around, two of them must meet.
    apart.or_else(|| addresses().take(ADDRESS_TRIES_MAX).find(|a| is_free(*a))).ok_or_else(|| {
        Error::Unsupported {
            what: format!("no address is free for a pool of {capacity} bytes; make its capacity smaller"),
        }
    })
}

fn choose_medium(options: &PoolOptions, directory: &Path) -> Result<MediumKind> {
    let device = options.config.devdax.is_some();
    let map_sync = || supports_map_sync(&*options.storage, directory);
    match options.config.medium {
        Medium::File => Ok(MediumKind::File),
        Medium::Emulated(_) => Ok(MediumKind::Emulated),
        Medium::Dax if !device && !map_sync() => Err(Error::Unsupported {
            what: format!(
                "{} is not on a file system mounted with dax; choose the medium file",
                directory.display()
            ),
        }),
        Medium::Dax => Ok(MediumKind::Dax),
        Medium::Auto if device || map_sync() => Ok(MediumKind::Dax),
        Medium::Auto => Ok(MediumKind::File),
    }
}

/// The device, if any, that a new dax pool's region lies on.
fn devdax_of(options: &PoolOptions) -> Option<PathBuf> {
    options.config.devdax.clone().map(|device| std::fs::canonicalize(&device).unwrap_or(device))
}

/// Writes real zeros instead of reserving space: a log write then changes no metadata of the file system, so its
/// sync is one write.
fn write_zeros(file: &dyn StorageFile, len: u64) -> io::Result<()> {
    let zeros = vec![0u8; ZERO_BYTES.min(len as usize)];
    let mut at = 0;
    while at < len {
        let n = zeros.len().min((len - at) as usize);
        file.write_at(at, &zeros[..n], here())?;
        at += n as u64;
    }
    file.sync(here())
}
