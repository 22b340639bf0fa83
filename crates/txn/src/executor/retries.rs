//! How many conflicts send a hardware transaction to the lock: for each call site a number of its own, found by hill
//! climbing while the program runs (the dissertation's executors always make ten attempts).
//!
//! Where transactions of a call site mostly meet others, attempts are lost work, and the lock is better at once; where
//! they seldom do, patience keeps the lock free. Each thread searches by itself, so nothing is shared: it takes the
//! time of one transaction in eight, waits for the lock included. After some rounds of samples one round tries the next
//! number up or down, and it stays if the site's transactions took less time than in the rounds before and after it, so
//! that a machine that becomes faster or slower meanwhile decides nothing. Each trial in vain doubles the rounds until
//! the next one.

use crate::sync::time_stamp;
use std::panic::Location;

/// The numbers of conflicts that are tried.
const LADDER: [u32; 9] = [0, 1, 2, 4, 7, 10, 16, 32, 64];

/// Ten, as in the dissertation.
const START: usize = 5;

/// Call sites with numbers of their own; sites that share a place share the number.
const SITES: usize = 64;

/// Of so many transactions of a site one is timed.
const TIMED: u32 = 8;

/// Samples of a round.
const SAMPLES: u32 = 64;

/// A sample of so many times the mean counts as this many: the thread was preempted.
const OUTLIER: u64 = 8;

/// Rounds until the first trial, and until the next one after a trial that paid.
const PATIENCE_MIN: u32 = 2;

/// Rounds between two trials at most.
const PATIENCE_MAX: u32 = 256;

/// Of a thousand: by so much must a trial be faster to stay.
const GAIN_PER_MILLE: u64 = 50;

/// So many aborts without a reason, one after the other, send a transaction to the lock. (The first may be an
/// interrupt; a page fault repeats until the page was touched outside of hardware.)
pub(super) const WITHOUT_REASON_MAX: u32 = 2;

/// How many attempts that met another transaction send a hardware transaction to the lock. (An abort for capacity does
/// so at once, and two in a row without a reason do; neither counts here.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryBudget {
    /// So many; 0: transactions never run in hardware.
    Fixed(u32),
    /// For each call site and thread the number with which it commits most often, found out while the program runs.
    #[default]
    Found,
}

/// A call site of transactions: its place among those with a number of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site(usize);

impl Site {
    /// That of a caller in Rust.
    #[inline(always)]
    pub(crate) fn of(caller: &'static Location<'static>) -> Self {
        Self::at(std::ptr::from_ref(caller).addr())
    }

    /// That with this address, of a caller or of a body.
    #[inline(always)]
    pub(crate) fn at(address: usize) -> Self {
        // Fibonacci hashing (Knuth, volume 3, 6.4).
        Self((address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> (usize::BITS - SITES.ilog2()))
    }
}

/// One thread's numbers.
#[derive(Debug)]
pub(crate) struct Retries {
    fixed: Option<u32>,
    climbs: Box<[Climb]>,
}

/// A transaction that runs: after how many conflicts it takes the lock, and when it began, if it is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    pub(crate) most: u32,
    site: Site,
    begun: Option<u64>,
}

impl Retries {
    pub(crate) fn new(budget: RetryBudget) -> Self {
        match budget {
            RetryBudget::Fixed(most) => Self { fixed: Some(most), climbs: Box::new([]) },
            RetryBudget::Found => Self { fixed: None, climbs: vec![Climb::new(); SITES].into() },
        }
    }

    /// A transaction of this site begins.
    #[inline(always)]
    pub(crate) fn begin(&mut self, site: Site) -> Try {
        if let Some(most) = self.fixed {
            return Try { most, site, begun: None };
        }
        let climb = &mut self.climbs[site.0];
        climb.until_timed -= 1;
        let is_timed = climb.until_timed == 0;
        Try { most: LADDER[climb.rung()], site, begun: is_timed.then(|| climb.begin()) }
    }

    /// It has committed. (One that ended otherwise is not timed.)
    #[inline(always)]
    pub(crate) fn end(&mut self, tried: Try) {
        if let Some(begun) = tried.begun {
            self.climbs[tried.site.0].sample(time_stamp().saturating_sub(begun));
        }
    }
}

