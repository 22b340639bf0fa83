//! The waits and the marker of Algorithm 2, compiled against shuttle's threads and atomics and run under thousands of
//! schedules: what was acknowledged, and what a reader was told, is durable, and nobody waits for ever. And the same
//! search finds each step that is left out.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "the crate uses more than the model does"
)]

/// What the clock asks in the crash simulator.
mod lab {
    pub(crate) fn counts_stamps() -> bool {
        false
    }
}
#[path = "../src/commit/precedence.rs"]
mod precedence;
#[path = "../src/commit/stamp_clock.rs"]
mod stamp_clock;
#[path = "support/model_sync.rs"]
mod sync;

use mangrove_testkit::shuttle::{check_random, found_by_random};
use precedence::Precedence;
use shuttle::rand::Rng;
use shuttle::sync::Mutex;
use shuttle::thread;
use stamp_clock::StampClock;
use std::convert::Infallible;
use std::sync::Arc;

const SLOTS: usize = 3;
const WORDS: usize = 2;

/// A step of Algorithm 2 that is left out, or comes at the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// l.7 and l.8: nothing is shown before the transaction.
    NoBound,
    /// l.22 before l.21.
    BitBeforeFlush,
    /// l.27.
    NoWait,
    /// The persist bit is not set after an abort.
    AbortKeepsBit,
    /// l.29 without its condition: always leaves the marker to others.
    AlwaysSkips,
    /// l.41 to l.43.
    NoWaitForMarker,
    /// The wait that l.19 leaves out.
    NoReaderWait,
}

/// A unit in a log.
#[derive(Clone, Copy, Debug)]
struct Unit {
    stamp: u64,
    flushed: bool,
}

/// What a crash would find. Not shuttle's locks: looking at it is no step of the protocol.
#[derive(Default)]
struct Medium {
    units: Vec<Unit>,
    marker: u64,
}

struct World {
    precedence: Precedence,
    clock: StampClock,
    /// The stamp of the last update of each word. Its lock is held from the first access to the commit: the hardware.
    words: [Mutex<u64>; WORDS],
    medium: std::sync::Mutex<Medium>,
    fault: Fault,
}

fn alive() -> Result<(), Infallible> {
    Ok(())
}

impl World {
    fn medium(&self) -> std::sync::MutexGuard<'_, Medium> {
        self.medium.lock().expect("no model panics with it")
    }

    /// A transaction that adds to one word, and reads the other one or not; it may abort.
    fn update(&self, slot: usize, word: usize, aborts: bool) {
        if self.fault != Fault::NoBound {
            self.precedence.begin(slot, self.clock.now());
        }
        thread::yield_now();
        if aborts {
            if self.fault != Fault::AbortKeepsBit {
                self.precedence.leave(slot);
            }
            return;
        }
        let stamp = {
            let mut last = self.words[word].lock().expect("unpoisoned");
            thread::yield_now();
            let stamp = self.clock.now();
            assert!(stamp > *last, "stamps have the order of the transactions");
            *last = stamp;
            let mut medium = self.medium();
            assert!(stamp > medium.marker, "{stamp} came when the marker was {}", medium.marker);
            medium.units.push(Unit { stamp, flushed: false });
            stamp
        };
        thread::yield_now();
        self.precedence.committed(slot, stamp);
        if self.fault == Fault::BitBeforeFlush {
            self.precedence.persisted(slot, stamp);
            // A flush takes long.
            (0..8).for_each(|_| thread::yield_now());
        }
        self.medium()
            .units
            .iter_mut()
            .filter(|unit| unit.stamp == stamp)
            .for_each(|unit| unit.flushed = true);
        self.precedence.persisted(slot, stamp);
        let skips = if self.fault == Fault::NoWait {
            false
        } else {
            self.precedence.wait_for_preceding(slot, stamp, alive).expect("never")
        };
        let mark = |stamp| {
            thread::yield_now();
            let mut medium = self.medium();
            assert!(stamp > medium.marker, "the marker only grows");
            let lost = medium.units.iter().find(|unit| unit.stamp <= stamp && !unit.flushed);
            assert!(lost.is_none(), "the marker goes to {stamp}, and a crash may lose {lost:?}");
            medium.marker = stamp;
            Ok::<(), Infallible>(())
        };
        if !skips && self.fault != Fault::AlwaysSkips {
            self.precedence.update_marker(stamp, mark).expect("never");
        }
        if self.fault != Fault::NoWaitForMarker {
            self.precedence.wait_for_marker(stamp, alive).expect("never");
        }
        let marker = self.medium().marker;
        assert!(marker >= stamp, "{stamp} is acknowledged, and a crash loses what comes after {marker}");
    }

    fn read(&self) {
        let seen = (0..WORDS).map(|word| *self.words[word].lock().expect("unpoisoned")).max();
        let now = self.clock.now();
        if self.fault != Fault::NoReaderWait {
            let newest = self.precedence.newest_seen(now, alive).expect("never");
            self.precedence.wait_for_marker(newest, alive).expect("never");
        }
        let marker = self.medium().marker;
        assert!(
            seen <= Some(marker),
            "a reader was told of {seen:?}, and a crash loses what comes after {marker}"
        );
    }
}

/// Each thread has a slot, and some transactions.
fn run(fault: Fault) {
    let world = Arc::new(World {
        precedence: Precedence::new(SLOTS, 0),
        clock: StampClock::after(0),
        words: std::array::from_fn(|_| Mutex::new(0)),
        medium: std::sync::Mutex::default(),
        fault,
    });
    let threads: Vec<_> = (0..SLOTS)
        .map(|slot| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut random = shuttle::rand::thread_rng();
                    match random.gen_range(0..6) {
                        0 => world.read(),
                        1 => world.update(slot, 0, true),
                        _ => world.update(slot, random.gen_range(0..WORDS), false),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a violation"));
}

#[test]
fn what_is_told_is_durable_and_nobody_is_stuck() {
    check_random(|| run(Fault::None), 3000);
}

#[test]
fn each_step_that_is_left_out_is_found() {
    for fault in [
        Fault::NoBound,
        Fault::BitBeforeFlush,
        Fault::NoWait,
        Fault::AbortKeepsBit,
        Fault::AlwaysSkips,
        Fault::NoWaitForMarker,
        Fault::NoReaderWait,
    ] {
        assert!(found_by_random(move || run(fault), 3000).is_some(), "{fault:?} was not found");
    }
}

/// Two transactions that share nothing may read the same stamp. The marker covers both, so each waits for the other
/// one's log.
#[test]
fn equal_stamps_wait_for_each_other() {
    shuttle::check_random(
        || {
            let precedence = Precedence::new(2, 0);
            precedence.begin(0, 3);
            precedence.begin(1, 3);
            precedence.committed(0, 7);
            precedence.committed(1, 7);
            precedence.persisted(0, 7);
            assert_eq!(precedence.wait_for_preceding(0, 7, || Err("waits")), Err("waits"));
            precedence.persisted(1, 7);
            assert_eq!(precedence.wait_for_preceding(0, 7, || Err("waits")), Ok(false));
        },
        1,
    );
}
