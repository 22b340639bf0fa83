//! Notices a wait that no thread can end. A machine has two threads, the one that runs its operations and the one that
//! runs an inner operation; a wait of one can end only by what the other does. So it is in vain when the other has no
//! operation, or has itself done nothing but wait meanwhile, for so many turns of its wait. The turns of both are
//! counted, not their time: a thread that does not get the processor has no turns.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A wait of so many turns of both threads is in vain. A thread that can go on does so after a turn or two; a commit
/// has three waits.
const TURNS_MAX: u64 = 400;

/// What a thread tells the other.
#[derive(Default)]
struct Told {
    /// It has an operation.
    works: AtomicBool,
    /// Turns of its waits.
    turns: AtomicU64,
}

/// What the two threads of a machine tell each other.
#[derive(Default)]
pub(crate) struct Pair {
    told: [Told; 2],
    /// Grows with each step on the medium, and with each operation that begins or ends.
    steps: AtomicU64,
}

/// The wait of a thread, as far as no thread made a step since.
struct Seat {
    pair: Arc<Pair>,
    own: usize,
    steps: u64,
    turns: u64,
    others_before: u64,
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

impl Pair {
    /// The calling thread is `own` (0 or 1) of the two from now on.
    pub(crate) fn enter(pair: &Arc<Self>, own: usize) {
        SEAT.set(Some(Seat { pair: Arc::clone(pair), own, steps: u64::MAX, turns: 0, others_before: 0 }));
    }

    /// Notes that an operation of the thread `of` begins; it ends with what this returns.
    pub(crate) fn works(self: &Arc<Self>, of: usize) -> AtWork {
        self.set(of, true);
        AtWork { pair: Arc::clone(self), of }
    }

    fn set(&self, of: usize, works: bool) {
        // SeqCst: a thread that loads one of these has all that the other did before. Speed does not matter.
        self.told[of].works.store(works, Ordering::SeqCst);
        self.steps.fetch_add(1, Ordering::SeqCst);
    }
}

/// An operation under way.
pub(crate) struct AtWork {
    pair: Arc<Pair>,
    of: usize,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.pair.set(self.of, false);
    }
}

/// A step of the calling thread on the medium.
pub(crate) fn stepped() {
    SEAT.with_borrow(|seat| {
        if let Some(seat) = seat {
            seat.pair.steps.fetch_add(1, Ordering::SeqCst);
        }
    });
}

/// A turn of a wait of the calling thread; true when no thread can end the wait.
pub(crate) fn waits_in_vain() -> bool {
    SEAT.with_borrow_mut(|seat| seat.as_mut().is_some_and(Seat::turn))
}

impl Seat {
    fn turn(&mut self) -> bool {
        let (own, other) = (&self.pair.told[self.own], &self.pair.told[1 - self.own]);
        own.turns.fetch_add(1, Ordering::SeqCst);
        let (steps, others) = (self.pair.steps.load(Ordering::SeqCst), other.turns.load(Ordering::SeqCst));
        if steps != self.steps {
            (self.steps, self.turns, self.others_before) = (steps, 0, others);
        }
        self.turns += 1;
        let other_waits = !other.works.load(Ordering::SeqCst) || others - self.others_before >= TURNS_MAX;
        self.turns >= TURNS_MAX && other_waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns_until_vain(limit: u64) -> Option<u64> {
        (1..=limit).find(|_| waits_in_vain())
    }

    #[test]
    fn a_wait_is_in_vain_when_the_other_thread_has_no_operation() {
        let pair = Arc::new(Pair::default());
        assert_eq!(turns_until_vain(10 * TURNS_MAX), None, "a thread of no machine");
        Pair::enter(&pair, 0);
        assert_eq!(turns_until_vain(10 * TURNS_MAX), Some(TURNS_MAX));
        let work = pair.works(1);
        assert_eq!(turns_until_vain(10 * TURNS_MAX), None, "the other may still do something");
        drop(work);
        assert_eq!(turns_until_vain(10 * TURNS_MAX), Some(TURNS_MAX));
    }

    #[test]
    fn a_wait_is_in_vain_when_the_other_thread_waits_too_and_no_thread_makes_a_step() {
        let pair = Arc::new(Pair::default());
        let _works = pair.works(1);
        Pair::enter(&pair, 0);
        let other = Arc::clone(&pair);
        let turns = move |count| {
            let pair = Arc::clone(&other);
            let wait = move || {
                Pair::enter(&pair, 1);
                (0..count).for_each(|_| _ = waits_in_vain());
            };
            std::thread::spawn(wait).join().unwrap();
        };
        assert!(!waits_in_vain());
        turns(TURNS_MAX - 1);
        assert_eq!(turns_until_vain(10 * TURNS_MAX), None);
        stepped();
        assert!(!waits_in_vain());
        turns(TURNS_MAX - 1);
        assert_eq!(turns_until_vain(10 * TURNS_MAX), None, "the turns before the step do not count");
        turns(1);
        assert_eq!(turns_until_vain(10 * TURNS_MAX), Some(1));
    }
}
