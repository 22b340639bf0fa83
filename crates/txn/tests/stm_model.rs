//! The executors, compiled against shuttle's threads and atomics and run under thousands of schedules: histories are
//! opaque through every change of mode, no sleeper is forgotten, what is private stays private. And the same search
//! finds executors that are wrong.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "the crate uses more than the models do"
)]

#[path = "../src/access.rs"]
mod access;
#[path = "../src/executor/mod.rs"]
mod executor;
/// The crash simulator's part: it does nothing here.
mod lab {
    use std::panic::Location;

    pub(crate) fn window() {}

    pub(crate) fn leaves_out(_step: &'static Location<'static>) -> bool {
        false
    }
}
#[path = "../src/left_out.rs"]
mod left_out;
#[path = "../src/memory.rs"]
mod memory;
#[path = "../src/run.rs"]
mod run;
#[path = "../src/sink.rs"]
mod sink;
mod support;
#[path = "support/model_sync.rs"]
mod sync;
#[path = "support/toy.rs"]
mod toy;
#[path = "../src/volatile.rs"]
mod volatile;

/// What `support` finds as `crate::api` here.
mod api {
    pub use crate::access::{Halt, Interrupted, TxAccess};
    pub use crate::memory::TxMemory;
    pub use crate::run::{Answer, Isolation, TxCounts, TxError, TxThread};
}

use api::{Halt, Isolation, TxAccess, TxMemory, TxThread};
use executor::{HardwareLimits, HardwareModel, Htm, Sgl, Stm, StmOptions, ThreadLimit};
use mangrove_testkit::shuttle::{FORGETFUL, PATIENT, SLEEPY, check_random, found_by_random};
use shuttle::rand::Rng;
use shuttle::thread;
use std::convert::Infallible;
use std::sync::Arc;
use support::checker::check;
use support::recorder::{Moments, Plan, initial, work};
use support::words::Words;
use toy::{Toy, ToyFault};
use volatile::VolatileLog;

/// An executor and its memory.
struct Fixture<X> {
    executor: X,
    words: Words,
}

impl<X: Isolation + Send + 'static> Fixture<X> {
    fn new(words: usize, make: impl Fn(TxMemory) -> X) -> Arc<Self> {
        let words = Words::new(words);
        Arc::new(Self { executor: make(words.memory()), words })
    }
}

const PLAN: Plan = Plan {
    seed: 0,
    transactions: 4,
    words: 2,
    accesses: 4,
    aborts: 15,
    reads: 40,
    nests: 15,
    irrevocable: 10,
    yields: false,
};

/// Three threads' history is opaque.
fn opaque<X: Isolation + Send + 'static>(make: impl Fn(TxMemory) -> X, plan: Plan) {
    // Other accesses in every schedule.
    let plan = Plan { seed: shuttle::rand::thread_rng().r#gen::<u32>().into(), ..plan };
    let fixture = Fixture::new(plan.words, make);
    (0..plan.words).for_each(|word| fixture.words.set(word, initial(word)));
    let moments = Arc::new(Moments::default());
    let threads: Vec<_> = (0..3)
        .map(|who| {
            let (fixture, moments) = (Arc::clone(&fixture), Arc::clone(&moments));
            thread::spawn(move || {
                let mut handle = fixture.executor.thread();
                work(&mut handle, |word| fixture.words.at(word), plan, who, &moments)
            })
        })
        .collect();
    let attempts: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let initials: Vec<u64> = (0..plan.words).map(initial).collect();
    check(&attempts, &initials).unwrap_or_else(|violation| panic!("{violation:?}: {attempts:#?}"));
}

fn stm(memory: TxMemory, serial_after: u32, solo: bool) -> Stm<VolatileLog> {
    Stm::new(
        memory,
        VolatileLog::new(),
        StmOptions {
            record_bits: 1,
            stripe_bits: 3,
            serial_after,
            solo_after: solo.then_some(2),
            threads: ThreadLimit::Unlimited,
            ..StmOptions::default()
        },
    )
}

/// One seat for all threads, and no wait that ends by itself but those of the seats: a thread that is forgotten without
/// a seat hangs.
#[test]
fn threads_that_take_turns_are_opaque() {
    let one_seat = |memory| {
        let options = StmOptions {
            record_bits: 1,
            stripe_bits: 3,
            solo_after: None,
            threads: ThreadLimit::Fixed(1),
            ..StmOptions::default()
        };
        Stm::new(memory, VolatileLog::new(), options)
    };
    for patient in [false, true] {
        check_random(
            move || {
                PATIENT.set(patient);
                opaque(one_seat, PLAN);
            },
            1000,
        );
        PATIENT.set(false);
    }
}

