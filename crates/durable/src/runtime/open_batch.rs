//! The batch that a program fills itself, call by call: which thread has it open.
//!
//! Invariants:
//! 1. At most one thread has the batch open; only that thread runs commands into it, and ends it.
//! 2. The thread that has it open holds the combiner. A thread that ends lets go: its batch is lost, and everything
//!    later fails.

use crate::{Error, Result};
use mangrove_sys::thread_mark;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The owner of the open batch, and how many calls it has made.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    /// The mark of the thread; 0: no batch is open.
    owner: AtomicUsize,
    calls: AtomicU64,
}

impl OpenBatch {
    /// Whether the calling thread has it open.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        // Relaxed: a thread sees its own stores, and no other living thread stores its mark.
        self.owner.load(Ordering::Relaxed) == thread_mark()
    }

    /// Whether any thread has it open.
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed: only a message depends on it.
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// Makes the calling thread the owner.
    ///
    /// # Errors
    /// `Batch`, when another thread is.
    pub(crate) fn take(&self) -> Result<()> {
        // Relaxed: the combiner's lock, taken next, orders the batches.
        match self.owner.compare_exchange(0, thread_mark(), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(another_thread()),
        }
    }

    /// Counts a call of the owner.
    #[inline]
    pub(crate) fn count(&self) {
        // Relaxed, and not one instruction: only the owner counts.
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Ends the batch of the calling thread, which still holds the combiner: the next owner counts only after it.
    pub(crate) fn end(&self) {
        self.calls.store(0, Ordering::Relaxed);
        // Relaxed: as in `take`.
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// A state whose open batch can be lost.
pub(crate) trait LosesBatch: Send + Sync {
    /// The calling thread ends, with a batch open perhaps.
    fn lose_batch(&self);
}

/// The states of which the thread has a batch open, for its end.
struct Opened(RefCell<Vec<Weak<dyn LosesBatch>>>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: ask for numbers.
        let (thread, process) = unsafe { (libc::syscall(libc::SYS_gettid), libc::getpid()) };
        if thread == libc::c_long::from(process) {
            // The process ends, most likely.
            return;
        }
        for state in self.0.take().iter().filter_map(Weak::upgrade) {
            state.lose_batch();
        }
    }
}

thread_local! {
    static OPENED: Opened = const { Opened(RefCell::new(Vec::new())) };
}

/// Notes that the calling thread has a batch open.
pub(crate) fn note_opened<S: LosesBatch + 'static>(state: &Arc<S>) {
    let state: Weak<S> = Arc::downgrade(state);
    // Unless its thread-local variables are destroyed already.
    let _ = OPENED.try_with(|open| open.0.borrow_mut().push(state));
}

/// Notes that it has ended it.
pub(crate) fn note_ended<S>(state: &S) {
    let _ = OPENED.try_with(|open| open.0.borrow_mut().retain(|one| !std::ptr::addr_eq(one.as_ptr(), state)));
}

/// The error for a thread that is not the owner.
pub(crate) fn another_thread() -> Error {
    Error::Batch {
        what:
            "another thread has a batch open; one thread at a time runs commands into a batch and commits it"
                .into(),
    }
}

/// The error for a commit of nothing.
pub(crate) fn nothing_open() -> Error {
    Error::Batch { what: "no batch is open: run a command into one before the commit".into() }
}

/// The error for a call that would wait for the batch of its own thread.
pub(crate) fn commit_first() -> Error {
    Error::Batch { what: "this thread has a batch open; commit it first".into() }
}

/// The error for a forked child.
pub(crate) fn forked() -> Error {
    Error::Batch {
        what: "this process was forked from the one that opened the state, and only that one writes; exec or _exit"
            .into(),
    }
}
