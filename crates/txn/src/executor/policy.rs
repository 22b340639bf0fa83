//! Whether many transactions write at a time or one, and how many threads run transactions at once (`crowd.rs`): by
//! throughput, found out while the program runs. Of the two, one at a time makes a trial.
//!
//! Time goes in slices. After some slices one slice tries the other mode; the faster one stays. Each trial in vain
//! doubles the slices until the next, so that a program whose load does not change loses one slice of hundreds.

use super::crowd::{Climb, Crowd, Place, ThreadLimit};
use crate::sync::{AtomicU64, Mutex, Ordering, microseconds, processors};

/// Microseconds of a slice at least: threads of the scheduler take turns within it.
const SLICE_MICROSECONDS: u64 = 4_000;

/// Slices until the first trial, and until the next one after a trial that paid.
const PATIENCE_MIN: u32 = 8;

/// Slices between two trials at most: one or two seconds.
const PATIENCE_MAX: u32 = 256;

/// Commits between two looks at the clock at most.
const COMMITS_MAX: u32 = 1 << 14;

/// Microseconds between two looks at the clock, as far as one thread can tell beforehand.
const LOOK_MICROSECONDS: u64 = 250;

/// A thread with longer transactions than this, on average between two looks, holds a seat for too long: with a limit
/// the short ones of others would wait for it.
const LONG_MICROSECONDS: u64 = 1_000;

/// For so long after the last of them no limit is tried where every thread can have a processor.
const LONG_KEPT_MICROSECONDS: u64 = 1_000_000;

/// Of a thousand: by so much must a trial be faster to stay.
const GAIN_PER_MILLE: u64 = 50;

/// What all threads know.
#[derive(Debug)]
pub(crate) struct Policy {
    commits: Apart,
    searches: Mutex<Searches>,
    crowd: Crowd,
    cpus: usize,
    /// When a thread with long transactions last looked; 0: never.
    long_seen: AtomicU64,
}

/// What is searched for.
#[derive(Debug)]
struct Searches {
    writers: Option<Course>,
    threads: Option<Climb>,
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// Where the search stands.
#[derive(Debug)]
struct Course {
    /// When the slice began, and the commits until then.
    begun: u64,
    commits: u64,
    /// Commits in a second, in the mode that stays unless the trial is faster.
    rate: u64,
    in_trial: bool,
    /// Slices until the next trial.
    left: u32,
    patience: u32,
}

impl Course {
    fn new(now: u64) -> Self {
        Self { begun: now, commits: 0, rate: 0, in_trial: false, left: PATIENCE_MIN, patience: PATIENCE_MIN }
    }

    /// There have been so many commits now. True if the mode must change.
    fn is_change_due(&mut self, now: u64, commits: u64) -> bool {
        let time = now.saturating_sub(self.begun);
        if time < SLICE_MICROSECONDS {
            return false;
        }
        let rate = commits.saturating_sub(self.commits).saturating_mul(1_000_000) / time;
        (self.begun, self.commits) = (now, commits);
        if self.in_trial {
            self.in_trial = false;
            let pays = rate > self.rate + self.rate / 1000 * GAIN_PER_MILLE;
            self.patience = if pays { PATIENCE_MIN } else { (self.patience * 2).min(PATIENCE_MAX) };
            self.left = self.patience;
            if pays {
                self.rate = rate;
            }
            return !pays;
        }
        self.rate = rate;
        self.left -= 1;
        self.in_trial = self.left == 0;
        self.in_trial
    }
}

impl Policy {
    /// What is needed to search for the number of writers, and to limit that of threads; none if nothing is.
    pub(crate) fn new(writers: bool, threads: ThreadLimit) -> Option<Self> {
        if !writers && threads == ThreadLimit::Unlimited {
            return None;
        }
        let now = microseconds();
        let climbs = threads == ThreadLimit::Found;
        let searches =
            Searches { writers: writers.then(|| Course::new(now)), threads: climbs.then(|| Climb::new(now)) };
        let crowd = Crowd::new();
        if let ThreadLimit::Fixed(most) = threads {
            crowd.set(Some(most.max(1)), now);
        }
        let (commits, searches) = (Apart(AtomicU64::new(0)), Mutex::new(searches));
        Some(Self { commits, searches, crowd, cpus: processors(), long_seen: AtomicU64::new(0) })
    }

    /// The part of a new thread with this number.
    pub(crate) fn join(&self, number: u64) -> Place {
        self.crowd.join(number)
    }

    /// A thread ends.
    pub(crate) fn leave(&self, place: &mut Place) {
        self.crowd.leave(place);
    }

    /// Before a transaction: waits while too many threads run transactions.
    #[inline(always)]
    pub(crate) fn sit_down(&self, place: &mut Place) {
        self.crowd.sit_down(place, microseconds);
    }

    /// The thread is about to sleep.
    pub(crate) fn stand_up(&self, place: &mut Place) {
        self.crowd.stand_up(place);
    }