#[test]
fn ownership_records_are_opaque() {
    check_random(|| opaque(|memory| stm(memory, 100, false), PLAN), 3000);
}

fn one_writer(memory: TxMemory, serial_after: u32, solo: bool) -> Stm<VolatileLog> {
    let solo_after = solo.then_some(2);
    let options = StmOptions { serial_after, solo_after, one_writer: true, ..StmOptions::default() };
    // A small table: the model makes a word of each record.
    Stm::new(memory, VolatileLog::new(), StmOptions { record_bits: 1, ..options })
}

#[test]
fn one_writer_is_opaque() {
    check_random(|| opaque(|memory| one_writer(memory, 100, false), PLAN), 3000);
    check_random(|| opaque(|memory| one_writer(memory, 1, false), PLAN), 1000);
    let plan = Plan { transactions: 70, accesses: 2, reads: 20, nests: 5, irrevocable: 0, ..PLAN };
    check_random(move || opaque(|memory| one_writer(memory, 3, true), plan), 1000);
}

fn measuring(memory: TxMemory) -> Stm<VolatileLog> {
    let options = StmOptions { record_bits: 1, stripe_bits: 3, solo_after: None, ..StmOptions::default() };
    Stm::new(memory, VolatileLog::new(), StmOptions { measures: true, ..options })
}

#[test]
fn changes_between_one_writer_and_many_are_opaque() {
    // Enough for a first trial: times are random, and most are longer than a slice.
    let plan = Plan { transactions: 40, accesses: 10, reads: 20, nests: 2, irrevocable: 0, ..PLAN };
    check_random(move || opaque(measuring, plan), 1000);
}

#[test]
fn the_fallback_that_runs_alone_is_opaque() {
    check_random(|| opaque(|memory| stm(memory, 1, false), PLAN), 2000);
}

#[test]
fn solo_mode_is_opaque_through_its_changes() {
    // More transactions than a thread commits before it asks for solo mode.
    let plan = Plan {
        seed: 0,
        transactions: 70,
        words: 2,
        accesses: 2,
        aborts: 15,
        reads: 20,
        nests: 5,
        irrevocable: 0,
        yields: false,
    };
    check_random(move || opaque(|memory| stm(memory, 3, true), plan), 2000);
}

fn hardware(memory: TxMemory) -> HardwareModel<VolatileLog> {
    // A line or two, and aborts for no reason: the lock path is taken, too.
    let limits = HardwareLimits {
        write_sets: 1,
        write_ways: 1,
        spurious_per_million: 100_000,
        ..HardwareLimits::default()
    };
    HardwareModel::new(memory, VolatileLog::new(), limits)
}

#[test]
fn the_hardware_model_is_opaque() {
    check_random(|| opaque(hardware, PLAN), 1000);
    // Two lines of eight words.
    check_random(|| opaque(hardware, Plan { words: 16, accesses: 3, ..PLAN }), 1000);
}

#[test]
fn one_lock_is_opaque() {
    check_random(|| opaque(|memory| Sgl::new(memory, VolatileLog::new()), PLAN), 500);
    // The lock path; in hardware schedules cannot be searched.
    check_random(|| opaque(|memory| Htm::new(memory, VolatileLog::new()), PLAN), 500);
}

