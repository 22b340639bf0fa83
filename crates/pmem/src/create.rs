//! Making a pool.
//!
//! Durable-order: the names, the log and the empty image before the superblock; the superblock last.
//! A process killed, or a machine cut off, in between leaves a blank superblock file beside an empty
//! image: no pool, recognised and made again. Otherwise a valid superblock could name a log whose
//! bytes are not there.

use crate::error::is_no_space;
use crate::open_mapped::{devdax_of, supports_map_sync, zero_device};
use crate::options::{AddressChoice, MediumChoice, PoolOptions};
use crate::stat::MediumKind;
use crate::storage::{OpenHow, PathKind, Storage, StorageFile, here};
use crate::superblock::{COPY_BYTES, DEVDAX_BYTES_MAX, FILE_BYTES, Superblock};
use crate::{Error, Result};
use mangrove_sys::Reservation;
use std::io;
use std::path::Path;

/// Where regions with an address of their own lie: above the shadow memory of the address sanitizer, below
/// where Linux on x86-64 puts programs that may be moved.
const ADDRESS_START: u64 = 0x1200_0000_0000;
const ADDRESS_END: u64 = 0x5000_0000_0000;
const ADDRESS_ALIGN_BYTES: u64 = 1 << 30;
const ADDRESS_TRIES_MAX: u64 = 256;
/// A process may not be allowed to reserve a whole capacity; see `reserve`.
const ADDRESS_PROBE_BYTES: u64 = 1 << 20;

/// Bytes of zeros written at a time.
const ZERO_BYTES: usize = 1 << 20;

/// Names that a pool uses.
pub(crate) const PARTS: [&str; 3] = ["image", "log", "sums"];

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |e| {
        if is_no_space(&e) { Error::no_space(path, 0, &e) } else { Error::from_io(path, doing, &e) }
    }
}

/// Makes the folder, if it is not there.
pub(crate) fn make_folder(storage: &dyn Storage, folder: &Path) -> Result<()> {
    storage.create_dir(folder, here()).map_err(io_error(folder, "create"))?;
    if let Some(parent) = folder.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        storage.sync_dir(parent, here()).map_err(io_error(parent, "sync"))?;
    }
    Ok(())
}

/// True when the bytes of the file `pool` are those of a pool that was never finished: nothing, or
/// sectors of a first superblock, some of them not written.
pub(crate) fn is_half_made(bytes: &[u8]) -> bool {
    let blank = |b: &[u8]| b.iter().all(|&x| x == 0);
    bytes.len() <= FILE_BYTES
        && bytes.chunks(COPY_BYTES).all(|copy| {
            let head = &copy[..copy.len().min(512)];
            let middle = copy.get(1536..copy.len().min(COPY_BYTES - 4)).unwrap_or(&[]);
            (blank(head) || head.starts_with(b"MANGROVE")) && blank(middle)
        })
}

/// True when no image was ever filled: an unfinished pool has an empty one, or none.
pub(crate) fn image_is_empty(storage: &dyn Storage, folder: &Path) -> Result<bool> {
    let path = folder.join("image");
    match storage.kind(&path).map_err(io_error(&path, "read"))? {
        PathKind::Missing => Ok(true),
        PathKind::Folder => Ok(false),
        PathKind::File => {
            let file = storage.open(&path, OpenHow::Read, here()).map_err(io_error(&path, "open"))?;
            Ok(file.size().map_err(io_error(&path, "read"))? == 0)
        }
    }
}

/// Fills the locked, blank file `pool` and makes the files beside it. The caller made sure that
/// what is there, if anything, belongs to an unfinished pool.
pub(crate) fn create(options: &PoolOptions, folder: &Path, pool_file: &dyn StorageFile) -> Result<()> {
    let storage = &*options.storage;
    for name in PARTS {
        let path = folder.join(name);
        storage.remove(&path, here()).map_err(io_error(&path, "remove"))?;
    }
    let bytes = prepare(options, folder).inspect_err(|_| {
        // No superblock names these files yet; what they take of a full file system is given back.
        for name in PARTS {
            let _ = storage.remove(&folder.join(name), here());
        }
    })?;
    let path = folder.join("pool");
    pool_file.write_at(0, &bytes, here()).map_err(io_error(&path, "write"))?;
    pool_file.sync(here()).map_err(io_error(&path, "sync"))
}