    /// There have been so many commits now: changes the limit on threads if that is due. True if the mode of writing
    /// must change.
    fn step(&self, now: u64, commits: u64) -> bool {
        let mut searches = self.searches.lock();
        let Searches { writers, threads } = &mut *searches;
        let climbing = threads.as_ref().is_some_and(Climb::is_in_trial);
        let change = !climbing && writers.as_mut().is_some_and(|course| course.is_change_due(now, commits));
        let trying = writers.as_ref().is_some_and(|course| course.in_trial);
        let count = self.crowd.threads();
        // Relaxed: a hint.
        let long_seen = self.long_seen.load(Ordering::Relaxed);
        let has_long = long_seen > 0 && now.saturating_sub(long_seen) < LONG_KEPT_MICROSECONDS;
        let most = threads.as_mut().filter(|_| !trying && count > 1).and_then(|climb| {
            // A crowd is limited whatever its transactions: without a processor a short one waits, too.
            let lifts = has_long && count <= self.cpus;
            if lifts { climb.lift() } else { climb.step(now, commits, count, self.cpus) }
        });
        // Under the lock: of two limits in a row the later one stays.
        if let Some(most) = most {
            self.crowd.set(most, now);
        }
        change
    }
}

/// One thread's commits since it last looked at the clock.
#[derive(Debug)]
pub(crate) struct Looks {
    left: u32,
    interval: u32,
    last: u64,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Self { left: 1, interval: 1, last: microseconds() }
    }

    /// Counts a commit; true when it is time to look.
    #[inline(always)]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Looks at the clock; `change` changes the mode of writing if that is due. The thread runs no transaction.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, policy: &Policy, place: &mut Place, change: impl FnOnce()) {
        // Relaxed: only a count.
        let own = u64::from(self.interval);
        let commits = policy.commits.0.fetch_add(own, Ordering::Relaxed) + own;
        let now = microseconds();
        let time = now.saturating_sub(self.last).max(1);
        self.last = now;
        if time / own > LONG_MICROSECONDS {
            // Relaxed: a hint.
            policy.long_seen.store(now, Ordering::Relaxed);
        }
        let fitting = (own * LOOK_MICROSECONDS / time).min(own * 2);
        self.interval = fitting.clamp(1, u64::from(COMMITS_MAX)) as u32;
        self.left = self.interval;
        policy.crowd.show(place, now);
        if policy.step(now, commits) {
            change();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::run_once;

    /// Time in each mode, in slices, where the modes have these rates (in commits a slice).
    fn slices(
        course: &mut Course,
        now: &mut u64,
        commits: &mut u64,
        mode: &mut usize,
        rates: [u64; 2],
    ) -> [u32; 2] {
        let mut slices = [0; 2];
        for _ in 0..4000 {
            slices[*mode] += 1;
            (*now, *commits) = (*now + SLICE_MICROSECONDS, *commits + rates[*mode]);
            *mode ^= usize::from(course.is_change_due(*now, *commits));
        }
        slices
    }

    #[test]
    fn beside_long_transactions_no_thread_waits_for_a_seat() {
        run_once(|| {
            let slices = |cpus: usize, is_long: bool| {
                let mut policy = Policy::new(false, ThreadLimit::Found).expect("a limit is searched for");
                policy.cpus = cpus;
                let mut places = [1, 2, 3].map(|number| policy.join(number));
                let begun = microseconds();
                let limited = (1..200).filter(|slice| {
                    let now = begun + slice * 12_500;
                    policy.long_seen.store(if is_long { now } else { 0 }, Ordering::Relaxed);
                    policy.step(now, slice * 1000);
                    policy.crowd.is_limited()
                });
                let limited = limited.count();
                places.iter_mut().for_each(|place| policy.leave(place));
                limited
            };
            assert_eq!(slices(4, true), 0, "each thread has a processor");
            assert!(slices(4, false) > 0, "limits are tried");
            assert!(slices(2, true) > 0, "a crowd is limited");
        });
    }

    #[test]
    fn a_limit_is_lifted_when_long_transactions_come() {
        let mut climb = Climb::new(0);
        let mut now = 0;
        let trial = loop {
            now += 12_500;
            if let Some(limit) = climb.step(now, now, 2, 2) {
                break limit;
            }
        };
        assert_eq!((trial, climb.is_in_trial()), (Some(1), true));
        assert_eq!((climb.lift(), climb.is_in_trial()), (Some(None), false));
        assert_eq!(climb.lift(), None, "there is no limit");
    }

    #[test]
    fn the_faster_mode_stays_and_trials_cost_little() {
        let (mut now, mut commits, mut mode) = (0, 0, 0);
        let mut course = Course::new(now);
        // Whichever is faster, also when that changes.
        for (rates, better) in [([1000, 500], 0), ([500, 1000], 1), ([1000, 300], 0), ([900, 900], 0)] {
            let slices = slices(&mut course, &mut now, &mut commits, &mut mode, rates);
            // At most until the longest patience ends, and then a trial of so many slices.
            let lost = PATIENCE_MAX + 2 + 4000 / PATIENCE_MAX + PATIENCE_MAX.ilog2();
            assert!(slices[1 - better] <= lost, "{slices:?} slices with rates {rates:?}");
        }
        assert!(!course.is_change_due(now + SLICE_MICROSECONDS - 1, commits + 1), "within a slice");
    }
}
