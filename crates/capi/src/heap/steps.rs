//! Transactions whose bodies are no functions: begin, commit, abort.

use super::frame::{BodyAnswer, TxKind, find, mangrove_tx};
use super::open::mangrove_heap;
use super::running::{AfterRun, begin, conclude, enter};
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status};
use mangrove_cabi::{handle, out};
use std::ptr::{null_mut, without_provenance_mut};

/// Begins a transaction; *tx is for its accesses. `reads`: true if it rarely or never writes.
///
///     mangrove_status s = mangrove_tx_begin(heap, false, &tx);
///     while (tx != NULL) {
///         ... accesses, until one does not return MANGROVE_OK ...
///         s = mangrove_tx_commit(&tx); // MANGROVE_TX_STOP: again, with another tx
///     }
///
/// A thread that ends before commit or abort undoes it. Other threads may wait for it until then, so keep it
/// short.
/// Errors: as those of mangrove_transaction; *tx is NULL then. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_begin(
    heap: *const mangrove_heap,
    reads: bool,
    tx: *mut *mut mangrove_tx,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let (tx, heap) = unsafe { (out(tx, null_mut(), "tx")?, handle(heap, "heap")?) };
        *tx = without_provenance_mut(begin(
            &heap.heap,
            heap.process,
            if reads { TxKind::Reads } else { TxKind::Waits },
        )?);
        Ok(MANGROVE_OK)
    })
}

/// Commits the transaction *tx. MANGROVE_OK: it is durable (with interval durability: at most that much later).
/// MANGROVE_TX_STOP: it conflicted with another one, or asked for mangrove_tx_retry; it is undone and has begun
/// again: do everything again with the new *tx. After any other result it has ended, and *tx is NULL.
/// Errors: that of its first access that failed, and as those of mangrove_transaction: all is undone.
/// MANGROVE_ERR_TX_MISPLACED: *tx is no transaction that this thread has begun by mangrove_tx_begin; or a signal
/// handler has interrupted it, and *tx stays as it is.
/// Crash: as mangrove_transaction. Threads: the one that began it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_commit(tx: *mut *mut mangrove_tx) -> mangrove_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { end(tx, BodyAnswer::Commit) })
}

/// Undoes the transaction *tx, and sets *tx to NULL. Returns MANGROVE_TX_ABORTED, when what the transaction read is
/// durable.
/// Errors: that of its first access that failed; MANGROVE_ERR_TX_MISPLACED: as for mangrove_tx_commit.
/// Threads: the one that began it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_tx_abort(tx: *mut *mut mangrove_tx) -> mangrove_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { end(tx, BodyAnswer::Abort(0)) })
}

/// Ends a run.
unsafe fn end(tx: *mut *mut mangrove_tx, answer: BodyAnswer) -> crate::status::Answer {
    // SAFETY: the header's contract for out-parameters; what it holds is only compared.
    let number = unsafe { tx.as_ref() }.ok_or_else(|| Failure::invalid("'tx' is NULL"))?.addr();
    // SAFETY: as above.
    // A signal handler that interrupted the transaction must not take its handle.
    let inside = enter()?;
    let frame = find(number);
    // SAFETY: as above.
    let tx = unsafe { out(tx, null_mut(), "tx")? };
    // SAFETY: linked, so it is there, and this thread's.
    if frame.is_null() || unsafe { !(*frame).place.is_null() || (*frame).busy.get() } {
        return Err(Failure::new(
            MANGROVE_ERR_TX_MISPLACED,
            "this thread has begun no such transaction by mangrove_tx_begin, or it has ended",
        ));
    }
    let mut run = number;
    loop {
        match (conclude(&inside, run, answer)?, answer) {
            (AfterRun::Committed(_), _) => return Ok(MANGROVE_OK),
            (AfterRun::Aborted(_), _) => return Ok(MANGROVE_TX_ABORTED),
            (AfterRun::Again(next), BodyAnswer::Commit) => {
                *tx = without_provenance_mut(next);
                return Ok(MANGROVE_TX_STOP);
            }
            // It met another one before, so that it was undone and begun again.
            (AfterRun::Again(next), _) => run = next,
        }
    }
}