#[test]
fn executors_that_are_wrong_are_found() {
    // Toys know no irrevocable transactions.
    let plan = Plan { irrevocable: 0, ..PLAN };
    check_random(move || opaque(|memory| Toy::new(memory, ToyFault::None), plan), 500);
    for fault in
        [ToyFault::Dirty, ToyFault::LostUpdate, ToyFault::WriteSkew, ToyFault::Zombie, ToyFault::Stale]
    {
        let found = found_by_random(move || opaque(|memory| Toy::new(memory, fault), plan), 1000);
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

/// What only a nested transaction wrote, and undid, nobody else sees, although the transaction around it commits.
fn undone_within() {
    let fixture = Fixture::new(2, |memory| stm(memory, 100, false));
    let writer = {
        let fixture = Arc::clone(&fixture);
        thread::spawn(move || {
            let mut handle = fixture.executor.thread();
            let done = handle.run(|tx| -> Body<()> {
                let inner = tx.nested(|tx| {
                    tx.write_word(fixture.words.at(0), 99)?;
                    Err::<(), Halt<()>>(Halt::Abort(()))
                });
                assert!(matches!(inner, Err(Halt::Abort(()) | Halt::Interrupted(_))));
                Ok(())
            });
            done.unwrap();
        })
    };
    let mut handle = fixture.executor.thread();
    for _ in 0..3 {
        let seen = handle.run(|tx| -> Body<u64> { Ok(tx.read_word(fixture.words.at(0))?) });
        assert_eq!(seen.unwrap(), 0, "a value that was undone");
    }
    writer.join().unwrap();
}

#[test]
fn what_a_nested_transaction_undid_is_never_seen() {
    check_random(undone_within, 3000);
}

/// Writes the neighbour of a word, in the same stripe, and waits until the word is not 0.
fn take(tx: &mut impl TxAccess, words: &Words, word: usize) -> Body<usize> {
    tx.write_word(words.at(word + 1), 1)?;
    if tx.read_word(words.at(word))? == 0 { Err(Halt::Retry) } else { Ok(word) }
}

/// A consumer waits by `or_else` for either of two words, of which its first alternative writes the neighbour before it
/// reads: what an attempt owns it watches, too.
fn either(which: usize, one_writer: bool) {
    let fixture = Fixture::new(4, |memory| {
        // A stripe holds two words.
        let options = StmOptions {
            record_bits: 3,
            stripe_bits: 4,
            serial_after: 100,
            solo_after: None,
            one_writer,
            threads: ThreadLimit::Unlimited,
            ..StmOptions::default()
        };
        Stm::new(memory, VolatileLog::new(), options)
    });
    let producer = {
        let fixture = Arc::clone(&fixture);
        thread::spawn(move || {
            let mut handle = fixture.executor.thread();
            handle.run(|tx| -> Body<()> { Ok(tx.write_word(fixture.words.at(which), 7)?) }).unwrap();
        })
    };
    let mut handle = fixture.executor.thread();
    let words = &fixture.words;
    let taken = handle.run(|tx| tx.or_else(|tx| take(tx, words, 0), |tx| take(tx, words, 2)));
    assert_eq!(taken.unwrap(), which);
    let neighbours = [fixture.words.get(1), fixture.words.get(3)];
    assert_eq!(neighbours, if which == 0 { [1, 0] } else { [0, 1] }, "the other alternative is undone");
    drop(handle);
    producer.join().unwrap();
}

#[test]
fn a_sleeper_watches_both_alternatives() {
    PATIENT.set(true);
    for one_writer in [false, true] {
        check_random(move || either(0, one_writer), 1000);
        check_random(move || either(2, one_writer), 1000);
    }
    PATIENT.set(false);
}

type Body<T> = Result<T, Halt<Infallible>>;

/// A consumer takes three items of a producer through one word, each waiting for the other by `retry`. Before each
/// item the producer has other transactions, and idles. Gives how often the consumer's body ran.
fn hand_over<X: Isolation + Send + 'static>(make: impl Fn(TxMemory) -> X, others: usize, idle: usize) -> u32 {
    let fixture = Fixture::new(2, make);
    let producer = {
        let fixture = Arc::clone(&fixture);
        thread::spawn(move || {
            let mut handle = fixture.executor.thread();
            for item in 1..=3 {
                // A consumer that does not sleep would run many times meanwhile.
                (0..idle).for_each(|_| thread::yield_now());
                for _ in 0..others {
                    handle.run(|tx| -> Body<()> { Ok(tx.write_word(fixture.words.at(1), item)?) }).unwrap();
                }
                let put = handle.run(|tx| -> Body<()> {
                    if tx.read_word(fixture.words.at(0))? != 0 {
                        return Err(Halt::Retry);
                    }
                    Ok(tx.write_word(fixture.words.at(0), item)?)
                });
                put.unwrap();
            }
        })
    };
    let mut handle = fixture.executor.thread();
    let mut runs = 0;
    for expected in 1..=3 {
        let taken = handle.run(|tx| -> Body<u64> {
            runs += 1;
            let item = tx.read_word(fixture.words.at(0))?;
            if item == 0 {
                return Err(Halt::Retry);
            }
            tx.write_word(fixture.words.at(0), 0)?;
            Ok(item)
        });
        assert_eq!(taken.unwrap(), expected);
    }
    drop(handle);
    producer.join().unwrap();
    runs
}

#[test]
fn a_sleeper_wakes_when_what_it_read_changes() {
    // Sleeps have no limit here: a sleeper that is forgotten is a deadlock, which shuttle reports.
    PATIENT.set(true);
    let search = |make: fn(TxMemory) -> Stm<VolatileLog>, others, schedules| {
        check_random(move || assert!(hand_over(make, others, 0) > 2), schedules);
    };
    search(|memory| stm(memory, 100, false), 0, 2000);
    search(|memory| one_writer(memory, 100, false), 0, 1000);
    // Some commits write no records: after conflicts, and in solo mode, which begins while the consumer sleeps.
    search(|memory| stm(memory, 1, false), 0, 2000);
    search(|memory| stm(memory, 100, true), 12, 1000);
    // None does. And who sleeps does not turn in circles: alone, beside others, and again when woken.
    check_random(|| assert!(hand_over(|memory| stm(memory, 0, false), 0, 400) < 20), 2000);
    check_random(|| assert!(hand_over(|memory| Sgl::new(memory, VolatileLog::new()), 0, 400) < 20), 2000);
    check_random(|| assert!(hand_over(|memory| Htm::new(memory, VolatileLog::new()), 0, 400) < 20), 1000);
    check_random(|| assert!(hand_over(hardware, 0, 0) > 2), 1000);
    PATIENT.set(false);
}

#[test]
fn wake_ups_that_are_lost_are_found() {
    PATIENT.set(true);
    for flag in [&FORGETFUL, &SLEEPY] {
        flag.set(true);
        let found = found_by_random(|| assert!(hand_over(|memory| stm(memory, 100, false), 0, 0) > 2), 2000);
        flag.set(false);
        assert!(found.is_some(), "a planted bug was not found");
    }
    PATIENT.set(false);
}

/// A node (two words that agree) is unlinked, changed by plain stores, and linked again, while another thread reads
/// it by way of the link and a third one writes it.
fn private(privatises: bool, one_writer: bool) {
    const LINK: usize = 0;
    let fixture = Fixture::new(8, |memory| {
        // Records of their own for link and node.
        let options = StmOptions {
            record_bits: 3,
            stripe_bits: 3,
            serial_after: 100,
            solo_after: None,
            one_writer,
            threads: ThreadLimit::Unlimited,
            ..StmOptions::default()
        };
        Stm::new(memory, VolatileLog::new(), options)
    });
    fixture.words.set(LINK, 1);
    let reader = |writes: bool| {
        let fixture = Arc::clone(&fixture);
        move || {
            let mut handle = fixture.executor.thread();
            let (one, other) = (fixture.words.at(2), fixture.words.at(4));
            for _ in 0..2 {
                let done = handle.run(|tx| -> Body<()> {
                    if tx.read_word(fixture.words.at(LINK))? == 1 {
                        let (a, b) = (tx.read_word(one)?, tx.read_word(other)?);
                        assert_eq!(a, b, "a transaction saw plain stores to private memory");
                        if writes {
                            tx.write_word(one, a + 1)?;
                            // Written by the other one: the snapshot is extended here now and then.
                            tx.read_word(fixture.words.at(6))?;
                            tx.write_word(other, a + 1)?;
                        }
                    }
                    if !writes {
                        let turns = tx.read_word(fixture.words.at(6))?;
                        tx.write_word(fixture.words.at(6), turns + 1)?;
                    }
                    Ok(())
                });
                done.unwrap();
            }
        }
    };
    let readers = [thread::spawn(reader(false)), thread::spawn(reader(true))];
    let mut handle = fixture.executor.thread();
    for round in 1..=2 {
        let unlinked = handle.run(|tx| -> Body<()> {
            tx.write_word(fixture.words.at(LINK), 0)?;
            if privatises {
                tx.privatise();
            }
            Ok(())
        });
        unlinked.unwrap();
        // Ours alone now: nothing else may store here, nothing else looks.
        fixture.words.set(2, 1000 * round);
        thread::yield_now();
        assert_eq!(fixture.words.get(2), 1000 * round, "a store, or an undo, to private memory");
        fixture.words.set(4, 1000 * round);
        thread::yield_now();
        assert_eq!(fixture.words.get(4), 1000 * round, "a store, or an undo, to private memory");
        handle.run(|tx| -> Body<()> { Ok(tx.write_word(fixture.words.at(LINK), 1)?) }).unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn private_memory_stays_private() {
    for one_writer in [false, true] {
        check_random(move || private(true, one_writer), 3000);
    }
    let found = found_by_random(|| private(false, false), 3000);
    assert!(found.is_some(), "unlinked without waiting, and not found");
}
