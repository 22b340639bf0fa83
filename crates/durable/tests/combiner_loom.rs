//! The combiner of `src/runtime/combiner.rs` under loom: what weakly ordered memory may do to its flags.
//!
//! Loom has no total order of sequentially consistent accesses, only of fences; so the barriers that
//! the code asks for are fences here, and leaving one out must be noticed.

#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what the tests point to lives on their stacks, and waits"
)]

#[path = "../src/runtime/combiner.rs"]
#[allow(dead_code, reason = "the crate uses more of it than the model does")]
mod combiner;
#[path = "../src/runtime/slots.rs"]
#[allow(dead_code, reason = "the crate uses more of it than the model does")]
mod slots;

mod sync {
    use loom::sync::atomic::fence;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    pub(crate) use loom::thread_local;

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(crate) struct AsymmetricBarrier;

    impl AsymmetricBarrier {
        pub(crate) fn detect() -> Self {
            Self
        }

        pub(crate) fn light(&self) {
            fence(Ordering::SeqCst);
        }

        pub(crate) fn heavy(&self) {
            fence(Ordering::SeqCst);
        }
    }

    /// One client has a flag of its own; the others share a counter.
    pub(crate) const OWN_FLAGS: usize = 1;
    pub(crate) const SHARED_COUNTERS: usize = 1;

    /// A number of the model's thread; the process's threads are others.
    pub(crate) fn thread_mark() -> usize {
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&loom::thread::current().id(), &mut hasher);
        std::hash::Hasher::finish(&hasher) as usize | 1
    }

    pub(crate) fn barrier_after_rmw() {
        if !super::WITHOUT_BARRIER.load(std::sync::atomic::Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }

    /// Never spins: loom explores sleeping, where wake-ups can be lost.
    pub(crate) struct Patience;

    impl Patience {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn spin(&mut self) -> bool {
            loom::thread::yield_now();
            false
        }
    }

    pub(crate) struct EventCount {
        word: loom::sync::Mutex<u32>,
        opened: loom::sync::Condvar,
    }

    impl EventCount {
        pub(crate) fn new() -> Self {
            Self { word: loom::sync::Mutex::new(0), opened: loom::sync::Condvar::new() }
        }

        pub(crate) fn ticket(&self) -> u32 {
            *self.word.lock().unwrap()
        }

        pub(crate) fn wait(&self, ticket: u32) {
            let mut word = self.word.lock().unwrap();
            while *word == ticket {
                word = self.opened.wait(word).unwrap();
            }
        }

        pub(crate) fn notify_all(&self) {
            *self.word.lock().unwrap() += 1;
            self.opened.notify_all();
        }
    }
}

use combiner::Combiner;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::AtomicBool;

/// The injected fault: the barriers between setting a flag and looking at the other are left out.
static WITHOUT_BARRIER: AtomicBool = AtomicBool::new(false);
/// Models share the flag above, so they take turns.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

struct Model {
    combiner: Combiner<u32>,
    /// Loom itself fails when this is written beside any other access.
    state: UnsafeCell<u32>,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self { combiner: Combiner::new(), state: UnsafeCell::new(0) })
    }

    fn add(&self, slot: &slots::ClientSlot<u32>, settles: bool) {
        let mut job = 1;
        let execute = |jobs: &[std::ptr::NonNull<u32>]| {
            for job in jobs {
                self.state.with_mut(|state| unsafe { *state += *job.as_ptr() });
                unsafe { *job.as_ptr() = 0 };
            }
        };
        if settles {
            self.combiner.write_and_settle(slot, &mut job, execute, |job| assert_eq!(*job, 0, "done"));
        } else {
            self.combiner.write(slot, &mut job, execute);
        }
        assert_eq!(job, 0, "done and seen");
    }

    fn look(&self, slot: &slots::ClientSlot<u32>) -> u32 {
        self.combiner.read(slot, || self.state.with(|state| unsafe { *state }))
    }
}

// SAFETY: the combiner must make it sound, which the model tests.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

fn check(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(body);
}

fn a_writer_and_a_reader() {
    let model = Model::new();
    let (first, second) = (Arc::clone(&model), Arc::clone(&model));
    let writer = thread::spawn(move || first.add(first.combiner.join().unwrap(), true));
    let slot = second.combiner.join().unwrap();
    let seen = second.look(slot);
    assert!(seen <= 1);
    writer.join().unwrap();
    assert_eq!(model.look(slot), 1);
}

fn two_writers() {
    let model = Model::new();
    let (first, second) = (Arc::clone(&model), Arc::clone(&model));
    let writer = thread::spawn(move || first.add(first.combiner.join().unwrap(), true));
    let slot = second.combiner.join().unwrap();
    second.add(slot, false);
    writer.join().unwrap();
    assert_eq!(model.look(slot), 2);
}

#[test]
fn a_reader_beside_a_writer_sees_all_or_nothing() {
    let _one = ONE.lock().unwrap();
    check(a_writer_and_a_reader);
}

#[test]
fn two_writers_both_end() {
    let _one = ONE.lock().unwrap();
    check(two_writers);
}

#[test]
fn a_barrier_left_out_is_caught() {
    let _one = ONE.lock().unwrap();
    WITHOUT_BARRIER.store(true, std::sync::atomic::Ordering::Relaxed);
    let found = std::panic::catch_unwind(|| check(a_writer_and_a_reader));
    WITHOUT_BARRIER.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(found.is_err(), "a reader that does not see the writer went unnoticed");
}
