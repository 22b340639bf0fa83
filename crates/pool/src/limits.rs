//! The limits of a pool: its sizes, and the address space that its process can reserve.

use crate::{Error, Result};
use mangrove_sys::Reservation;
use std::path::Path;

/// Address space of a new file pool unless asked otherwise: 1 TiB.
pub const CAPACITY_BYTES_DEFAULT: u64 = 1 << 40;
/// Least and greatest address space of a pool, in bytes.
pub const CAPACITY_BYTES_MIN: u64 = 64 << 10;
/// See [`CAPACITY_BYTES_MIN`].
pub const CAPACITY_BYTES_MAX: u64 = 1 << 46;
/// What the log of a file pool grows to at most unless asked otherwise: 1 GiB.
pub const LOG_BYTES_DEFAULT: u64 = 1 << 30;
/// A new log has so many bytes, and grows with use.
pub(crate) const LOG_BYTES_FIRST: u64 = 128 << 10;
/// Up to this size the log grows freely; beyond it, only while it is shorter than the data file.
pub(crate) const LOG_BYTES_FREE: u64 = 64 << 20;
/// Least size of a log. Useful logs may grow to 1 MiB and more; the simulator uses small ones.
pub const LOG_BYTES_MIN: u64 = 16 << 10;
/// Greatest size of a log.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// Longest engine kind tag, in bytes.
pub const KIND_BYTES_MAX: usize = 16;

/// Calls `map` for `capacity` bytes. Where the process may not map so much, it maps half the greatest power of two
/// that it may, but at least `needed`; the other half is for the process's threads and heap. `path` is the pool.
///
/// # Errors
/// Those of [`cannot_map`].
pub(crate) fn reserve(
    path: &Path,
    capacity: u64,
    needed: u64,
    map: impl Fn(usize) -> std::io::Result<Reservation>,
) -> Result<Reservation> {
    let mut len = capacity;
    let least = needed.max(1 << 20);
    loop {
        match map(len as usize) {
            Ok(memory) if len == capacity || len / 2 < needed => return Ok(memory),
            Ok(memory) => {
                drop(memory);
                len /= 2;
                return map(len as usize).map_err(|e| cannot_map(path, len, &e));
            }
            Err(e) if is_no_memory(&e) => {
                let smaller = (len - 1).next_power_of_two() / 2;
                if smaller < least {
                    return Err(cannot_map(path, least, &e));
                }
                len = smaller;
            }
            Err(e) => return Err(cannot_map(path, len, &e)),
        }
    }
}

/// valgrind returns EINVAL where the kernel returns ENOMEM.
fn is_no_memory(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL))
}

/// The error that this process cannot map the `wanted` bytes that `path` needs, for the system's answer `e`:
/// `MemoryLimit` with the limit 0, or `Unsupported` where the answer was not that there is no memory.
pub(crate) fn cannot_map(path: &Path, wanted: u64, e: &std::io::Error) -> Error {
    if is_no_memory(e) {
        return Error::MemoryLimit { path: path.to_owned(), wanted, limit: 0 };
    }
    Error::Unsupported { what: format!("{}: cannot map {wanted} bytes: {e}", path.display()) }
}

/// Refuses what would give this process more memory than `limit`: `bytes` more, beside what it has. `address_space` is
/// what it needs to map for that.
///
/// # Errors
/// `MemoryLimit`, with the limit 0 where `ulimit -v` is the limit.
pub fn fits_memory(path: &Path, limit: Option<u64>, bytes: u64, address_space: u64) -> Result<()> {
    let too_much = |wanted, limit| Err(Error::MemoryLimit { path: path.to_owned(), wanted, limit });
    // Where the system does not tell, this process has nothing yet.
    let wanted = (mangrove_sys::own_memory_bytes().unwrap_or(0) as u64).saturating_add(bytes);
    match limit {
        Some(limit) if wanted > limit => too_much(wanted, limit),
        _ if mangrove_sys::has_address_space(address_space) => Ok(()),
        _ => too_much(address_space, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_address_space_is_told_of_the_pool() {
        let none = |_| Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
        let told = reserve(Path::new("a/pool"), 1 << 40, 5 << 20, none).err().unwrap();
        assert!(matches!(told, Error::MemoryLimit { wanted: 5_242_880, limit: 0, .. }), "{told}");
        assert!(told.to_string().starts_with("a/pool needs 5242880 more bytes"), "{told}");
    }
}
