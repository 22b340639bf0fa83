//! How many threads run transactions at once: a limit that is found by throughput, while the program runs.
//!
//! More threads than processors lose throughput: one that is preempted owns records, and has a number for which all
//! later commits wait. So threads have *seats*. While there is a limit, a thread without a seat sleeps before it
//! begins a transaction; a thread that has had one for a while gives it to the thread that has waited longest.
//!
//! 1. Without a limit a transaction costs one load more. The word that it loads changes only with the limit.
//! 2. A seat is a hint: no transaction's isolation depends on it. So no thread waits for ever: a thread that has
//!    not committed for a while (it sleeps, or does something else) loses its seat.
//! 3. A thread waits only where it runs no transaction of this executor and holds no lock of it.
//!
//! The limit is found by hill climbing: after some slices of time one slice tries another limit, and it stays if there
//! were more commits. Each trial in vain doubles the slices until the next one.

use crate::sync::{AtomicU64, EventCount, Mutex, Ordering, limit};
use std::collections::VecDeque;
use std::sync::Arc;

/// Microseconds of a slice at least: the scheduler gives each of its threads some milliseconds.
const SLICE_MICROSECONDS: u64 = 12_000;

/// Slices until the first trial, and until the next one after a trial that paid.
const PATIENCE_MIN: u32 = 2;

/// Slices between two trials at most: three seconds.
const PATIENCE_MAX: u32 = 256;

/// Of a thousand: by so much must a trial be faster to stay.
const GAIN_PER_MILLE: u64 = 60;

/// After so many microseconds a thread gives its seat to one that waits.
const TURN_MICROSECONDS: u64 = 2_000;

/// After so many microseconds without a sign of life a seat is taken from its thread.
const STALE_MICROSECONDS: u64 = 5_000;

/// Who waits looks so often for a seat whose thread is gone.
const WAIT_MILLISECONDS: u64 = 3;

/// The word that says that there is no limit.
const UNLIMITED: u64 = 0;

/// How many threads run transactions at once. It is a matter of speed only: a thread whose turn does not come within
/// some milliseconds may run beside the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadLimit {
    /// As many as there are.
    Unlimited,
    /// So many, at least one.
    Fixed(usize),
    /// As many as commit most together, found out while the program runs.
    #[default]
    Found,
}

/// The limit, and who has a seat.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Which limit is in force: a number that no other limit had, or [`UNLIMITED`].
    epoch: Apart,
    seats: Mutex<Seats>,
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Apart(AtomicU64);

#[derive(Debug)]
struct Seats {
    /// Epochs that there were.
    epochs: u64,
    /// Seats; as many as there are threads where there is no limit.
    limit: usize,
    taken: Vec<Seat>,
    waiting: VecDeque<Arc<Waiter>>,
    /// Threads that have a handle.
    threads: usize,
}

#[derive(Debug)]
struct Seat {
    waiter: Arc<Waiter>,
    /// Since when its thread has it, and when it last showed a sign of life.
    since: u64,
    seen: u64,
}

/// A thread, as those that give seats away see it.
#[derive(Debug)]
struct Waiter {
    number: u64,
    event: EventCount,
}

