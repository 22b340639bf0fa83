//! Roots: where a program begins to look, by name.

use super::error::HeapError;
use super::layout::{
    AT_ROOTS, IN_ROOT_NAME, IN_ROOT_POINTER, IN_ROOT_SIZE, ROOT_BYTES, ROOT_COUNT_MAX, ROOT_NAME_BYTES_MAX,
};
use super::stop::Stop;
use crate::access::TxAccess;

/// A slot that holds a root.
pub(super) struct FoundRoot {
    pub(super) slot: usize,
    pub(super) pointer: usize,
    pub(super) size: u64,
}

/// A root, as [`Heap::roots`](crate::Heap::roots) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Root {
    /// Its name.
    pub name: String,
    /// What it points to; 0 for nothing.
    pub address: usize,
    /// Bytes of the type that it was set with.
    pub bytes: u64,
}

impl Root {
    /// Whether what it points to lies in the block at `at`.
    pub(super) fn lies_in(&self, at: usize, bytes: usize) -> bool {
        let offset = self.address.wrapping_sub(at);
        offset < bytes && self.bytes <= (bytes - offset) as u64
    }
}

/// The roots in a heap's first page, or what is wrong with a slot.
pub(super) fn parse(page: &[u8]) -> impl Iterator<Item = Result<Root, String>> {
    let slots = page[AT_ROOTS..].chunks_exact(ROOT_BYTES).take(ROOT_COUNT_MAX).enumerate();
    slots.filter_map(|(number, slot)| parse_slot(number, slot).transpose())
}

fn parse_slot(number: usize, slot: &[u8]) -> Result<Option<Root>, String> {
    let wrong = |what: &str| Err(format!("slot {number} of the roots {what}"));
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let len = usize::from(slot[0]);
    if len == 0 {
        return if is_zero(slot) { Ok(None) } else { wrong("is free, but not zero") };
    }
    if len > ROOT_NAME_BYTES_MAX {
        return wrong(&format!("has a name of {len} bytes, and {ROOT_NAME_BYTES_MAX} are the most"));
    }
    let (name, padding) = slot[IN_ROOT_NAME..IN_ROOT_POINTER].split_at(len);
    if !is_zero(padding) || !is_zero(&slot[IN_ROOT_SIZE + 8..]) {
        return wrong("has bytes that are not zero beside its fields");
    }
    let Ok(name) = std::str::from_utf8(name) else { return wrong("has a name that is not UTF-8") };
    let word = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("8 bytes"));
    let (address, bytes) = (word(IN_ROOT_POINTER) as usize, word(IN_ROOT_SIZE));
    Ok(Some(Root { name: name.to_owned(), address, bytes }))
}

/// Every root. O(slots).
pub(super) fn all(tx: &mut impl TxAccess, base: usize) -> Result<Vec<Root>, Stop> {
    let page = tx.read::<{ AT_ROOTS + ROOT_COUNT_MAX * ROOT_BYTES }>(base)?;
    let damaged = |problem| HeapError::Damaged { what: problem }.into();
    parse(&page).map(|root| root.map_err(damaged)).collect()
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
pub(super) fn find(tx: &mut impl TxAccess, base: usize, name: &str) -> Result<Option<FoundRoot>, Stop> {
    let wanted = title(name)?;
    for slot in slots(base) {
        // The first word tells most names apart.
        if tx.read_word(slot)?.to_le_bytes()[..] != wanted[..8] {
            continue;
        }
        if tx.read::<IN_ROOT_POINTER>(slot)? == wanted {
            let pointer = tx.read_word(slot + IN_ROOT_POINTER)? as usize;
            let size = tx.read_word(slot + IN_ROOT_SIZE)?;
            return Ok(Some(FoundRoot { slot, pointer, size }));
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
