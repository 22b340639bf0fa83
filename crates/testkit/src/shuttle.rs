//! Locks and event counts for code that is compiled against shuttle: what it finds as `crate::sync` in a model. And
//! searches of a model's schedules that are the same in every run.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
pub use shuttle::sync::MutexGuard;
use shuttle::thread::yield_now;
use shuttle::{Config, FailurePersistence, Runner};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where every search begins, so that a verdict is the model's and not the generator's. A longer campaign begins
/// elsewhere: shuttle takes the number from `SHUTTLE_RANDOM_SEED` instead where that is set.
const SEED: u64 = 1;

/// As `shuttle::check_random`, with the same schedules in every run.
pub fn check_random(body: impl Fn() + Send + Sync + 'static, schedules: usize) {
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules), Config::default()).run(body);
}

/// As `shuttle::check_pct`, with the same schedules in every run.
pub fn check_pct(body: impl Fn() + Send + Sync + 'static, schedules: usize, depth: usize) {
    Runner::new(PctScheduler::new_from_seed(SEED, depth, schedules), Config::default()).run(body);
}

/// For a planted bug: at which of [`check_random`]'s schedules the model fails.
pub fn found_by_random(body: impl Fn() + Send + Sync + 'static, schedules: usize) -> Option<usize> {
    found_by(RandomScheduler::new_from_seed(SEED, schedules), body)
}

/// For a planted bug: at which of [`check_pct`]'s schedules the model fails.
pub fn found_by_pct(
    body: impl Fn() + Send + Sync + 'static,
    schedules: usize,
    depth: usize,
) -> Option<usize> {
    found_by(PctScheduler::new_from_seed(SEED, depth, schedules), body)
}

fn found_by(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) -> Option<usize> {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = {
        let begun = Arc::clone(&begun);
        move || {
            begun.fetch_add(1, Ordering::Relaxed);
            body();
        }
    };
    let mut config = Config::default();
    config.failure_persistence = FailurePersistence::None;
    let outcome = catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(counted)));
    outcome.is_err().then(|| begun.load(Ordering::Relaxed))
}

std::thread_local! {
    /// Planted bugs (shuttle runs all threads of a model on one thread of the system): a sleeper forgets its
    /// ticket, and with it the events since;
    pub static FORGETFUL: Cell<bool> = const { Cell::new(false) };
    /// A wait with a time limit waits without a limit.
    pub static PATIENT: Cell<bool> = const { Cell::new(false) };
    /// an event advances the count and wakes no thread.
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

    /// Takes the lock.
    ///
    /// # Panics
    /// When the thread that held it panicked.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("unpoisoned")
    }
}

/// As `mangrove_sys::AsymmetricBarrier`. Shuttle's memory is sequentially consistent, so barriers do nothing.
#[derive(Debug)]
pub struct AsymmetricBarrier;

impl AsymmetricBarrier {
    /// A barrier.
    #[must_use]
    pub fn detect() -> Self {
        Self
    }

    /// The half of the frequent side.
    pub fn light(&self) {}

    /// The half of the rare side.
    pub fn heavy(&self) {}
}

/// As `mangrove_sys::EventCount`, with the same two halves of an event.
#[derive(Debug)]
pub struct EventCount {
    word: Mutex<u32>,
    notified: shuttle::sync::Condvar,
}

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// An event count without events.
    #[must_use]
    pub fn new() -> Self {
        Self { word: Mutex::new(0), notified: shuttle::sync::Condvar::new() }
    }

    /// What a later `wait` compares with.
    pub fn ticket(&self) -> u32 {
        *self.word.lock()
    }

    /// Sleeps until there is an event after the ticket was taken.
    ///
    /// # Panics
    /// When the thread that held the lock panicked.
    pub fn wait(&self, ticket: u32) {
        let mut word = self.word.lock();
        let ticket = if FORGETFUL.get() { *word } else { ticket };
        while *word == ticket {
            word = self.notified.wait(word).expect("unpoisoned");
        }
    }

    /// As `wait`, but the limit passes after a few turns of the other threads; returns false then.
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

    /// An event: every sleeping thread continues.
    pub fn notify_all(&self) {
        self.advance();
        self.wake();
    }

    /// First half of `notify_all`.
    pub fn advance(&self) {
        *self.word.lock() += 1;
    }

    /// Second half of `notify_all`.
    pub fn wake(&self) {
        if SLEEPY.get() {
            return;
        }
        // The futex compares again before it sleeps; a condition variable needs the lock for that.
        let _word = self.word.lock();
        self.notified.notify_all();
    }
}
