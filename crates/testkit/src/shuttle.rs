//! Locks and gates for code that is compiled against shuttle: what it finds as `crate::sync` in a model.

pub use shuttle::sync::MutexGuard;
use shuttle::thread::yield_now;
use std::cell::Cell;
use std::time::Duration;

std::thread_local! {
    /// Planted bugs (shuttle runs all threads of a model on one thread of the system): a sleeper forgets its
    /// ticket, and with it what opened the gate meanwhile;
    pub static FORGETFUL: Cell<bool> = const { Cell::new(false) };
    /// who waits for a limited time waits as long as it takes;
    pub static PATIENT: Cell<bool> = const { Cell::new(false) };
    /// gates advance and wake nobody.
    pub static SLEEPY: Cell<bool> = const { Cell::new(false) };
}

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock.
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Takes it.
    ///
    /// # Panics
    /// When who had it panicked.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("unpoisoned")
    }
}

/// As `mangrove_sys::Gate`, with the same two halves of an opening.
#[derive(Debug)]
pub struct Gate {
    word: Mutex<u32>,
    opened: shuttle::sync::Condvar,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate.
    #[must_use]
    pub fn new() -> Self {
        Self { word: Mutex::new(0), opened: shuttle::sync::Condvar::new() }
    }

    /// What a later `wait` compares with.
    pub fn ticket(&self) -> u32 {
        *self.word.lock()
    }

    /// Sleeps until the gate opens, unless it has since the ticket.
    ///
    /// # Panics
    /// When who had the lock panicked.
    pub fn wait(&self, ticket: u32) {
        let mut word = self.word.lock();
        let ticket = if FORGETFUL.get() { *word } else { ticket };
        while *word == ticket {
            word = self.opened.wait(word).expect("unpoisoned");
        }
    }

    /// As `wait`, and the limit passes after a few turns of the others; false then.
    pub fn wait_for(&self, ticket: u32, _limit: Duration) -> bool {
        if PATIENT.get() {
            self.wait(ticket);
        }
        for _ in 0..3 {
            if self.ticket() != ticket {
                return true;
            }
            yield_now();
        }
        self.ticket() != ticket
    }

    /// Opens it: who sleeps goes on.
    pub fn open(&self) {
        self.advance();
        self.wake();
    }

    /// First half of `open`.
    pub fn advance(&self) {
        *self.word.lock() += 1;
    }

    /// Second half of `open`.
    pub fn wake(&self) {
        if SLEEPY.get() {
            return;
        }
        // The futex compares again before it sleeps; a condition variable needs the lock for that.
        let _word = self.word.lock();
        self.opened.notify_all();
    }
}
