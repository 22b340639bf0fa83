//! Every interleaving of the rounds of a crew, by loom: `src/rounds.rs` itself, with loom's atomics and an event count
//! made of its mutex in its `sync` module.

#[path = "../src/replay/rounds.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses more of it than the model does")]
mod rounds;

/// The module `crate::sync` for `src/rounds.rs` in this program.
#[path = "support/loom_sync.rs"]
mod sync;

std::thread_local! {
    /// With silence injected: a thread has waited. It goes on here, since loom cannot end threads that wait.
    static WAITED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use rounds::ReplayRounds;
use std::sync::atomic::Ordering;
use sync::{SILENT, WEAK};

/// The step, which the caller of `begin` writes, and what each thread has made of it.
struct Crew {
    rounds: ReplayRounds,
    step: UnsafeCell<u64>,
    done: [UnsafeCell<u64>; 2],
}

/// Two rounds of `helpers` threads; each adds the step to what it has done, and the caller reads it after the round.
fn two_rounds(helpers: usize) {
    let crew = Arc::new(Crew {
        rounds: ReplayRounds::new(helpers),
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
    SILENT.set(Some(|| {
        WAITED.set(true);
        thread::yield_now();
    }));
    bounded(|| two_rounds(1));
    SILENT.set(None);
    assert!(WAITED.get(), "no thread has waited for what nobody notified");
}
