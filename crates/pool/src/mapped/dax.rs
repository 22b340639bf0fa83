//! What only DAX file systems and devdax devices have: MAP_SYNC, the mount option `dax`, and a device's lock and
//! first zeroing.

use crate::format::page_sums::PAGE_BYTES;
use crate::pool_files::PoolFile;
use crate::storage::traits::{Device, LockKind, OpenHow, Storage, here};
use crate::{Error, Result};
use mangrove_sys::{MapKind, Reservation};
use std::path::Path;

/// True when files in `directory` can be mapped with MAP_SYNC. Leaves no mapping behind.
pub(crate) fn supports_map_sync(storage: &dyn Storage, directory: &Path) -> bool {
    let path = directory.join("image");
    let Ok(file) = storage.open(&path, OpenHow::Create, here()) else { return false };
    let Some(fd) = file.fd() else { return false };
    // Mapping beyond the end of the file is allowed; no byte is touched.
    Reservation::file(fd, PAGE_BYTES, MapKind::SharedSync).is_ok()
}

/// True when the nearest existing directory above `path` lies on a file system mounted with dax.
pub(crate) fn is_on_dax_mount(path: &Path) -> bool {
    let above = path.ancestors().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let directory = above.filter_map(|p| std::fs::canonicalize(p).ok()).next();
    directory.is_some_and(|directory| mangrove_sys::is_on_dax_mount(&directory))
}

/// Locks a device among processes, and among pools: the lock of a pool does not cover another pool on the same
/// device.
pub(super) fn lock_device(device: &PoolFile, kind: LockKind) -> Result<()> {
    if device.lock(kind)? { Ok(()) } else { Err(Error::busy(device.path())) }
}

/// Zeroes a new devdax device; returns its size.
pub(crate) fn zero_device(
    storage: &dyn Storage,
    device: &Path,
    instruction: mangrove_sys::FlushInstruction,
) -> Result<Device> {
    let unsupported = |what: String| Error::Unsupported { what };
    let Some(found) = storage.device(device) else {
        return Err(unsupported(format!("{} is not a devdax device", device.display())));
    };
    let device = PoolFile::open(storage, device.to_owned(), OpenHow::Write, "open")?;
    zero_blank(&device, (found.bytes / found.align_bytes * found.align_bytes) as usize, instruction)?;
    Ok(found)
}

/// Zeroes `len` bytes of a device whose first page is blank. Every pool's region begins with bytes that are not
/// zero, so a device that holds another pool, named by mistake, is left as it is.
fn zero_blank(device: &PoolFile, len: usize, instruction: mangrove_sys::FlushInstruction) -> Result<()> {
    lock_device(device, LockKind::Exclusive)?;
    let name = device.path().display();
    let fd = device.fd().ok_or_else(|| no_fd(device.path()))?;
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

pub(super) fn no_fd(path: &Path) -> Error {
    Error::Unsupported {
        what: format!("{} cannot be mapped: its storage has no files to map", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OsStorage, PoolOptions};

    /// Uses a file instead of a device.
    #[test]
    fn a_device_that_is_locked_or_not_blank_is_not_zeroed() {
        const LEN: usize = 64 << 10;
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("dax0.0");
        let instruction = PoolOptions::new().domain_resolved().unwrap().instruction;
        let open = || PoolFile::open(&OsStorage, device.clone(), OpenHow::Write, "open").unwrap();
        let mut bytes = vec![0; LEN];
        bytes[4096..].fill(7);
        std::fs::write(&device, &bytes).unwrap();
        let other = open();
        lock_device(&other, LockKind::Shared).unwrap();
        lock_device(&open(), LockKind::Shared).unwrap();
        let error = zero_blank(&open(), LEN, instruction).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        drop(other);
        bytes[64] = 1;
        std::fs::write(&device, &bytes).unwrap();
        let text = zero_blank(&open(), LEN, instruction).unwrap_err().to_string();
        assert!(text.contains("not blank") && text.contains(device.to_str().unwrap()), "{text}");
        assert!(std::fs::read(&device).unwrap() == bytes);
        bytes[64] = 0;
        std::fs::write(&device, &bytes).unwrap();
        zero_blank(&open(), LEN, instruction).unwrap();
        assert!(std::fs::read(&device).unwrap() == [0; LEN]);
    }
}
