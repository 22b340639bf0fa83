//! A model of the log's hand-over: the group commit of `src/log/group_commit.rs`, compiled with shuttle's threads
//! and locks, run under thousands of schedules. It must never lose a wake-up (shuttle reports a deadlock), never
//! write a position twice or out of order, never acknowledge what was not written.

#[path = "../src/log/group_commit.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses more of it than the model does")]
mod commit;

/// The module `crate::sync` for `src/log/group_commit.rs` in this program.
mod sync {
    pub(crate) use mangrove_testkit::shuttle::{EventCount, Mutex, MutexGuard};
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use shuttle::thread::yield_now;

    /// Time stands still.
    pub(crate) fn nanoseconds() -> u64 {
        0
    }
}

use commit::{Failed, GroupCommit, GroupWriter};
use mangrove_testkit::shuttle::{PATIENT, SLEEPY, check_pct, check_random, found_by_random};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use sync::Mutex;

/// A log of numbers: `appended` grows by one, a write takes a while and may fail.
struct Model {
    commit: GroupCommit,
    appended: AtomicU64,
    /// Ranges written so far, and everything before this number with them.
    written: Mutex<(Vec<(u64, u64)>, u64)>,
    /// Ranges whose write began.
    begun: Mutex<Vec<(u64, u64)>>,
    fails_at: u64,
}

impl Model {
    fn new(fails_at: u64) -> Arc<Self> {
        Arc::new(Self {
            // Three clients are a crowd: some threads yield before they sleep, some do not.
            commit: GroupCommit::new(0, 3),
            appended: AtomicU64::new(0),
            written: Mutex::default(),
            begun: Mutex::default(),
            fails_at,
        })
    }

    fn durable(&self) -> u64 {
        self.written.lock().1
    }

    fn append_and_wait(&self) -> Result<(), Failed> {
        let lsn = self.appended.fetch_add(1, Ordering::SeqCst) + 1;
        let result = self.commit.wait(lsn, self);
        if result.is_ok() {
            assert!(self.durable() >= lsn, "acknowledged before it was written");
        }
        result
    }

    fn finish(&self, from: u64, to: u64) {
        let mut written = self.written.lock();
        written.0.push((from, to));
        while let Some(place) = written.0.iter().position(|range| range.0 == written.1) {
            written.1 = written.0.swap_remove(place).1;
        }
    }
}

impl GroupWriter for Model {
    fn seal(&self) -> u64 {
        self.appended.load(Ordering::SeqCst)
    }

    fn write(&self, from: u64, to: u64, durable: u64) -> bool {
        assert!(to > from, "nothing is written for nothing");
        assert!(durable <= self.durable(), "a group calls durable what was not written when it was issued");
        let mut begun = self.begun.lock();
        assert!(begun.iter().all(|b| b.1 <= from || b.0 >= to), "a position is written twice");
        begun.push((from, to));
        drop(begun);
        thread::yield_now();
        let ok = to < self.fails_at;
        if ok {
            self.finish(from, to);
        }
        ok
    }
}

fn run(threads: usize, waits: usize, fails_at: u64) {
    let model = Model::new(fails_at);
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let model = Arc::clone(&model);
            thread::spawn(move || (0..waits).all(|_| model.append_and_wait().is_ok()))
        })
        .collect();
    let fine = workers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>();
    let fine = fine.into_iter().all(|ok| ok);
    let total = (threads * waits) as u64;
    if fails_at > total {
        assert!(fine);
        assert_eq!(model.commit.durable(), total);
    } else {
        assert!(!fine, "somebody waited for what failed");
        assert_eq!(model.append_and_wait(), Err(Failed), "a failure is for ever");
    }
    assert!(model.commit.is_quiet(), "nobody leads when nobody waits");
}

#[test]
fn no_schedule_loses_a_wake_up_or_a_write() {
    check_random(|| run(4, 3, u64::MAX), 8_000);
    check_pct(|| run(5, 3, u64::MAX), 4_000, 4);
    shuttle::check_dfs(|| run(2, 2, u64::MAX), Some(15_000));
}

#[test]
fn the_model_finds_a_candidate_that_waits_for_ever() {
    PATIENT.set(true);
    // It takes 10 schedules, with the worst of 60 seeds 27.
    let found = found_by_random(|| run(4, 3, u64::MAX), 20_000);
    PATIENT.set(false);
    println!("found by schedule {found:?}");
    assert!(found.is_some(), "a group that no thread completes went unnoticed");
}

#[test]
fn the_model_finds_sleepers_that_nobody_wakes() {
    SLEEPY.set(true);
    // Nearly every schedule finds it.
    let found = found_by_random(|| run(4, 3, u64::MAX), 20_000);
    SLEEPY.set(false);
    println!("found by schedule {found:?}");
    assert!(found.is_some(), "a lost wake-up went unnoticed");
}

#[test]
fn a_failure_reaches_everybody() {
    check_random(|| run(4, 3, 5), 6_000);
    check_pct(|| run(5, 2, 3), 4_000, 4);
}

#[test]
fn a_failure_from_outside_ends_every_wait() {
    let body = || {
        let model = Model::new(u64::MAX);
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    while model.append_and_wait().is_ok() && model.appended.load(Ordering::SeqCst) < 9 {}
                })
            })
            .collect();
        model.commit.fail();
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(model.commit.is_quiet());
        assert_eq!(model.append_and_wait(), Err(Failed));
    };
    check_random(body, 6_000);
}