/// One thread's part.
#[derive(Debug)]
pub(crate) struct Place {
    waiter: Arc<Waiter>,
    /// The epoch of its seat.
    epoch: u64,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        let seats = Seats {
            epochs: UNLIMITED,
            limit: usize::MAX,
            taken: Vec::new(),
            waiting: VecDeque::new(),
            threads: 0,
        };
        Self { epoch: Apart(AtomicU64::new(UNLIMITED)), seats: Mutex::new(seats) }
    }

    /// The part of a new thread with this number.
    pub(crate) fn join(&self, number: u64) -> Place {
        self.seats.lock().threads += 1;
        let waiter = Waiter { number, event: EventCount::new() };
        Place { waiter: Arc::new(waiter), epoch: UNLIMITED }
    }

    /// A thread ends.
    pub(crate) fn leave(&self, place: &mut Place) {
        self.stand_up(place);
        self.seats.lock().threads -= 1;
    }

    /// Whether there is a limit.
    #[cfg(test)]
    pub(crate) fn is_limited(&self) -> bool {
        self.seats.lock().limit != usize::MAX
    }

    /// Threads that have a handle.
    pub(crate) fn threads(&self) -> usize {
        self.seats.lock().threads
    }

    /// Before a transaction: waits for a seat, if there is a limit and the thread has none.
    #[inline(always)]
    pub(crate) fn sit_down(&self, place: &mut Place, now: impl Fn() -> u64) {
        // Relaxed: the seats' lock orders what matters, and a late look lets one transaction more begin.
        if self.epoch.0.load(Ordering::Relaxed) != place.epoch {
            self.wait(place, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, place: &mut Place, now: impl Fn() -> u64) {
        let mut seats = self.seats.lock();
        loop {
            if seats.limit == usize::MAX {
                place.epoch = UNLIMITED;
                return;
            }
            if seats.has(&place.waiter) {
                place.epoch = seats.epochs;
                return;
            }
            // Not there yet, or given a seat that another limit took away.
            if !seats.waiting.iter().any(|other| other.number == place.waiter.number) {
                seats.waiting.push_back(Arc::clone(&place.waiter));
                seats.give(now());
                continue;
            }
            let ticket = place.waiter.event.ticket();
            drop(seats);
            let woken = place.waiter.event.wait_for(ticket, limit(WAIT_MILLISECONDS));
            seats = self.seats.lock();
            if !woken {
                seats.take_stale(now());
            }
        }
    }

    /// The thread commits, and runs no transaction: a sign of life. Gives the seat away when its turn is over.
    pub(crate) fn show(&self, place: &mut Place, now: u64) {
        if place.epoch == UNLIMITED {
            return;
        }
        let mut seats = self.seats.lock();
        let waits = !seats.waiting.is_empty();
        let own = seats.taken.iter_mut().find(|seat| seat.waiter.number == place.waiter.number);
        match own {
            Some(seat) if !waits || now.saturating_sub(seat.since) < TURN_MICROSECONDS => seat.seen = now,
            _ => {
                seats.stand_up(&place.waiter);
                seats.give(now);
                place.epoch = UNLIMITED;
            }
        }
    }

    /// The thread will run no transaction for a while.
    pub(crate) fn stand_up(&self, place: &mut Place) {
        if place.epoch != UNLIMITED {
            let mut seats = self.seats.lock();
            seats.stand_up(&place.waiter);
            // As if it had been seen when the last one was: the next look of its thread tells.
            let now = seats.taken.iter().map(|seat| seat.seen).max().unwrap_or(0);
            seats.give(now);
            place.epoch = UNLIMITED;
        }
    }

    /// Another limit, from now on; none without a number.
    pub(crate) fn set(&self, most: Option<usize>, now: u64) {
        let mut seats = self.seats.lock();
        seats.epochs += 1;
        seats.limit = most.unwrap_or(usize::MAX);
        let keep = seats.taken.len().min(seats.limit);
        seats.taken.truncate(keep);
        // Relaxed: the lock orders what matters.
        self.epoch.0.store(if most.is_some() { seats.epochs } else { UNLIMITED }, Ordering::Relaxed);
        if most.is_none() {
            seats.taken.clear();
            seats.waiting.drain(..).for_each(|waiter| waiter.event.notify_all());
        } else {
            seats.give(now);
        }
    }
}

impl Seats {
    fn has(&self, waiter: &Waiter) -> bool {
        self.taken.iter().any(|seat| seat.waiter.number == waiter.number)
    }

    fn stand_up(&mut self, waiter: &Waiter) {
        self.taken.retain(|seat| seat.waiter.number != waiter.number);
    }

    /// Gives free seats to those that have waited longest.
    fn give(&mut self, now: u64) {
        while self.taken.len() < self.limit
            && let Some(waiter) = self.waiting.pop_front()
        {
            waiter.event.notify_all();
            self.taken.push(Seat { waiter, since: now, seen: now });
        }
    }

    /// Takes the seats of threads without a sign of life, and gives them to those that wait.
    fn take_stale(&mut self, now: u64) {
        self.taken.retain(|seat| now.saturating_sub(seat.seen) < STALE_MICROSECONDS);
        self.give(now);
    }
}

/// Where the search for the limit stands.
#[derive(Debug)]
pub(crate) struct Climb {
    /// When the slice began, and the commits until then.
    begun: u64,
    commits: u64,
    /// Commits in a second under the limit that stays unless the trial is faster: the mean of the last slices, in which
    /// older ones count less.
    rate: u64,
    limit: Option<usize>,
    trial: Option<Option<usize>>,
    /// The next trial is of a smaller limit.
    down: bool,
    left: u32,
    patience: u32,
}

impl Climb {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            begun: now,
            commits: 0,
            rate: 0,
            limit: None,
            trial: None,
            down: true,
            left: PATIENCE_MIN,
            patience: PATIENCE_MIN,
        }
    }

    /// Ends a trial, and the limit. Returns the change, if there is one. The search begins anew.
    pub(crate) fn lift(&mut self) -> Option<Option<usize>> {
        let changes = self.limit.is_some() || self.trial.is_some();
        if changes {
            let (begun, commits) = (self.begun, self.commits);
            *self = Self { begun, commits, ..Self::new(begun) };
        }
        changes.then_some(None)
    }

    /// Whether a slice tries another limit now.
    pub(crate) fn is_in_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// There have been so many commits now, of `threads` threads on `cpus` processors. The limit from now on, if it
    /// changes.
    pub(crate) fn step(
        &mut self,
        now: u64,
        commits: u64,
        threads: usize,
        cpus: usize,
    ) -> Option<Option<usize>> {
        let time = now.saturating_sub(self.begun);
        if time < SLICE_MICROSECONDS {
            return None;
        }
        let rate = commits.saturating_sub(self.commits).saturating_mul(1_000_000) / time;
        (self.begun, self.commits) = (now, commits);
        if let Some(tried) = self.trial.take() {
            let pays = rate > self.rate + self.rate / 1000 * GAIN_PER_MILLE;
            self.patience = if pays { PATIENCE_MIN } else { (self.patience * 2).min(PATIENCE_MAX) };
            self.left = self.patience;
            if pays {
                (self.rate, self.limit) = (rate, tried);
                return None;
            }
            self.down = !self.down;
            return Some(self.limit);
        }
        self.rate = if self.rate == 0 { rate } else { (self.rate * 3 + rate) / 4 };
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.left = self.patience;
        let trial = self.next(threads, cpus);
        if trial == self.limit {
            self.down = !self.down;
            return None;
        }
        self.trial = Some(trial);
        Some(trial)
    }

    /// The limit to try.
    fn next(&self, threads: usize, cpus: usize) -> Option<usize> {
        let now = self.limit.unwrap_or(threads).min(threads);
        let next = if self.down {
            // Down from a crowd at once: as many as can run.
            if now > cpus { cpus } else { now - (now / 4).max(1).min(now - 1) }
        } else {
            now + (now / 4).max(1)
        };
        (next < threads).then_some(next.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::run_once;

    /// Slices under each limit, where `rate` tells the commits of a slice.
    fn climb(threads: usize, cpus: usize, slices: usize, rate: impl Fn(usize) -> u64) -> Vec<usize> {
        let (mut climb, mut now, mut commits, mut limit) = (Climb::new(0), 0, 0, threads);
        let mut limits = Vec::new();
        for _ in 0..slices {
            limits.push(limit);
            (now, commits) = (now + SLICE_MICROSECONDS, commits + rate(limit));
            if let Some(next) = climb.step(now, commits, threads, cpus) {
                limit = next.unwrap_or(threads);
            }
        }
        limits
    }

    #[test]
    fn the_best_number_of_threads_is_found_and_kept() {
        for (threads, cpus, best) in [(24, 2, 2), (24, 2, 1), (24, 2, 5), (8, 8, 3), (64, 8, 8), (2, 2, 1)] {
            // A third less for each thread too many, and proportional below.
            let rate = |limit: usize| {
                let over = limit.saturating_sub(best) as u32;
                12_000 * limit.min(best) as u64 * 2u64.pow(over.min(6)) / 3u64.pow(over.min(6))
            };
            let limits = climb(threads, cpus, 1000, rate);
            let right = limits[100..].iter().filter(|&&limit| limit == best).count();
            assert!(right > 860, "best {best} of {threads}: {right} of 900 slices, {:?}", &limits[..60]);
        }
    }

    /// Where every thread adds to the throughput, trials cost less than one in a hundred slices.
    #[test]
    fn nothing_is_limited_where_all_threads_help() {
        let limits = climb(8, 8, 2000, |limit| limit as u64 * 1000);
        let lost = limits.iter().filter(|&&limit| limit < 8).count();
        assert!(lost <= 16, "{lost} slices of 2000 were limited");
    }

    fn seated(crowd: &Crowd, place: &Place) -> bool {
        crowd.seats.lock().has(&place.waiter)
    }

    #[test]
    fn seats_go_round_and_those_of_absent_threads_are_taken() {
        run_once(seats_go_round);
    }

    fn seats_go_round() {
        let crowd = Crowd::new();
        let [mut a, mut b] = [1, 2].map(|number| crowd.join(number));
        crowd.sit_down(&mut a, || 0);
        assert!(!seated(&crowd, &a), "without a limit there are no seats");
        crowd.set(Some(1), 0);
        crowd.sit_down(&mut a, || 0);
        assert!(seated(&crowd, &a));
        // As `wait` does, without sleeping.
        crowd.seats.lock().waiting.push_back(Arc::clone(&b.waiter));
        crowd.show(&mut a, TURN_MICROSECONDS - 1);
        assert!(seated(&crowd, &a) && !seated(&crowd, &b), "its turn is not over");
        crowd.show(&mut a, TURN_MICROSECONDS);
        assert!(!seated(&crowd, &a) && seated(&crowd, &b), "its turn is over");
        crowd.sit_down(&mut b, || 0);
        crowd.seats.lock().waiting.push_back(Arc::clone(&a.waiter));
        let seen = TURN_MICROSECONDS;
        crowd.seats.lock().take_stale(seen + STALE_MICROSECONDS - 1);
        assert!(seated(&crowd, &b));
        crowd.seats.lock().take_stale(seen + STALE_MICROSECONDS);
        assert!(seated(&crowd, &a) && !seated(&crowd, &b), "it was away");
        // Its next sign of life tells it so.
        crowd.show(&mut b, seen + STALE_MICROSECONDS);
        assert_eq!((b.epoch, seated(&crowd, &a)), (UNLIMITED, true));
        crowd.leave(&mut b);
        crowd.set(None, 0);
        crowd.sit_down(&mut a, || 0);
        assert_eq!((a.epoch, crowd.threads()), (UNLIMITED, 1));
    }
}
