//! The transactions that a thread is inside of, and how their bodies name them.
//!
//! Invariants:
//! 1. A `mangrove_tx *` is a number in the shape of a pointer, which nothing follows. Each run of a body has one of its
//!    own, and no number is given twice in a process.
//! 2. `INNERMOST` leads to the frames of the calling thread alone. A frame is linked from the first run of its body to
//!    its transaction's end, and is no part of the thread's stack: it stays there, whatever the
//!    thread does to that (longjmp).
//! 3. Once an access has ended a run (`TxFrame::end`), no access of that run reaches the transaction any more.
//! 4. A frame is `busy` while an access runs. So a signal handler that comes then finds no transaction.

use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status, remember};
use mangrove::heap::{Heap, HeapResult, Stop, Tx, TxTicket};
use mangrove_cabi::{BadArgument, stop_panics};
use mangrove_sys::{ProcessMark, SecondStack, set_cancelable};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// A transaction, inside its body. It ends when the body returns, or with mangrove_tx_commit or _abort; a later
/// access with it, or one of another thread, returns MANGROVE_ERR_TX_MISPLACED and touches nothing; in a child of
/// fork, MANGROVE_ERR_UNSUPPORTED. (It is a number in the shape of a pointer.)
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

/// How a transaction aborts.
pub(super) enum Aborted {
    Value(i32),
    Failed(Failure),
}

/// What the program wants after a run of the body.
#[derive(Clone, Copy)]
pub(super) enum BodyAnswer {
    Commit,
    Abort(i32),
    /// It says that an access ended the run.
    Stopped,
}

