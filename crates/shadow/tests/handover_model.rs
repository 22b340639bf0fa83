//! Every interleaving of the logs' hand-over, by loom: `src/handover.rs` itself, with loom's atomics in its `sync`
//! module. Two log writers with an atomic group each, and a replayer, use it.

#[path = "../src/replay/handover.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses more of it than the model does")]
mod handover;

#[path = "support/loom_sync.rs"]
mod loom_sync;

/// The module `crate::sync` for `src/handover.rs` in this program.
mod sync {
    pub(crate) use super::loom_sync::{AtomicBool, AtomicU64, Mutex, Ordering, WEAK};

    /// No thread of the model sleeps: waking is only a hint here, and a missed wake-up delays (see `wake_if_idle`).
    pub(crate) struct EventCount;

    impl EventCount {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn notify_all(&self) {}
    }
}

use handover::Handover;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use std::sync::atomic::Ordering;
use sync::WEAK;

/// Two log writers publish an atomic group each; the replayer reads the watermark once or twice.
fn publish_and_replay() {
    struct Model {
        handover: Handover,
        /// The bytes of each log's atomic group.
        units: [AtomicU64; 2],
    }
    let model = Arc::new(Model { handover: Handover::new(1, &[0, 0]), units: [0, 0].map(AtomicU64::new) });
    let writers: Vec<_> = (0..2)
        .map(|log| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                let seq = model.handover.begin(log);
                assert!((1..=2).contains(&seq));
                model.units[log].store(seq, Ordering::Relaxed);
                model.handover.publish(log, 8);
                model.handover.note_published(seq);
                seq
            })
        })
        .collect();
    for reading in 0..2 {
        let watermark = match reading {
            0 => model.handover.watermark(),
            // As a thread that waits for both finds them durable.
            _ => 2 * u64::from(model.handover.covers(2)),
        };
        let tails = [0, 1].map(|log| model.handover.tail(log));
        let published = tails.iter().filter(|&&tail| tail == 8).count() as u64;
        assert!(published >= watermark, "units up to {watermark} are not all before the tails {tails:?}");
        if watermark > 0 {
            // Each of the first `watermark` numbers is in some log, and its bytes are there.
            let units = [0, 1].map(|log| model.units[log].load(Ordering::Relaxed));
            assert!((1..=watermark).all(|seq| units.contains(&seq)), "up to {watermark}, found {units:?}");
        }
    }
    let mut seqs: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2]);
    assert_eq!(model.handover.watermark(), 2);
}

