//! A transaction of C: the heap's function runs on a second stack and pauses while the body runs on the thread's own.
//!
//! So a body may leave in any way. What unwinds the thread's stack (a C++ exception, pthread_exit, a cancellation)
//! passes no frame of the heap's, and a guard beside the body cancels the transaction on the way. A longjmp runs no
//! guard: then the transaction stays paused, until the thread's next call finds that the body's caller is gone
//! (`is_alive`), or the thread ends (`Ending`).
//!
//! 1. `IN_LIBRARY` is set while a heap's function runs, whichever it is (`Inside`). A signal handler that comes then is
//!    refused before it touches anything: the thread may hold a lock of the heap, which the handler would wait for.
//! 2. What a signal handler may reach until it is refused allocates nothing.
//! 3. Every function of a heap begins with `enter`, so each undoes what the thread has left by longjmp.

use super::errors::NESTED;
use super::frame::{
    self, Aborted, BodyAnswer, Committed, End, Ended, TxFrame, TxKind, find, forked_inside, innermost, link,
    next_number, unlink,
};
use crate::status::Failure;
use crate::status::mangrove_status::*;
use mangrove::heap::{Cancel, Heap, Tx};
use mangrove_cabi::stop_panics;
use mangrove_sys::{CallState, ProcessMark, SecondStack, call_state, set_cancelable, thread_stack};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{Ordering, compiler_fence};

/// What comes after a run of the body.
pub(super) enum AfterRun {
    /// The body runs again, with this number.
    Again(usize),
    Committed(Committed),
    Aborted(i32),
}

thread_local! {
    /// A heap's function runs on this thread.
    static IN_LIBRARY: Cell<bool> = const { Cell::new(false) };
    /// A frame that no transaction uses.
    static SPARE: Spare = const { Spare(Cell::new(null_mut())) };
    /// Touched when the executor's own variables of the thread are there: it is destroyed before them.
    static ENDING: Ending = const { Ending };
}

struct Spare(Cell<*mut TxFrame>);

impl Drop for Spare {
    fn drop(&mut self) {
        let frame = self.0.replace(null_mut());
        if !frame.is_null() {
            // SAFETY: from `Box::into_raw`, and no transaction's.
            drop(unsafe { Box::from_raw(frame) });
        }
    }
}

/// The end of a thread: what it has left open is undone.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        loop {
            let frame = innermost();
            // In the library, or in an access, the thread ends by `exit` in a signal handler that has interrupted that.
            // What is half-way there cannot be undone from here, and stays as after a crash.
            // SAFETY: linked, so it is there, and this thread's.
            if frame.is_null() || IN_LIBRARY.get() || unsafe { (*frame).busy.get() } {
                return;
            }
            cancel(frame);
        }
    }
}

/// Begins a transaction; returns the number of the body's first run.
///
/// # Errors
/// `_TX_MISPLACED` inside a transaction on the heap, or in the library; what the heap says.
pub(super) fn begin(heap: &Heap, process: ProcessMark, kind: TxKind) -> Result<usize, Failure> {
    let _inside = enter_outside(heap)?;
    let frame = free_frame(heap, process, kind)?;
    // SAFETY: a free frame, which this thread alone uses, and which stays where it is.
    unsafe {
        link(frame);
        advance(frame);
        match (*frame).result.take() {
            None => Ok((*frame).number),
            Some(ended) => {
                give_back(frame);
                match next(ended) {
                    Err(failure) => Err(failure),
                    Ok(_) => unreachable!("a transaction ends after its body"),
                }
            }
        }
    }
}

/// Ends the run with this number.
///
/// # Errors
/// The transaction's; all is undone then. `_UNSUPPORTED` in a child of fork, where the transaction is left alone.
pub(super) fn conclude(_: &Inside, number: usize, answer: BodyAnswer) -> Result<AfterRun, Failure> {
    let frame = find(number);
    if frame.is_null() {
        return Err(Failure::new(
            MANGROVE_ERR_TX_MISPLACED,
            "the transaction was undone, because its thread began another one on a stack without this body",
        ));
    }
    // SAFETY: linked, so it is there, and this thread's.
    unsafe {
        if !(*frame).process.is_here() {
            // The frame and what it has of the heap are the parent's.
            unlink(frame);
            return Err(forked_inside());
        }
        (*frame).answer = answer;
        advance(frame);
        match (*frame).result.take() {
            None => Ok(AfterRun::Again((*frame).number)),
            Some(ended) => {
                give_back(frame);
                next(ended)
            }
        }
    }
}

fn next(ended: Ended) -> Result<AfterRun, Failure> {
    match ended.map_err(|panic| Failure::new(MANGROVE_ERR_INTERNAL, panic))?? {
        Ok(ticket) => Ok(AfterRun::Committed(ticket)),
        Err(Aborted::Value(value)) => Ok(AfterRun::Aborted(value)),
        Err(Aborted::Failed(failure)) => Err(failure),
    }
}