impl BodyAnswer {
    pub(super) fn of_body(answer: i32) -> Self {
        if answer == MANGROVE_OK as i32 {
            Self::Commit
        } else if answer == MANGROVE_TX_STOP as i32 {
            Self::Stopped
        } else {
            Self::Abort(answer)
        }
    }
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TxKind {
    /// Its caller waits until it is durable.
    Waits,
    /// As that, and it rarely or never writes.
    Reads,
    /// Its caller gets a ticket.
    NoWait,
}

/// The ticket of a commit; none if the caller has waited for it.
pub(super) type Committed = Option<TxTicket>;

/// What became of a transaction; the outer error is a panic's message.
pub(super) type Ended = Result<HeapResult<Result<Committed, Aborted>>, String>;

/// A transaction of this thread, and the run of its body.
pub(super) struct TxFrame {
    /// Of the run.
    pub(super) number: usize,
    pub(super) heap: *const Heap,
    pub(super) process: ProcessMark,
    pub(super) tx: *mut Tx<'static>,
    /// Where the heap lies; `len` is its length at the last look.
    pub(super) base: usize,
    pub(super) len: usize,
    /// How an access ended the run, if one did.
    pub(super) end: Option<End>,
    /// An access runs.
    pub(super) busy: Cell<bool>,
    /// A word of the function that called the body, which holds the number; null where the body is no function.
    pub(super) place: *const usize,
    /// The stack that the thread began on.
    pub(super) thread_stack: Range<usize>,
    /// Whether the body's caller is still on that stack, by a walk along it. The frame is linked.
    pub(super) is_alive: unsafe fn(*const Self) -> bool,
    pub(super) outer: *mut Self,
    /// Where the heap's function runs, paused while the body does.
    pub(super) stack: SecondStack,
    pub(super) kind: TxKind,
    /// What the heap is to do with the run.
    pub(super) answer: BodyAnswer,
    /// What became of the transaction, when it has ended.
    pub(super) result: Option<Ended>,
}

/// Numbers that a thread takes from the common counter at once.
const NUMBERS: usize = 1 << 16;
static NEXT_NUMBERS: AtomicUsize = AtomicUsize::new(NUMBERS);

thread_local! {
    static INNERMOST: Cell<*mut TxFrame> = const { Cell::new(null_mut()) };
    static NEXT_NUMBER: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn next_number() -> usize {
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

/// The innermost frame of the calling thread; null without one.
pub(super) fn innermost() -> *mut TxFrame {
    INNERMOST.get()
}

/// Makes `frame` the innermost.
///
/// # Safety
/// It is not linked, and stays where it is until it is unlinked.
pub(super) unsafe fn link(frame: *mut TxFrame) {
    // SAFETY: the caller's promise.
    unsafe { (*frame).outer = INNERMOST.get() };
    INNERMOST.set(frame);
}

/// Takes `frame` out of the list, if it is there.
pub(super) fn unlink(frame: *mut TxFrame) {
    let mut at = INNERMOST.get();
    if at == frame && !at.is_null() {
        // SAFETY: linked, so it is there (invariant 2).
        INNERMOST.set(unsafe { (*frame).outer });
        return;
    }
    while !at.is_null() {
        // SAFETY: as above.
        unsafe {
            if (*at).outer == frame {
                (*at).outer = (*frame).outer;
                return;
            }
            at = (*at).outer;
        }
    }
}

/// The frame whose run has this number, if it is one of the calling thread's.
pub(super) fn find(number: usize) -> *mut TxFrame {
    let mut at = INNERMOST.get();
    // SAFETY: linked, so it is there (invariant 2).
    while !at.is_null() && unsafe { (*at).number } != number {
        // SAFETY: as above.
        at = unsafe { (*at).outer };
    }
    at
}

/// Bytes of stack above a function that are looked at for the frame of the body's caller.
const NEAR_BYTES: usize = 64 << 10;

impl TxFrame {
    /// Whether the thread, which stands at `here`, has left the body by longjmp, as far as its stack shows: it
    /// stands above the frame of the body's caller, or other frames have taken its place. A body may switch to
    /// stacks of its own, as coroutines do; about those nothing is known.
    #[inline]
    fn is_left(&self, here: usize) -> bool {
        let place = self.place.addr();
        // Null, or far above: the usual cases.
        let is_near = place.wrapping_sub(here) < NEAR_BYTES;
        (is_near || here > place && place != 0) && self.is_left_near(here, is_near)
    }

    #[inline]
    fn is_left_near(&self, here: usize, is_near: bool) -> bool {
        // SAFETY: less than `NEAR_BYTES` above a variable of this function: both in one stack, if in the thread's own.
        if is_near && unsafe { self.place.read_volatile() } == self.number {
            return false;
        }
        self.is_left_by_walk(here)
    }

    #[cold]
    #[inline(never)]
    fn is_left_by_walk(&self, here: usize) -> bool {
        // SAFETY: linked, so it is there (invariant 2).
        self.thread_stack.contains(&here)
            && self.thread_stack.contains(&self.place.addr())
            && !unsafe { (self.is_alive)(self) }
    }
}

#[cold]
fn left() -> mangrove_status {
    guard(|| {
        Err(Failure::new(
            MANGROVE_ERR_TX_MISPLACED,
            "the body of this transaction was left by longjmp; the transaction is undone by the thread's next call on \
             a heap, or by its end",
        ))
    })
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
pub(super) struct Access<'a>(&'a mut TxFrame);

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
/// access of the run returns the same.
#[inline]
pub(super) fn with_tx(
    tx: *const mangrove_tx,
    access: impl FnOnce(&mut Access<'_>) -> Result<mangrove_status, End>,
) -> mangrove_status {
    let frame = find(tx.addr());
    if frame.is_null() {
        return misplaced();
    }
    // SAFETY: linked, so it is there (invariant 2). Only a signal handler comes between, and finds it busy.
    let frame = unsafe { &mut *frame };
    if frame.busy.get() {
        return misplaced();
    }
    if !frame.process.is_here() {
        return forked();
    }
    if frame.is_left(std::ptr::from_ref(&tx).addr()) {
        return left();
    }
    if let Some(end) = &frame.end {
        return status_of(end);
    }
    frame.busy.set(true);
    compiler_fence(Ordering::SeqCst);
    let answer = stop_panics(|| access(&mut Access(frame)));
    compiler_fence(Ordering::SeqCst);
    frame.busy.set(false);
    let end = match answer {
        Ok(Ok(status)) => return status,
        Ok(Err(end)) => end,
        Err(panic) => Failure::new(MANGROVE_ERR_INTERNAL, panic).into(),
    };
    status_of(frame.end.insert(end))
}

/// As [`with_tx`], for what may grow the heap's file: a cancellation waits until it has ended.
pub(super) fn with_tx_uncancelled(
    tx: *const mangrove_tx,
    access: impl FnOnce(&mut Access<'_>) -> Result<mangrove_status, End>,
) -> mangrove_status {
    let was_cancelable = set_cancelable(false);
    let status = with_tx(tx, access);
    set_cancelable(was_cancelable);
    status
}

#[cold]
fn forked() -> mangrove_status {
    guard(|| Err(forked_inside()))
}

/// The error of the child of a fork inside a transaction.
pub(super) fn forked_inside() -> Failure {
    Failure::new(
        MANGROVE_ERR_UNSUPPORTED,
        "this process was forked inside a transaction, which is its parent's; the child leaves it alone and opens \
         the heap itself, when the parent has closed it",
    )
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
