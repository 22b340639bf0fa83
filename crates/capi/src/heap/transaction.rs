//! Running transactions.

use super::frame::{End, inside, mangrove_tx};
use super::open::mangrove_heap;
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status};
use mangrove::heap::{Cancel, HeapResult, Tx};
use mangrove_cabi::{handle, put_out};
use std::ffi::c_void;

/// The body of a transaction. It returns
///   MANGROVE_OK to commit;
///   at once, the status of an access that was MANGROVE_TX_STOP or an error;
///   another number of its own, best above 0, to abort.
/// It may be run several times: whatever else it does than by way of `tx` happens as often. All runs get the
/// same `arg`, so it sets what it returns through it anew in each run. Neither a C++ exception, longjmp,
/// pthread_exit nor a cancellation of the thread may leave it: that is undefined (for C++,
/// mangrove_heap.hpp catches exceptions in time). Nor does it fork.
pub type mangrove_tx_body = Option<unsafe extern "C" fn(tx: *mut mangrove_tx, arg: *mut c_void) -> i32>;

/// How a body aborts.
enum Aborted {
    Value(i32),
    Failed(Failure),
}

/// Runs the caller's body by way of `run`, which is the heap's.
unsafe fn run(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
    reads: bool,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let heap = unsafe {
            put_out(value, 0);
            handle(heap, "heap")?
        };
        let Some(body) = body else { return Err(Failure::invalid("'body' is NULL")) };
        let body = |tx: &mut Tx<'_>| {
            // SAFETY: the caller's function, called as the header says.
            let (answer, end) = inside(&heap.heap, tx, |tx| unsafe { body(tx, arg) });
            Err(match (end, answer) {
                (Some(End::Again(stop)), _) => Cancel::Stop(stop),
                (Some(End::Failed(failure)), _) => Cancel::Abort(Aborted::Failed(failure)),
                (None, answer) if answer == MANGROVE_OK as i32 => return Ok(()),
                (None, answer) if answer == MANGROVE_TX_STOP as i32 => {
                    Cancel::Abort(Aborted::Failed(Failure::invalid(
                        "the body returned MANGROVE_TX_STOP, but no access had; the transaction was undone",
                    )))
                }
                (None, answer) => Cancel::Abort(Aborted::Value(answer)),
            })
        };
        let ended: HeapResult<Result<(), Aborted>> =
            if reads { heap.heap.try_read(body) } else { heap.heap.try_transaction(body) };
        match ended? {
            Ok(()) => Ok(MANGROVE_OK),
            Err(Aborted::Failed(failure)) => Err(failure),
            Err(Aborted::Value(answer)) => {
                // SAFETY: as above.
                unsafe { put_out(value, answer) };
                Ok(MANGROVE_TX_ABORTED)
            }
        }
    })
}

/// Runs `body` with `arg` as one transaction: atomic, isolated from those of other threads, and durable
/// when the call returns MANGROVE_OK.
///
/// Returns MANGROVE_TX_ABORTED when the body returned a number of its own, which is then in *value (may be
/// NULL; 0 otherwise). Everything is undone then, and nothing was allocated or freed.
/// Errors: that of the first access of the last run that failed, whatever the body returned after it: all
/// is undone. MANGROVE_ERR_TX_MISPLACED: the calling thread is inside a transaction on this heap (use its
/// `tx`). MANGROVE_ERR_UNSUPPORTED: in a child of the process that opened the heap. _POISONED, _NO_SPACE,
/// _IO: all is undone. MANGROVE_ERR_IN_DOUBT: others have seen it, and a crash may undo it.
/// Crash: once acknowledged it is kept; before that all of it or nothing. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_transaction(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { run(heap, body, arg, value, false) }
}

/// As mangrove_transaction, for a body that rarely or never writes: what only writers need is skipped.
/// What it read is durable when the call returns. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_transaction_read(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { run(heap, body, arg, value, true) }
}
