//! Roots: where a program begins to look, by name.

use super::error::HeapError;
use super::layout::{
    AT_ROOTS, IN_ROOT_NAME, IN_ROOT_POINTER, IN_ROOT_SIZE, ROOT_BYTES, ROOT_COUNT_MAX, ROOT_NAME_BYTES_MAX,
};
use super::stop::Stop;
use crate::access::TxAccess;

/// A slot that holds a root.
pub(super) struct Found {
    pub(super) slot: usize,
    pub(super) pointer: usize,
    pub(super) size: u64,
}

/// The addresses of the slots in the heap at `base`.
fn slots(base: usize) -> impl Iterator<Item = usize> {
    (0..ROOT_COUNT_MAX).map(move |n| base + AT_ROOTS + n * ROOT_BYTES)
}

/// What stands in a slot before the pointer: the length and the name.
fn title(name: &str) -> Result<[u8; IN_ROOT_POINTER], HeapError> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > ROOT_NAME_BYTES_MAX {
        return Err(HeapError::Root {
            what: format!(
                "the name of a root has 1 to {ROOT_NAME_BYTES_MAX} bytes, and {name:?} has {}",
                bytes.len()
            ),
        });
    }
    let mut title = [0; IN_ROOT_POINTER];
    title[0] = bytes.len() as u8;
    title[IN_ROOT_NAME..IN_ROOT_NAME + bytes.len()].copy_from_slice(bytes);
    Ok(title)
}

/// The root of this name.
pub(super) fn find(tx: &mut impl TxAccess, base: usize, name: &str) -> Result<Option<Found>, Stop> {
    let wanted = title(name)?;
    for slot in slots(base) {
        // The first word tells most names apart.
        if tx.read_word(slot)?.to_le_bytes()[..] != wanted[..8] {
            continue;
        }
        if tx.read::<IN_ROOT_POINTER>(slot)? == wanted {
            let pointer = tx.read_word(slot + IN_ROOT_POINTER)? as usize;
            let size = tx.read_word(slot + IN_ROOT_SIZE)?;
            return Ok(Some(Found { slot, pointer, size }));
        }
    }
    Ok(None)
}

/// Makes or changes a root.
pub(super) fn set(
    tx: &mut impl TxAccess,
    base: usize,
    name: &str,
    pointer: usize,
    size: u64,
) -> Result<(), Stop> {
    let slot = match find(tx, base, name)? {
        Some(found) => found.slot,
        None => {
            let mut free = None;
            for slot in slots(base) {
                if tx.read::<1>(slot)? == [0] {
                    free = Some(slot);
                    break;
                }
            }
            let slot = free.ok_or_else(|| HeapError::Root {
                what: format!(
                    "the heap has {ROOT_COUNT_MAX} roots already; remove one, or hang {name:?} under another"
                ),
            })?;
            tx.write(slot, title(name)?)?;
            slot
        }
    };
    tx.write_word(slot + IN_ROOT_POINTER, pointer as u64)?;
    Ok(tx.write_word(slot + IN_ROOT_SIZE, size)?)
}

/// Removes a root; what it pointed to stays.
pub(super) fn remove(tx: &mut impl TxAccess, base: usize, name: &str) -> Result<bool, Stop> {
    let Some(found) = find(tx, base, name)? else { return Ok(false) };
    tx.write(found.slot, [0; ROOT_BYTES])?;
    Ok(true)
}