/// Three threads have more interleavings than a test has time for. Those with few switches suffice: they find both
/// injected faults below.
fn bounded(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// The replayer frees a ring of one atomic group; the writer writes over it only then.
fn free_and_reuse() {
    let handover = Arc::new(Handover::new(1, &[0]));
    let slot = Arc::new(loom::cell::UnsafeCell::new(0u64));
    let writer = {
        let (handover, slot) = (Arc::clone(&handover), Arc::clone(&slot));
        thread::spawn(move || {
            for unit in 0..2u64 {
                while unit * 8 + 8 - handover.head(0) > 8 {
                    thread::yield_now();
                }
                // The only writer.
                handover.begin_alone(0);
                // SAFETY: the slot is free; otherwise loom reports it.
                slot.with_mut(|place| unsafe { *place = unit + 1 });
                handover.publish(0, unit * 8 + 8);
            }
        })
    };
    for unit in 1..=2u64 {
        while handover.watermark() < unit {
            thread::yield_now();
        }
        // SAFETY: published, and not yet freed; otherwise loom reports it.
        assert_eq!(slot.with(|place| unsafe { *place }), unit);
        handover.free(0, unit * 8);
    }
    writer.join().unwrap();
}

/// A thread publishes an atomic group, a second one frees its space, and a third asks meanwhile how much is in use.
fn ask_what_is_used() {
    let handover = Arc::new(Handover::new(1, &[0]));
    let writer = {
        let handover = Arc::clone(&handover);
        thread::spawn(move || {
            handover.begin_alone(0);
            handover.publish(0, 8);
        })
    };
    let replayer = {
        let handover = Arc::clone(&handover);
        thread::spawn(move || {
            if handover.watermark() == 1 {
                handover.free(0, handover.tail(0));
            }
        })
    };
    let used = handover.used(0);
    assert!(used <= 8, "{used} bytes of 8 are in use");
    writer.join().unwrap();
    replayer.join().unwrap();
}

/// A thread publishes atomic groups with stamps in two logs, and tells that they are complete; the replayer finds them.
fn complete_and_replay() {
    let handover = Arc::new(Handover::new(1, &[0, 0]));
    let units = Arc::new([0, 0].map(AtomicU64::new));
    let writer = {
        let (handover, units) = (Arc::clone(&handover), Arc::clone(&units));
        thread::spawn(move || {
            for log in 0..2 {
                handover.give(log, 10 + log as u64);
                units[log].store(10 + log as u64, Ordering::Relaxed);
                handover.publish(log, 8);
            }
            assert_eq!(handover.given(), 11, "what was published was given");
            handover.complete(11);
        })
    };
    if handover.watermark() >= 11 {
        let found = [0, 1].map(|log| (handover.tail(log), units[log].load(Ordering::Relaxed)));
        assert_eq!(found, [(8, 10), (8, 11)]);
    }
    writer.join().unwrap();
    assert_eq!(handover.watermark(), 11);
}

/// A thread defers two atomic groups and makes a third durable, with what is deferred by then; another one waits for
/// its own, and closes the log of the first for that. `stays`: the first ends after the second group.
fn defer_and_help(stays: bool) {
    struct Model {
        handover: Handover,
        /// The numbers of the first log's atomic groups, of 8 bytes each, and how far that log is durable.
        numbers: [AtomicU64; 3],
        durable: AtomicU64,
    }
    let numbers = [0; 3].map(AtomicU64::new);
    let model = Model { handover: Handover::new(1, &[0, 0]), numbers, durable: AtomicU64::new(0) };
    let model = Arc::new(model);
    let flush = |model: &Model, positions: std::ops::Range<u64>| {
        model.durable.store(positions.end, Ordering::Relaxed);
        Ok::<(), ()>(())
    };
    let owner = {
        let model = Arc::clone(&model);
        thread::spawn(move || {
            let begin = |unit: usize| {
                let number = model.handover.begin(0);
                model.numbers[unit].store(number, Ordering::Relaxed);
                number
            };
            for unit in 0..2 {
                model.handover.defer(0, begin(unit), 8 * (unit as u64 + 1));
            }
            if stays {
                begin(2);
                model.handover.close(0, |positions| flush(&model, positions)).unwrap();
                model.durable.store(24, Ordering::Relaxed);
                model.handover.publish(0, 24);
            }
        })
    };
    let number = model.handover.begin(1);
    model.handover.publish(1, 8);
    while !model.handover.covers(number) {
        model.handover.complete_deferred(number, |_, positions| flush(&model, positions)).unwrap();
        thread::yield_now();
    }
    let (tail, durable) = (model.handover.tail(0), model.durable.load(Ordering::Relaxed));
    for (unit, of_unit) in model.numbers.iter().enumerate() {
        let of_unit = of_unit.load(Ordering::Relaxed);
        let end = 8 * (unit as u64 + 1);
        let is_covered = of_unit == 0 || of_unit > number || (durable >= end && tail >= end);
        assert!(is_covered, "{number} is acknowledged, and {of_unit} is neither durable nor published");
    }
    owner.join().unwrap();
    model.handover.complete_deferred(3, |_, positions| flush(&model, positions)).unwrap();
    let all = if stays { 4 } else { 3 };
    assert_eq!((model.handover.watermark(), model.handover.is_any_open()), (all, false));
}

#[test]
fn a_wait_covers_what_another_thread_deferred_and_needs_nothing_of_that_thread() {
    bounded(|| defer_and_help(false));
    bounded(|| defer_and_help(true));
}

#[test]
fn a_deferral_that_orders_nothing_is_caught() {
    assert!(caught(Ordering::Release, || defer_and_help(false)));
    assert!(caught(Ordering::Acquire, || defer_and_help(false)));
}

#[test]
fn what_is_said_to_be_complete_is_found() {
    loom::model(complete_and_replay);
}

#[test]
fn the_watermark_covers_what_is_published_and_nothing_else() {
    bounded(publish_and_replay);
}

#[test]
fn space_is_written_again_only_when_it_is_free() {
    loom::model(free_and_reuse);
}

/// With the tail read first, the head has passed it when space is freed in between.
#[test]
fn no_log_has_less_than_nothing_in_use() {
    bounded(ask_what_is_used);
}

fn caught(weak: Ordering, model: fn()) -> bool {
    WEAK.set(Some(weak));
    let found = std::panic::catch_unwind(|| bounded(model)).is_err();
    WEAK.set(None);
    found
}

#[test]
fn an_announcement_that_a_reader_may_miss_is_caught() {
    assert!(caught(Ordering::AcqRel, publish_and_replay), "the addition orders nothing, and nothing noticed");
}

#[test]
fn a_publication_that_orders_nothing_is_caught() {
    assert!(caught(Ordering::Release, publish_and_replay));
    assert!(caught(Ordering::Release, free_and_reuse));
}
