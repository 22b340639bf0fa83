//! Every interleaving of the rounds of a crew, by loom: `src/rounds.rs` itself, with loom's atomics and an event count
//! made of its mutex in its `sync` module.

#[path = "../src/replay/rounds.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses more of it than the model does")]
mod rounds;

/// The module `crate::sync` for `src/rounds.rs` in this program.
mod sync {
    pub(crate) use loom::sync::atomic::AtomicBool;
    pub(crate) use std::sync::atomic::Ordering;

    std::thread_local! {
        /// The injected faults: an ordering that has no effect, and notifying that does nothing.
        pub(super) static WEAK: std::cell::Cell<Option<Ordering>> = const { std::cell::Cell::new(None) };
        pub(super) static SILENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        /// With that fault: a thread has waited. It goes on here, since loom cannot end threads that wait.
        pub(super) static WAITED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    fn order(order: Ordering) -> Ordering {
        if WEAK.get() == Some(order) { Ordering::Relaxed } else { order }
    }

    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, o: Ordering) -> u64 {
            self.0.load(order(o))
        }

        pub(crate) fn store(&self, value: u64, o: Ordering) {
            self.0.store(value, order(o));
        }

        pub(crate) fn fetch_add(&self, value: u64, o: Ordering) -> u64 {
            self.0.fetch_add(value, order(o))
        }
    }

    /// Wakes those that wait with a ticket drawn before the notification. (If nobody wakes a thread, loom finds no
    /// thread that can run, and fails.)
    pub(crate) struct EventCount {
        count: loom::sync::Mutex<u64>,
        changed: loom::sync::Condvar,
    }

    impl EventCount {
        pub(crate) fn new() -> Self {
            Self { count: loom::sync::Mutex::new(0), changed: loom::sync::Condvar::new() }
        }

        pub(crate) fn ticket(&self) -> u64 {
            *self.count.lock().unwrap()
        }

        pub(crate) fn wait(&self, ticket: u64) {
            if SILENT.get() {
                WAITED.set(true);
                return loom::thread::yield_now();
            }
            let mut count = self.count.lock().unwrap();
            while *count == ticket {
                count = self.changed.wait(count).unwrap();
            }
        }

        pub(crate) fn notify_all(&self) {
            if !SILENT.get() {
                *self.count.lock().unwrap() += 1;
                self.changed.notify_all();
            }
        }
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use rounds::Rounds;
use std::sync::atomic::Ordering;
use sync::{SILENT, WAITED, WEAK};

/// The step, which the caller of `begin` writes, and what each thread has made of it.
struct Crew {
    rounds: Rounds,
    step: UnsafeCell<u64>,
    done: [UnsafeCell<u64>; 2],
}

/// Two rounds of `helpers` threads; each adds the step to what it has done, and the caller reads it after the round.
fn two_rounds(helpers: usize) {
    let crew = Arc::new(Crew {
        rounds: Rounds::new(helpers),
        step: UnsafeCell::new(0),
        done: [UnsafeCell::new(0), UnsafeCell::new(0)],
    });
    let help = |number: usize| {
        let crew = Arc::clone(&crew);
        thread::spawn(move || {
            let mut seen = 0;
            while crew.rounds.next(number, &mut seen) {
                // SAFETY: the caller writes the step between rounds only; loom reports it if not.
                let step = crew.step.with(|step| unsafe { *step });
                // SAFETY: this thread's own, during a round; as above.
                crew.done[number].with_mut(|done| unsafe { *done += step });
                crew.rounds.end();
            }
        })
    };
    let threads: Vec<_> = (0..helpers).map(help).collect();
    for step in [1, 2] {
        // SAFETY: no round is under way.
        crew.step.with_mut(|it| unsafe { *it = step });
        crew.rounds.begin(0..helpers);
        crew.rounds.wait();
        for done in &crew.done[..helpers] {
            // SAFETY: the round has ended.
            assert_eq!(done.with(|done| unsafe { *done }), [1, 3][step as usize - 1], "after round {step}");
        }
    }
    crew.rounds.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Threads have more interleavings than a test has time for; those with few switches find the injected faults.
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

#[test]
fn every_thread_does_every_round_once_and_its_work_is_seen() {
    bounded(|| two_rounds(1));
    bounded(|| two_rounds(2));
}

#[test]
fn orderings_that_have_no_effect_are_caught() {
    for order in [Ordering::Release, Ordering::AcqRel] {
        WEAK.set(Some(order));
        let caught = std::panic::catch_unwind(|| bounded(|| two_rounds(1)));
        WEAK.set(None);
        assert!(caught.is_err(), "{order:?} is not needed, or nobody noticed");
    }
}

#[test]
fn a_round_that_begins_or_ends_in_silence_is_caught() {
    SILENT.set(true);
    bounded(|| two_rounds(1));
    SILENT.set(false);
    assert!(WAITED.get(), "no thread has waited for what nobody notified");
}
