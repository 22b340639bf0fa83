//! The transactions that a thread is inside of, and how their bodies name them.
//!
//! Invariants:
//! 1. A `mangrove_tx *` is a number in the shape of a pointer, which nothing follows. Each run of a body has one of its
//!    own, and no number is given twice in a process.
//! 2. `INNERMOST` leads to the frames of the calling thread alone. A frame is linked while its body runs, and lies on
//!    the stack of the function that runs it.
//! 3. Once an access has ended a run (`Frame::end`), no access of that run reaches the transaction any more.

use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status, remember};
use mangrove::heap::{Heap, Stop, Tx};
use mangrove_cabi::{BadArgument, stop_panics};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A transaction, inside its body. It ends when the body returns; a later access with it, or one of another
/// thread, returns MANGROVE_ERR_TX_MISPLACED and touches nothing. (It is a number in the shape of a pointer.)
pub struct mangrove_tx {
    _number: [u8; 0],
}

/// How an access ends the run of a body.
pub(super) enum End {
    /// The body is to be run again.
    Again(Stop),
    /// The transaction fails.
    Failed(Failure),
}

impl From<Stop> for End {
    #[inline]
    fn from(stop: Stop) -> Self {
        match stop.error() {
            Some(error) => Self::Failed(error.clone().into()),
            None => Self::Again(stop),
        }
    }
}

impl From<Failure> for End {
    #[cold]
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<BadArgument> for End {
    #[cold]
    fn from(bad: BadArgument) -> Self {
        Self::Failed(bad.into())
    }
}

/// One run of a body.
pub(super) struct Frame {
    number: usize,
    heap: *const Heap,
    tx: *mut Tx<'static>,
    /// Where the heap lies; `len` is what it had when somebody last looked.
    base: usize,
    len: usize,
    end: Option<End>,
    outer: *mut Self,
}

/// Numbers that a thread takes from the common counter at once.
const NUMBERS: usize = 1 << 16;
static NEXT_NUMBERS: AtomicUsize = AtomicUsize::new(NUMBERS);

thread_local! {
    static INNERMOST: Cell<*mut Frame> = const { Cell::new(null_mut()) };
    static NEXT_NUMBER: Cell<usize> = const { Cell::new(0) };
}

fn next_number() -> usize {
    let mut number = NEXT_NUMBER.get();
    if number.is_multiple_of(NUMBERS) {
        // Relaxed: only the numbers have to differ.
        number = NEXT_NUMBERS.fetch_add(NUMBERS, Ordering::Relaxed);
        // The first of them tells that the others are used up.
        number += 1;
    }
    NEXT_NUMBER.set(number + 1);
    number
}

/// Unlinks the innermost frame, however its body ends.
struct Linked;

impl Drop for Linked {
    fn drop(&mut self) {
        // SAFETY: this thread's innermost frame, which `inside` linked and keeps (invariant 2).
        INNERMOST.set(unsafe { (*INNERMOST.get()).outer });
    }
}

/// Calls `body` with the number of a new run over `tx`. Returns the body's answer, and how an access ended the run,
/// if one did.
pub(super) fn inside<R>(
    heap: &Heap,
    tx: &mut Tx<'_>,
    body: impl FnOnce(*mut mangrove_tx) -> R,
) -> (R, Option<End>) {
    let number = next_number();
    let mut frame = Frame {
        number,
        heap,
        tx: std::ptr::from_mut(tx).cast(),
        base: heap.base(),
        len: 0,
        end: None,
        outer: INNERMOST.get(),
    };
    let place = &raw mut frame;
    INNERMOST.set(place);
    let linked = Linked;
    let answer = body(std::ptr::without_provenance_mut(number));
    drop(linked);
    // SAFETY: `frame` still lies here; it is read by way of the pointer that the accesses wrote it through.
    (answer, unsafe { (*place).end.take() })
}

/// True while the calling thread is inside a transaction on `heap`.
pub(super) fn is_inside(heap: *const Heap) -> bool {
    let mut at = INNERMOST.get();
    while !at.is_null() {
        // SAFETY: linked, so it lies there (invariant 2).
        let frame = unsafe { &*at };
        if frame.heap == heap {
            return true;
        }
        at = frame.outer;
    }
    false
}

/// The run with the number `tx`, if the calling thread is inside of it.
#[inline]
fn find<'a>(tx: *const mangrove_tx) -> Option<&'a mut Frame> {
    let mut at = INNERMOST.get();
    while !at.is_null() {
        // SAFETY: linked, so it lies there (invariant 2). Entry points do not call each other, so that no other
        // reference is alive.
        let frame = unsafe { &mut *at };
        if frame.number == tx.addr() {
            return Some(frame);
        }
        at = frame.outer;
    }
    None
}

#[cold]
fn misplaced() -> mangrove_status {
    guard(|| {
        Err(Failure::new(
            MANGROVE_ERR_TX_MISPLACED,
            "this transaction has ended, or is one of another thread; use the 'tx' that the body was given, \
             inside the body and on its thread",
        ))
    })
}

/// What an access may use: the transaction, and where it may reach.
pub(super) struct Access<'a>(&'a mut Frame);

impl Access<'_> {
    /// The transaction.
    #[inline]
    pub(super) fn tx(&mut self) -> &mut Tx<'static> {
        // SAFETY: its body runs, so nothing else uses it (invariant 2), and entry points do not call each other.
        unsafe { &mut *self.0.tx }
    }

    /// Refuses bytes that do not lie in the heap.
    #[inline]
    pub(super) fn must_hold(&mut self, address: usize, bytes: usize) -> Result<(), End> {
        let offset = address.wrapping_sub(self.0.base);
        if offset < self.0.len && bytes <= self.0.len - offset {
            return Ok(());
        }
        self.must_hold_now(address, bytes)
    }

    #[cold]
    #[inline(never)]
    fn must_hold_now(&mut self, address: usize, bytes: usize) -> Result<(), End> {
        // SAFETY: the heap is open, as a transaction on it runs.
        self.0.len = unsafe { &*self.0.heap }.shadow().len() as usize;
        let (base, len, offset) = (self.0.base, self.0.len, address.wrapping_sub(self.0.base));
        if offset <= len && bytes <= len - offset {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "{bytes} bytes at {address:#x} are not in the heap, which has {len} bytes at {base:#x}; the \
             transaction is undone"
        ))
        .into())
    }
}

/// The body of every access: runs `access` on the caller's transaction. What ends the run is kept, and every later
/// access of the run answers the same.
#[inline]
pub(super) fn with_tx(
    tx: *const mangrove_tx,
    access: impl FnOnce(&mut Access<'_>) -> Result<mangrove_status, End>,
) -> mangrove_status {
    let Some(frame) = find(tx) else { return misplaced() };
    if let Some(end) = &frame.end {
        return status_of(end);
    }
    let end = match stop_panics(|| access(&mut Access(frame))) {
        Ok(Ok(status)) => return status,
        Ok(Err(end)) => end,
        Err(panic) => Failure::new(MANGROVE_ERR_INTERNAL, panic).into(),
    };
    status_of(frame.end.insert(end))
}

fn status_of(end: &End) -> mangrove_status {
    match end {
        End::Again(_) => MANGROVE_TX_STOP,
        End::Failed(failure) => remember(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_twice() {
        let numbers = || (0..3 * NUMBERS / 2).map(|_| next_number()).collect::<Vec<_>>();
        let mut all = std::thread::scope(|scope| {
            let threads = [scope.spawn(numbers), scope.spawn(numbers)];
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        assert!(!all.contains(&0), "NULL is no transaction");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 3 * NUMBERS);
    }
}
