//! Running transactions whose bodies are functions.

use super::frame::{BodyAnswer, TxKind, mangrove_tx};
use super::open::mangrove_heap;
use super::running::{AfterRun, Inside, begin, call_body, conclude, enter};
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status};
use mangrove::heap::TxTicket;
use mangrove_cabi::{handle, out, put_out};
use std::ffi::c_void;
use std::ptr::null_mut;

/// The body of a transaction. It returns
///   MANGROVE_OK to commit;
///   at once, the status of an access that was MANGROVE_TX_STOP or an error;
///   another number of its own, best above 0, to abort.
/// It may run several times: whatever it does other than through `tx` happens in each run. All runs get the
/// same `arg`, so a body that returns a result through it sets that anew in each run.
/// However it is left, the transaction is undone and other threads continue: a C++ exception reaches the
/// caller of mangrove_transaction (from code compiled with -fexceptions, as C++ is); pthread_exit and a
/// cancellation, at a cancellation point of the body's own, end the thread; after a longjmp to outside of
/// mangrove_transaction, the thread's next call on a heap undoes the transaction, or the thread's end does;
/// until then other threads may wait for it. Its `tx` has ended: an access with it returns
/// MANGROVE_ERR_TX_MISPLACED where the stack shows the jump, and changes nothing that stays. One way is
/// excluded: a longjmp or siglongjmp out of a signal handler, as POSIX excludes it where the handler
/// interrupts a function that is not async-signal-safe. No function of this library is. If the handler has
/// interrupted one, the thread can use no heap any more, and others may wait for it for ever; let the handler
/// set a flag that the body looks at.
/// A body may run transactions on other heaps, which commit on their own: they stay if the outer one is undone,
/// and happen again if it runs again. All threads nest the heaps in one order: if one thread runs a transaction
/// on B inside one on A, and another one the other way round, both may wait for ever.
pub type mangrove_tx_body =
    Option<unsafe extern "C-unwind" fn(tx: *mut mangrove_tx, arg: *mut c_void) -> i32>;

/// Names a commit of mangrove_transaction_nowait, in this opening of this heap. Plain data: copy it, pass it to other
/// threads, forget it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct mangrove_tx_ticket {
    /// Which opening of which heap.
    pub opening: u64,
    /// Where in its log; 0: durable already.
    pub position: u64,
}

impl From<TxTicket> for mangrove_tx_ticket {
    fn from(ticket: TxTicket) -> Self {
        let [opening, position] = ticket.to_words();
        Self { opening, position }
    }
}

impl From<mangrove_tx_ticket> for TxTicket {
    fn from(ticket: mangrove_tx_ticket) -> Self {
        Self::from_words([ticket.opening, ticket.position])
    }
}

/// Runs the caller's body as a transaction. Nothing stops what leaves the body by unwinding.
unsafe fn run(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
    (kind, ticket): (TxKind, *mut mangrove_tx_ticket),
) -> mangrove_status {
    let (mut run, mut function) = (None, None);
    let begun = guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let heap = unsafe {
            put_out(value, 0);
            put_out(ticket, mangrove_tx_ticket::default());
            handle(heap, "heap")?
        };
        function = Some(body.ok_or_else(|| Failure::invalid("'body' is NULL"))?);
        run = Some(begin(&heap.heap, heap.process, kind)?);
        Ok(MANGROVE_OK)
    });
    let (Some(mut number), Some(body)) = (run, function) else { return begun };
    loop {
        // SAFETY: the caller's function, called as the header says, in the run that has just begun.
        let answer = unsafe { call_body(number, body, arg) };
        let mut again = None;
        let status = guard(|| match conclude(&Inside::begin(), number, BodyAnswer::of_body(answer))? {
            AfterRun::Again(number) => {
                again = Some(number);
                Ok(MANGROVE_OK)
            }
            AfterRun::Committed(committed) => {
                // SAFETY: as above.
                unsafe { put_out(ticket, committed.map(mangrove_tx_ticket::from).unwrap_or_default()) };
                Ok(MANGROVE_OK)
            }
            AfterRun::Aborted(answer) => {
                // SAFETY: as above.
                unsafe { put_out(value, answer) };
                Ok(MANGROVE_TX_ABORTED)
            }
        });
        let Some(next) = again else { return status };
        number = next;
    }
}

