//! Reads and writes of a transaction.

use super::frame::{mangrove_tx, with_tx};
use crate::status::mangrove_status;
use crate::status::mangrove_status::*;
use mangrove_cabi::{out, put_out, slice};
use std::ffi::c_void;

/// Copies `len` bytes of the heap, from `at` on, into the caller's memory at `into`, as the transaction sees
/// them: its own writes, and else one consistent state. Any alignment. Time: in proportion to `len`.
///
/// Returns MANGROVE_TX_STOP when the transaction must run again: return that from the body at once; later
/// accesses return it too. Errors: MANGROVE_ERR_INVALID_ARGUMENT (also: not in the heap) undoes the
/// transaction, whatever the body does then; MANGROVE_ERR_TX_MISPLACED: it has ended, or is another
/// thread's. Both hold for every mangrove_tx function, and are not repeated below.
/// A read or write of a whole aligned word of 8 bytes is the fastest, and one of 0 bytes does nothing, wherever `at`
/// points. `into` is not in the heap.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_read(
    tx: *mut mangrove_tx,
    at: *const c_void,
    into: *mut c_void,
    len: usize,
) -> mangrove_status {
    with_tx(tx, |access| {
        // SAFETY: the header's contract for bytes; they are only checked here.
        unsafe { slice(into, len, "into") }?;
        if len == 0 {
            return Ok(MANGROVE_OK);
        }
        access.must_hold(at.addr(), len)?;
        // SAFETY: not NULL, and `len` writable bytes outside of the heap, as the header asks.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), len) };
        access.tx().read_bytes(at.addr(), into)?;
        Ok(MANGROVE_OK)
    })
}

/// Copies `len` bytes from the caller's memory at `from` into the heap, from `at` on. Others see them when
/// the transaction has committed; bytes beside them are not stored to. Any alignment. Time: in proportion
/// to `len`. Write to blocks that you have allocated: the heap's own words lie between them, and a write to those
/// damages the heap. `from` is not in the heap: read what lies there with mangrove_tx_read first.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_write(
    tx: *mut mangrove_tx,
    at: *mut c_void,
    from: *const c_void,
    len: usize,
) -> mangrove_status {
    with_tx(tx, |access| {
        // SAFETY: the header's contract for bytes.
        let from = unsafe { slice(from, len, "from") }?;
        if from.is_empty() {
            return Ok(MANGROVE_OK);
        }
        access.must_hold(at.addr(), len)?;
        access.tx().write_bytes(at.addr(), from)?;
        Ok(MANGROVE_OK)
    })
}

/// The word of 8 bytes at `at`, into *value. Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_load(
    tx: *mut mangrove_tx,
    at: *const u64,
    value: *mut u64,
) -> mangrove_status {
    // SAFETY: the header's contract for out-parameters. (Also where there is no transaction.)
    unsafe { put_out(value, 0) };
    with_tx(tx, |access| {
        // SAFETY: the header's contract for out-parameters.
        let value = unsafe { out(value, 0, "value") }?;
        access.must_hold(at.addr(), 8)?;
        let mut bytes = [0; 8];
        access.tx().read_bytes(at.addr(), &mut bytes)?;
        *value = u64::from_ne_bytes(bytes);
        Ok(MANGROVE_OK)
    })
}

/// Writes the word of 8 bytes at `at`. Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_store(
    tx: *mut mangrove_tx,
    at: *mut u64,
    value: u64,
) -> mangrove_status {
    with_tx(tx, |access| {
        access.must_hold(at.addr(), 8)?;
        access.tx().write_bytes(at.addr(), &value.to_ne_bytes())?;
        Ok(MANGROVE_OK)
    })
}

/// Undoes the transaction and runs it again when something that it has read has changed. Returns
/// MANGROVE_TX_STOP, for the body to return: `return mangrove_tx_retry(tx);`
/// pthread_cancel does not end the wait: to end the thread, commit a change of what it has read.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_retry(tx: *mut mangrove_tx) -> mangrove_status {
    with_tx(tx, |access| Err(access.tx().retry().into()))
}

/// Asks that the commit return only when no other transaction can still read what this one unlinks, or
/// undo a write to it: from then on plain loads and stores may use that memory.
/// Threads: the one that runs the body.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_privatise(tx: *mut mangrove_tx) -> mangrove_status {
    with_tx(tx, |access| {
        access.tx().privatise();
        Ok(MANGROVE_OK)
    })
}