/// Undoes a transaction whose body will not return.
pub(super) fn cancel(frame: *mut TxFrame) {
    let _inside = Inside::begin();
    // SAFETY: linked, so it is there, and this thread's.
    unsafe {
        if !(*frame).process.is_here() {
            unlink(frame);
            return;
        }
        // An attempt that has met another transaction runs again, however its body ended.
        while (*frame).result.is_none() {
            (*frame).answer = BodyAnswer::Abort(0);
            (*frame).end = None;
            advance(frame);
        }
        (*frame).result = None;
    }
    give_back(frame);
}

/// The thread runs a function of a heap. Its cancellation waits, because that writes files, and no frame of it may be
/// unwound.
pub(super) struct Inside {
    was_inside: bool,
    cancelable: bool,
}

impl Inside {
    pub(super) fn begin() -> Self {
        let cancelable = set_cancelable(false);
        let was_inside = IN_LIBRARY.replace(true);
        compiler_fence(Ordering::SeqCst);
        Self { was_inside, cancelable }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        IN_LIBRARY.set(self.was_inside);
        set_cancelable(self.cancelable);
    }
}

/// How every function of a heap begins: undoes what the thread has left by longjmp.
///
/// # Errors
/// `_TX_MISPLACED` for a signal handler that has interrupted its thread in the library.
pub(super) fn enter() -> Result<Inside, Failure> {
    if IN_LIBRARY.get() {
        return Err(interrupts());
    }
    let inside = Inside::begin();
    let mut at = innermost();
    while !at.is_null() {
        // SAFETY: linked, so it is there.
        unsafe {
            if (*at).busy.get() {
                return Err(interrupts());
            }
            let outer = (*at).outer;
            // In a child of fork it is the parent's; the heap will say so.
            if (*at).process.is_here() && !is_alive(at) {
                cancel(at);
            }
            at = outer;
        }
    }
    Ok(inside)
}

/// As [`enter`], for what cannot run inside a transaction on `heap`.
///
/// # Errors
/// `_TX_MISPLACED`, also there.
pub(super) fn enter_outside(heap: *const Heap) -> Result<Inside, Failure> {
    let inside = enter()?;
    if is_in_transaction(heap) {
        return Err(Failure::new(MANGROVE_ERR_TX_MISPLACED, NESTED));
    }
    Ok(inside)
}

/// Whether the thread is inside a transaction on `heap`, once [`enter`] has undone those that it has left.
pub(super) fn is_in_transaction(heap: *const Heap) -> bool {
    let mut at = innermost();
    while !at.is_null() {
        // SAFETY: linked, so it is there.
        unsafe {
            if (*at).heap == heap && (*at).process.is_here() {
                return true;
            }
            at = (*at).outer;
        }
    }
    false
}

#[cold]
fn interrupts() -> Failure {
    Failure::new(
        MANGROVE_ERR_TX_MISPLACED,
        "a signal handler called the heap while its thread was inside the library; let another thread do that",
    )
}

/// A frame for a transaction, not linked.
fn free_frame(heap: &Heap, process: ProcessMark, kind: TxKind) -> Result<*mut TxFrame, Failure> {
    let spare = SPARE.try_with(|spare| spare.0.replace(null_mut())).unwrap_or(null_mut());
    if !spare.is_null() {
        // SAFETY: no transaction uses it.
        unsafe {
            (*spare).number = 0;
            (*spare).heap = heap;
            (*spare).process = process;
            (*spare).base = heap.base();
            (*spare).kind = kind;
            (*spare).len = 0;
            (*spare).place = null();
        }
        return Ok(spare);
    }
    let stack = SecondStack::new().map_err(|error| {
        Failure::new(MANGROVE_ERR_NO_MEMORY, format!("there is no memory for a transaction's stack: {error}"))
    })?;
    Ok(Box::into_raw(Box::new(TxFrame {
        number: 0,
        heap,
        process,
        tx: null_mut(),
        base: heap.base(),
        len: 0,
        end: None,
        busy: Cell::new(false),
        place: null(),
        thread_stack: thread_stack(),
        is_alive,
        outer: null_mut(),
        stack,
        kind,
        answer: BodyAnswer::Abort(0),
        result: None,
    })))
}

/// Takes back the frame of a transaction that has ended.
fn give_back(frame: *mut TxFrame) {
    unlink(frame);
    let last = SPARE.try_with(|spare| spare.0.replace(frame)).unwrap_or(frame);
    if !last.is_null() {
        // SAFETY: from `Box::into_raw`, and no transaction's.
        drop(unsafe { Box::from_raw(last) });
    }
}

/// Lets the heap's function run until the body's next run, or to its end.
///
/// # Safety
/// The frame is this thread's, in the process that made it, and the thread is [`Inside`].
unsafe fn advance(frame: *mut TxFrame) {
    // SAFETY: the function stops panics; what it uses is the frame and the heap, which the caller keeps.
    unsafe {
        (*frame).busy.set(true);
        compiler_fence(Ordering::SeqCst);
        let stack = &raw const (*frame).stack;
        if (*stack).is_in_use() {
            (*stack).go_on();
        } else {
            (*stack).start(transact, frame.cast());
        }
        compiler_fence(Ordering::SeqCst);
        (*frame).busy.set(false);
    }
}

