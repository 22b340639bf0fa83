//! Recorded histories of every executor on real threads are opaque; and the checker of histories finds every kind of
//! violation.

#[path = "support/rtm.rs"]
mod rtm;
mod support;

/// What `support` finds as `crate::api` here.
mod api {
    pub(crate) use mangrove_txn::{Halt, TxAccess, TxError, TxMemory, TxThread};
}

use mangrove_txn::{HardwareLimits, HardwareModel, Htm, Isolation, Sgl, Stm, StmOptions, VolatileLog};
use rtm::say_where_rtm_runs;
use support::checker::{Attempt, Event, Violation, check};
use support::recorder::{Moments, Plan, initial, work};
use support::words::Words;

const THREADS: u64 = 4;

/// Few words and records, so that threads meet.
fn is_opaque<X: Isolation>(make: impl Fn(&Words) -> X, plan: Plan) {
    let words = Words::new(plan.words);
    (0..plan.words).for_each(|word| words.set(word, initial(word)));
    let executor = make(&words);
    let moments = Moments::default();
    let attempts: Vec<Attempt> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|who| {
                let (executor, words, moments) = (&executor, &words, &moments);
                scope.spawn(move || work(&mut executor.thread(), |word| words.at(word), plan, who, moments))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let initials: Vec<u64> = (0..plan.words).map(initial).collect();
    if let Err(violation) = check(&attempts, &initials) {
        panic!("{} attempts: {violation:?}", attempts.len());
    }
    let committed = attempts.iter().filter(|attempt| attempt.committed).count();
    assert!(committed > plan.transactions, "more than one thread committed");
}

const PLANS: [Plan; 3] = [
    Plan {
        seed: 0,
        transactions: 2000,
        words: 4,
        accesses: 6,
        aborts: 10,
        reads: 30,
        nests: 8,
        irrevocable: 5,
        yields: true,
    },
    Plan {
        seed: 0,
        transactions: 4000,
        words: 64,
        accesses: 12,
        aborts: 10,
        reads: 30,
        nests: 8,
        irrevocable: 5,
        yields: false,
    },
    Plan {
        seed: 0,
        transactions: 500,
        words: 32,
        accesses: 40,
        aborts: 5,
        reads: 50,
        nests: 8,
        irrevocable: 5,
        yields: true,
    },
];

#[test]
fn ownership_records_are_opaque() {
    for (record_bits, serial_after, solo) in [(10, 24, false), (2, 24, false), (10, 2, true), (10, 24, true)]
    {
        let options = StmOptions {
            record_bits,
            stripe_bits: 3,
            serial_after,
            solo_after: solo.then_some(64),
            ..StmOptions::default()
        };
        PLANS.iter().for_each(|plan| {
            is_opaque(|words| Stm::new(words.memory(), VolatileLog::new(), options), *plan);
        });
    }
}

#[test]
fn one_writer_is_opaque() {
    for (serial_after, solo) in [(24, false), (2, false), (24, true)] {
        let solo_after = solo.then_some(64);
        let options = StmOptions { serial_after, solo_after, one_writer: true, ..StmOptions::default() };
        PLANS.iter().for_each(|plan| {
            is_opaque(|words| Stm::new(words.memory(), VolatileLog::new(), options), *plan);
        });
    }
}

#[test]
fn the_hardware_model_is_opaque() {
    // As it is; with attempts that abort for no reason; with room for two lines.
    let spurious = HardwareLimits { spurious_per_million: 50_000, ..HardwareLimits::default() };
    let small = HardwareLimits { write_sets: 2, write_ways: 1, ..HardwareLimits::default() };
    for limits in [HardwareLimits::default(), spurious, small] {
        PLANS.iter().for_each(|plan| {
            is_opaque(|words| HardwareModel::new(words.memory(), VolatileLog::new(), limits), *plan);
        });
    }
}

/// In hardware where this machine commits there; otherwise by its lock, which the line on standard error says.
#[test]
fn rtm_and_its_lock_are_opaque() {
    say_where_rtm_runs();
    PLANS.iter().for_each(|plan| is_opaque(|words| Htm::new(words.memory(), VolatileLog::new()), *plan));
}

#[test]
fn one_lock_is_opaque() {
    PLANS.iter().for_each(|plan| is_opaque(|words| Sgl::new(words.memory(), VolatileLog::new()), *plan));
}

/// A history by hand: begin, end, committed, events.
fn history(attempts: &[(u64, u64, bool, &[Event])]) -> Result<(), Violation> {
    let attempts: Vec<Attempt> = attempts
        .iter()
        .map(|&(begin, end, committed, events)| Attempt { begin, end, committed, events: events.to_vec() })
        .collect();
    check(&attempts, &[0, 0])
}

use Event::{Read, Write};

#[test]
fn the_checker_accepts_what_is_opaque() {
    // Two that overlap, in either order; one that was undone between.
    assert_eq!(
        history(&[
            (0, 5, true, &[Read(0, 0), Write(0, 1), Write(0, 2), Read(0, 2)]),
            (1, 6, true, &[Read(0, 2), Read(1, 0), Write(1, 3)]),
            (2, 7, false, &[Read(0, 0), Read(1, 0), Write(1, 9)]),
        ]),
        Ok(())
    );
}

#[test]
fn the_checker_finds_each_violation() {
    let nowhere = history(&[(0, 1, true, &[Read(0, 7)])]);
    assert_eq!(nowhere, Err(Violation::FromNowhere { attempt: 0, value: 7 }));

    let undone = history(&[(0, 3, false, &[Read(0, 0), Write(0, 1)]), (1, 2, true, &[Read(0, 1)])]);
    assert_eq!(undone, Err(Violation::Dirty { attempt: 1, from: 0 }));

    let halfway =
        history(&[(0, 3, true, &[Read(0, 0), Write(0, 1), Write(0, 2)]), (1, 2, true, &[Read(0, 1)])]);
    assert_eq!(halfway, Err(Violation::Dirty { attempt: 1, from: 0 }));

    let unstable =
        history(&[(0, 3, true, &[Read(0, 0), Write(0, 1)]), (1, 4, false, &[Read(0, 0), Read(0, 1)])]);
    assert_eq!(unstable, Err(Violation::Unstable { attempt: 1, word: 0 }));

    let lost = history(&[(0, 3, true, &[Read(0, 0), Write(0, 1)]), (1, 4, true, &[Read(0, 0), Write(0, 2)])]);
    assert_eq!(lost, Err(Violation::LostUpdate { one: 0, other: 1 }));

    // Write skew: each read what the other replaced.
    let skew = history(&[
        (0, 3, true, &[Read(0, 0), Read(1, 0), Write(0, 1)]),
        (1, 4, true, &[Read(0, 0), Read(1, 0), Write(1, 2)]),
    ]);
    assert_eq!(skew, Err(Violation::Circle(vec![0, 1])));

    // An attempt that is undone in the end saw one word before a commit and the other one after it.
    let zombie = history(&[
        (0, 3, true, &[Read(0, 0), Read(1, 0), Write(0, 1), Write(1, 2)]),
        (1, 4, false, &[Read(0, 0), Read(1, 2)]),
    ]);
    assert_eq!(zombie, Err(Violation::Circle(vec![0, 1])));

    // The value of before a commit that had ended when the reader began.
    let stale = history(&[(0, 1, true, &[Read(0, 0), Write(0, 1)]), (2, 3, true, &[Read(0, 0)])]);
    assert_eq!(stale, Err(Violation::Circle(vec![0, 1])));
}