/// Runs `body` with `arg` as one transaction: atomic, isolated from those of other threads, and durable
/// when the call returns MANGROVE_OK (with an interval, that much later: see
/// mangrove_heap_options_set_durability_interval).
///
/// Returns MANGROVE_TX_ABORTED when the body returned a number of its own, which is then in *value (may be
/// NULL; 0 otherwise). Everything is undone then, and nothing was allocated or freed.
/// Errors: that of the first access of the last run that failed, whatever the body returned after it: all is
/// undone. MANGROVE_ERR_TX_MISPLACED: the calling thread is inside a transaction on this heap (use its `tx`),
/// or a signal handler has interrupted the library, or the call comes from a destructor of a thread that is
/// ending (a C++ thread_local, pthread_key_create) and has left the heap. MANGROVE_ERR_UNSUPPORTED: in a
/// child of the process that opened the heap, also one that the body has forked. _POISONED, _NO_SPACE, _IO,
/// _NO_MEMORY: all is undone.
/// MANGROVE_ERR_IN_DOUBT: other threads have seen it, and a crash may undo it.
/// Crash: once acknowledged it is kept; before that all of it or nothing. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mangrove_transaction(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { run(heap, body, arg, value, (TxKind::Waits, null_mut())) }
}

/// As mangrove_transaction, for a body that rarely or never writes: what only writers need is skipped.
/// With durability sync, the default, what it read is durable when the call returns. With an interval it is
/// durable at most that much later; a crash before that undoes it. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mangrove_transaction_read(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { run(heap, body, arg, value, (TxKind::Reads, null_mut())) }
}

/// As mangrove_transaction, but returns before what the body changed, and what it read, is durable; *ticket
/// (may be NULL) names it for mangrove_heap_wait; after every result but MANGROVE_OK it holds zeros, and waiting for it
/// returns MANGROVE_ERR_INVALID_ARGUMENT. Many commits then share one fence or one device write. Other
/// transactions see the changes at once; those that wait for durability return when what they saw is durable,
/// too. A commit that no thread waits for becomes durable within about 100 ms, and when the heap is closed.
/// Crash: a prefix of the commits is kept, in their order. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mangrove_transaction_nowait(
    heap: *const mangrove_heap,
    body: mangrove_tx_body,
    arg: *mut c_void,
    value: *mut i32,
    ticket: *mut mangrove_tx_ticket,
) -> mangrove_status {
    // SAFETY: the caller's contract.
    unsafe { run(heap, body, arg, value, (TxKind::NoWait, ticket)) }
}

/// Waits until the commit is durable, whatever the durability; so is everything that was committed before it.
/// Errors: MANGROVE_ERR_IN_DOUBT: the medium failed before it was. MANGROVE_ERR_INVALID_ARGUMENT: the ticket is of
/// another heap, or of an earlier opening; what was committed before an opening is durable if it is there.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_wait(
    heap: *const mangrove_heap,
    ticket: mangrove_tx_ticket,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        let heap = unsafe { handle(heap, "heap") }?;
        let _inside = enter()?;
        heap.heap.wait(ticket.into())?;
        Ok(MANGROVE_OK)
    })
}

/// Whether mangrove_heap_wait would return at once, into *durable. Errors: as there. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_is_durable(
    heap: *const mangrove_heap,
    ticket: mangrove_tx_ticket,
    durable: *mut bool,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let (durable, heap) = unsafe { (out(durable, false, "durable")?, handle(heap, "heap")?) };
        let _inside = enter()?;
        *durable = heap.heap.is_durable(ticket.into())?;
        Ok(MANGROVE_OK)
    })
}