/// The heap's function.
unsafe extern "C" fn transact(frame: *mut c_void) {
    let frame = frame.cast::<TxFrame>();
    let ended = stop_panics(|| {
        // SAFETY: `advance` keeps both; the body's side does not run now.
        let (heap, kind) = unsafe { (&*(*frame).heap, (*frame).kind) };
        let body = |tx: &mut Tx<'_>| {
            let _ = ENDING.try_with(|_| ());
            // SAFETY: as above; the pause ends when the run has.
            let (end, answer) = unsafe {
                (*frame).tx = std::ptr::from_mut(tx).cast();
                (*frame).number = next_number();
                (*frame).end = None;
                (*frame).stack.pause();
                (*frame).tx = null_mut();
                ((*frame).end.take(), (*frame).answer)
            };
            Err(match (end, answer) {
                (Some(End::Again(stop)), _) => Cancel::Stop(stop),
                (Some(End::Failed(failure)), _) => Cancel::Abort(Aborted::Failed(failure)),
                (None, BodyAnswer::Commit) => return Ok(()),
                (None, BodyAnswer::Abort(value)) => Cancel::Abort(Aborted::Value(value)),
                (None, BodyAnswer::Stopped) => Cancel::Abort(Aborted::Failed(Failure::invalid(
                    "the body returned MANGROVE_TX_STOP, but no access had; the transaction was undone",
                ))),
            })
        };
        Ok(match kind {
            TxKind::Waits => heap.try_transaction(body)?.map(|()| None),
            TxKind::Reads => heap.try_read(body)?.map(|()| None),
            TxKind::NoWait => heap.try_transaction_nowait(body)?.map(|((), ticket)| Some(ticket)),
        })
    });
    // SAFETY: as above.
    unsafe { (*frame).result = Some(ended) };
}

/// The function that calls a body. While its frame is on the stack, the body has not been left.
///
/// # Safety
/// The caller's `body` and `arg`, and the number of a run that has just begun.
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn call_body(
    number: usize,
    body: unsafe extern "C-unwind" fn(*mut frame::mangrove_tx, *mut c_void) -> i32,
    arg: *mut c_void,
) -> i32 {
    /// Cancels the transaction when its body is left by unwinding.
    struct Left(usize);

    impl Drop for Left {
        fn drop(&mut self) {
            let frame = find(self.0);
            if !frame.is_null() {
                cancel(frame);
            }
        }
    }

    let mut word = 0usize;
    let place = &raw mut word;
    // SAFETY: a variable of this function; the run's frame is linked; and the caller's promise.
    unsafe {
        place.write_volatile(number);
        (*find(number)).place = place;
        let left = Left(number);
        let answer = body(std::ptr::without_provenance_mut(number), arg);
        std::mem::forget(left);
        let frame = find(number);
        if !frame.is_null() {
            (*frame).place = null();
        }
        place.write_volatile(0);
        answer
    }
}

/// Whether the function that called this transaction's body is still on the stack.
///
/// # Safety
/// The frame is linked.
unsafe fn is_alive(frame: *const TxFrame) -> bool {
    // SAFETY: the caller's promise.
    let (place, number) = unsafe { ((*frame).place, (*frame).number) };
    // A transaction by begin and commit waits for these calls.
    if place.is_null() {
        return true;
    }
    match call_state(place.addr(), call_body as *const () as usize) {
        CallState::Left => false,
        // SAFETY: a word in a frame that is alive, which `call_body` keeps while the body runs.
        CallState::Waits => unsafe { place.read_volatile() == number },
        // A signal handler: whether the body was left, the thread's next call finds out.
        CallState::Unknown => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread's destructors find when a signal handler calls `exit`, which runs them.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Interrupted {
        Nothing,
        Library,
        Access,
    }

    #[test]
    fn an_ending_thread_undoes_its_transaction_unless_it_is_interrupted_in_the_library() {
        for interrupted in [Interrupted::Nothing, Interrupted::Library, Interrupted::Access] {
            let folder = tempfile::tempdir().unwrap();
            let mut heap = Heap::options().capacity(256 << 20).open(folder.path().join("heap")).unwrap();
            let end_inside = || {
                begin(&heap, ProcessMark::here(), TxKind::Waits).unwrap();
                match interrupted {
                    Interrupted::Nothing => {}
                    Interrupted::Library => std::mem::forget(Inside::begin()),
                    // SAFETY: the frame of the transaction that has just begun.
                    Interrupted::Access => unsafe { (*innermost()).busy.set(true) },
                }
            };
            std::thread::scope(|scope| scope.spawn(end_inside).join().unwrap());
            let is_open = heap.has_open_transaction();
            assert_eq!(is_open, interrupted != Interrupted::Nothing);
            if is_open {
                // The transaction uses it.
                std::mem::forget(heap);
            }
        }
    }
}