/// Makes the files beside the superblock, durable, and says what the superblock's file shall hold.
fn prepare(options: &PoolOptions, folder: &Path) -> Result<Vec<u8>> {
    let storage = &*options.storage;
    let medium = choose_medium(options, folder)?;
    let devdax = if medium == MediumKind::Dax { devdax_of(options) } else { None };
    let mut capacity = options.capacity.next_multiple_of(4096);
    if let Some(device) = &devdax {
        if device.as_os_str().len() > DEVDAX_BYTES_MAX {
            return Err(Error::Unsupported { what: format!("the name {} is too long", device.display()) });
        }
        capacity = capacity.min(zero_device(storage, device, options.domain_resolved()?.instruction)?);
    } else {
        let path = folder.join("image");
        storage.open(&path, OpenHow::Create, here()).map_err(io_error(&path, "create"))?;
    }
    let log_bytes = if medium == MediumKind::File { options.log_bytes.next_multiple_of(4096) } else { 0 };
    let path = folder.join("sums");
    storage.open(&path, OpenHow::Create, here()).map_err(io_error(&path, "create"))?;
    if medium == MediumKind::File {
        let path = folder.join("log");
        let log = storage.open(&path, OpenHow::Create, here()).map_err(io_error(&path, "create"))?;
        write_zeros(&*log, log_bytes).map_err(|e| match io_error(&path, "write")(e) {
            Error::NoSpace { path, .. } => Error::NoSpace { path, wanted: log_bytes },
            Error::FileLimit { path, .. } => Error::FileLimit { path, wanted: log_bytes },
            other => other,
        })?;
    }
    storage.sync_dir(folder, here()).map_err(io_error(folder, "sync"))?;
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
        AddressChoice::Chosen => choose_address(capacity, storage.random())?,
    };
    let mut sb = Superblock {
        seq: 0,
        uuid,
        medium,
        clean: true,
        kind: options.kind.clone(),
        capacity,
        image_bytes: 0,
        log_bytes,
        tail: 0,
        target: 0,
        nonce: 0,
        devdax,
        address,
        sums_digest: 0,
    };
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    bytes.extend_from_slice(&sb.encode()[..]);
    sb.seq = 1;
    bytes.extend_from_slice(&sb.encode()[..]);
    Ok(bytes)
}

/// An address for a region of `capacity` bytes: a free one of the places into which the middle of the address
/// space is divided, begun at a random one, so that pools of one process rarely meet. Programs, heaps, stacks
/// and the shadow memory of sanitizers lie below and above.
///
/// # Errors
/// `Unsupported` when none of those tried is free.
pub fn choose_address(capacity: u64, random: u64) -> Result<u64> {
    let stride = capacity.next_multiple_of(ADDRESS_ALIGN_BYTES);
    let places = (ADDRESS_END - ADDRESS_START) / stride;
    for n in 0..places.min(ADDRESS_TRIES_MAX) {
        let address = ADDRESS_START + (random.wrapping_add(n) % places) * stride;
        if Reservation::anonymous_at(address as usize, capacity.min(ADDRESS_PROBE_BYTES) as usize).is_ok() {
            return Ok(address);
        }
    }
    Err(Error::Unsupported {
        what: format!("no address is free for a region of {capacity} bytes; make its capacity smaller"),
    })
}

fn choose_medium(options: &PoolOptions, folder: &Path) -> Result<MediumKind> {
    let device = options.devdax.is_some();
    let map_sync = || supports_map_sync(&*options.storage, folder);
    match options.medium {
        MediumChoice::File => Ok(MediumKind::File),
        MediumChoice::Emulated(_) => Ok(MediumKind::Emulated),
        MediumChoice::Dax if !device && !map_sync() => Err(Error::Unsupported {
            what: format!(
                "{} is not on a file system mounted with dax; choose the medium file",
                folder.display()
            ),
        }),
        MediumChoice::Dax => Ok(MediumKind::Dax),
        MediumChoice::Auto if device || map_sync() => Ok(MediumKind::Dax),
        MediumChoice::Auto => Ok(MediumKind::File),
    }
}

/// Real zeros, not a promise of space: a log write then changes no metadata of the file system, so
/// its sync is one write.
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
