//! Blocks of the heap, allocated and freed in transactions.

use super::frame::{Access, End, mangrove_tx, with_tx, with_tx_uncancelled};
use crate::status::mangrove_status::*;
use crate::status::{Failure, mangrove_status};
use mangrove_cabi::{out, put_out};
use std::ffi::c_void;

/// The largest alignment of a block.
const ALIGN_MAX: usize = 1 << 30;

/// Puts the address of a new block into `*at`; `block` allocates it.
unsafe fn allocate(
    tx: *mut mangrove_tx,
    align: usize,
    at: *mut *mut c_void,
    block: impl FnOnce(&mut Access<'_>, usize) -> Result<usize, End>,
) -> mangrove_status {
    // SAFETY: the header's contract for out-parameters. (Also where there is no transaction.)
    unsafe { put_out(at, std::ptr::null_mut()) };
    with_tx_uncancelled(tx, |access| {
        // SAFETY: the header's contract for out-parameters.
        let at = unsafe { out(at, std::ptr::null_mut(), "at") }?;
        let align = align.max(1);
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(Failure::invalid(format!(
                "an alignment is 0 or a power of two up to {ALIGN_MAX}, and {align} is not"
            ))
            .into());
        }
        *at = std::ptr::with_exposed_provenance_mut(block(access, align)?);
        Ok(MANGROVE_OK)
    })
}

/// A new block of at least `bytes` bytes of undefined content, at a multiple of 16 and of `align` (0, or a
/// power of two). It exists once the transaction commits; *at is its address in every process, and NULL
/// after another result.
/// Errors: the transaction is undone, and the heap stays usable. MANGROVE_ERR_FULL: its capacity is in use, or no
/// free part of it is long enough.
/// MANGROVE_ERR_NO_SPACE: its medium is full.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_alloc(
    tx: *mut mangrove_tx,
    bytes: usize,
    align: usize,
    at: *mut *mut c_void,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { allocate(tx, align, at, |access, align| Ok(access.tx().alloc_bytes(bytes, align)?)) }
}

/// As mangrove_tx_alloc, with every byte zero. Time: in proportion to `bytes`.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_alloc_zeroed(
    tx: *mut mangrove_tx,
    bytes: usize,
    align: usize,
    at: *mut *mut c_void,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { allocate(tx, align, at, |access, align| Ok(access.tx().alloc_bytes_zeroed(bytes, align)?)) }
}

/// Frees the block at `at`. Other transactions may get it once this one has committed. NULL is fine.
/// Errors: MANGROVE_ERR_INVALID_ARGUMENT: no block in use begins there, and the transaction is undone.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_free(tx: *mut mangrove_tx, at: *mut c_void) -> mangrove_status {
    with_tx_uncancelled(tx, |access| {
        if !at.is_null() {
            access.tx().free_bytes(at.addr())?;
        }
        Ok(MANGROVE_OK)
    })
}

/// Bytes that may be used of the block at `at`, into *bytes: those asked for, or a few more. Returns
/// MANGROVE_NOT_FOUND, with *bytes 0, if no block in use begins there.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_usable_bytes(
    tx: *mut mangrove_tx,
    at: *const c_void,
    bytes: *mut usize,
) -> mangrove_status {
    // SAFETY: the header's contract for out-parameters. (Also where there is no transaction.)
    unsafe { put_out(bytes, 0) };
    with_tx(tx, |access| {
        // SAFETY: the header's contract for out-parameters.
        let bytes = unsafe { out(bytes, 0, "bytes") }?;
        let Some(usable) = access.tx().usable_bytes(at.addr())? else { return Ok(MANGROVE_NOT_FOUND) };
        *bytes = usable;
        Ok(MANGROVE_OK)
    })
}