/// Where the search of one call site stands. Times are ticks of the time stamp counter.
#[derive(Clone, Debug)]
struct Climb {
    /// Transactions until the next one that is timed.
    until_timed: u32,
    /// Samples of this round, and their time.
    samples: u32,
    time: u64,
    /// The time of a round on the rung that stays unless the trial is faster: the mean of the last rounds, in which
    /// older ones count less. 0: none yet.
    mean: u64,
    rung: usize,
    trial: Option<usize>,
    /// The rung of the last trial, and its time, while the round after it runs.
    tried: Option<(usize, u64)>,
    /// The next trial is of a smaller number.
    down: bool,
    /// Rounds until the next trial.
    left: u32,
    patience: u32,
}

impl Climb {
    fn new() -> Self {
        Self {
            until_timed: TIMED,
            samples: 0,
            time: 0,
            mean: 0,
            rung: START,
            trial: None,
            tried: None,
            down: true,
            left: PATIENCE_MIN,
            patience: PATIENCE_MIN,
        }
    }

    #[inline(always)]
    fn rung(&self) -> usize {
        self.trial.unwrap_or(self.rung)
    }

    #[cold]
    fn begin(&mut self) -> u64 {
        self.until_timed = TIMED;
        time_stamp()
    }

    #[cold]
    #[inline(never)]
    fn sample(&mut self, time: u64) {
        let most = if self.mean == 0 { u64::MAX } else { self.mean / u64::from(SAMPLES) * OUTLIER };
        self.time += time.min(most);
        self.samples += 1;
        if self.samples == SAMPLES {
            let time = self.time.max(1);
            (self.samples, self.time) = (0, 0);
            self.end_round(time);
        }
    }

    /// A round that took so long has ended.
    fn end_round(&mut self, time: u64) {
        if let Some(rung) = self.trial.take() {
            self.tried = Some((rung, time));
            return;
        }
        if let Some((rung, trial)) = self.tried.take() {
            let least = self.mean.min(time);
            let pays = trial < least - least * GAIN_PER_MILLE / 1000;
            self.patience = if pays { PATIENCE_MIN } else { (self.patience * 2).min(PATIENCE_MAX) };
            self.left = self.patience;
            if pays {
                (self.mean, self.rung) = (trial, rung);
            } else {
                self.down = !self.down;
            }
            return;
        }
        self.mean = if self.mean == 0 { time } else { (self.mean * 3 + time) / 4 };
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        self.left = self.patience;
        let next = if self.down { self.rung.checked_sub(1) } else { Some(self.rung + 1) };
        self.trial = next.filter(|&rung| rung < LADDER.len());
        if self.trial.is_none() {
            self.down = !self.down;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rung of each round, where `time` tells how long a round takes on a rung.
    fn rungs(rounds: usize, time: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut climb = Climb::new();
        let each = |_| {
            let rung = climb.rung();
            climb.end_round(time(rung));
            rung
        };
        (0..rounds).map(each).collect()
    }

    #[test]
    fn the_best_rung_is_found_and_kept() {
        for best in 0..LADDER.len() {
            let rungs = rungs(1000, |rung| 1_000_000 << rung.abs_diff(best));
            let right = rungs[100..].iter().filter(|&&rung| rung == best).count();
            assert!(right > 860, "best {best}: {right} of 900 rounds, {:?}", &rungs[..60]);
        }
    }

    /// Where it makes no difference, trials cost one round of hundreds.
    #[test]
    fn trials_in_vain_become_rare() {
        let rungs = rungs(2000, |_| 1_000_000);
        let tried = rungs.iter().filter(|&&rung| rung != START).count();
        assert!(tried <= 16, "{tried} rounds of 2000 were trials");
    }

    #[test]
    fn a_preempted_sample_does_not_decide_a_round() {
        let mut climb = Climb::new();
        (0..SAMPLES).for_each(|_| climb.sample(100));
        assert_eq!(climb.mean, 100 * u64::from(SAMPLES));
        (1..SAMPLES).for_each(|_| climb.sample(100));
        climb.sample(1_000_000);
        assert!(climb.mean < 103 * u64::from(SAMPLES), "{}", climb.mean);
    }
}
