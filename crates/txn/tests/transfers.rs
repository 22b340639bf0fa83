//! Transfers between accounts on several threads: the total is right in every state that a transaction sees, whatever
//! becomes of the others. And nobody starves.

#[path = "support/rtm.rs"]
mod rtm;
mod support;

/// What `support` finds as `crate::api` here.
mod api {
    pub(crate) use mangrove_txn::{Halt, TxAccess, TxError, TxMemory, TxThread};
}

use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, Htm, Isolation, Sgl, Stm, StmOptions, TxAccess, TxError, TxThread,
    VolatileLog,
};
use rtm::say_where_rtm_runs;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use support::words::{Random, Words};

const ACCOUNTS: usize = 16;
const EACH: u64 = 1000;

/// One transfer that commits, aborts, panics half-way, or does nothing but look.
fn transfer<H: TxThread>(thread: &mut H, words: &Words, random: &mut Random) -> bool {
    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
    let (amount, fate) = (random.below(50) as u64, random.below(16));
    let total = |tx: &mut H::Tx| -> Result<u64, Halt<()>> {
        (0..ACCOUNTS).try_fold(0, |sum, account| Ok(sum + tx.read_word(words.at(account))?))
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| match fate {
        0..4 => thread.read(|tx| {
            assert_eq!(total(tx)?, ACCOUNTS as u64 * EACH, "a state that never was");
            Ok(())
        }),
        _ => thread.run(|tx| {
            let left = tx.read_word(words.at(from))?;
            if left < amount {
                return Err(Halt::Abort(()));
            }
            tx.write_word(words.at(from), left - amount)?;
            if fate == 4 {
                std::panic::resume_unwind(Box::new("planned"));
            }
            let there = tx.read_word(words.at(to))?;
            tx.write_word(words.at(to), there + amount)?;
            if fate == 5 {
                assert_eq!(total(tx)?, ACCOUNTS as u64 * EACH, "a transaction that wrote sees another total");
            }
            if fate == 6 { Err(Halt::Abort(())) } else { Ok(()) }
        }),
    }));
    match outcome {
        Ok(answer) => answer.is_ok(),
        Err(panic) => {
            assert_eq!(panic.downcast_ref(), Some(&"planned"), "a body failed");
            false
        }
    }
}

fn totals(words: &Words, executor: &impl Isolation, threads: u64, rounds: usize) {
    (0..ACCOUNTS).for_each(|account| words.set(account, EACH));
    std::thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(number + 1);
                let mut handle = executor.thread();
                let done = (0..rounds).filter(|_| transfer(&mut handle, words, &mut random)).count();
                assert!(done > rounds / 4, "most transfers take place");
                assert_eq!(handle.counts().commits as usize, done, "each is counted once");
            });
        }
    });
    let sum: u64 = (0..ACCOUNTS).map(|account| words.get(account)).sum();
    assert_eq!(sum, ACCOUNTS as u64 * EACH);
}

fn stm(words: &Words, record_bits: u32, serial_after: u32, solo: bool) -> Stm<VolatileLog> {
    let solo_after = solo.then_some(64);
    let options =
        StmOptions { record_bits, stripe_bits: 3, serial_after, solo_after, ..StmOptions::default() };
    Stm::new(words.memory(), VolatileLog::new(), options)
}

fn one_writer(words: &Words, solo: bool) -> Stm<VolatileLog> {
    let solo_after = solo.then_some(64);
    let options = StmOptions { solo_after, one_writer: true, ..StmOptions::default() };
    Stm::new(words.memory(), VolatileLog::new(), options)
}

#[test]
fn totals_are_kept() {
    say_where_rtm_runs();
    let words = Words::new(ACCOUNTS);
    totals(&words, &one_writer(&words, false), 4, 5000);
    totals(&words, &one_writer(&words, true), 4, 5000);
    let options = StmOptions { measures: true, ..StmOptions::default() };
    totals(&words, &Stm::new(words.memory(), VolatileLog::new(), options), 4, 20_000);
    for (record_bits, serial_after, solo) in
        [(10, 24, false), (10, 24, true), (1, 24, false), (10, 1, true), (10, 0, false)]
    {
        totals(&words, &stm(&words, record_bits, serial_after, solo), 4, 5000);
    }
    totals(&words, &Sgl::new(words.memory(), VolatileLog::new()), 4, 5000);
    totals(&words, &Htm::new(words.memory(), VolatileLog::new()), 4, 5000);
    let limits = HardwareLimits { spurious_per_million: 10_000, ..HardwareLimits::default() };
    totals(&words, &HardwareModel::new(words.memory(), VolatileLog::new(), limits), 4, 5000);
}

#[test]
fn threads_that_come_and_go_change_the_mode() {
    let words = Words::new(ACCOUNTS);
    let stm = stm(&words, 10, 24, true);
    for _ in 0..10 {
        // One thread alone, then four, then one whose handle outlives the others.
        totals(&words, &stm, 1, 1000);
        totals(&words, &stm, 4, 500);
    }
    let mut resident = stm.thread();
    let mut random = Random::new(7);
    let mut solo = 0;
    for _ in 0..10 {
        let done = (0..1000).filter(|_| transfer(&mut resident, &words, &mut random)).count();
        assert!(done > 500, "most transfers take place");
        assert!(resident.counts().solo > solo, "a thread alone gets into solo mode again");
        solo = resident.counts().solo;
        totals(&words, &stm, 2, 300);
    }
}

#[test]
fn a_thousand_threads_take_part() {
    let words = Words::new(ACCOUNTS);
    totals(&words, &stm(&words, 10, 24, true), 1000, 20);
}

/// A transaction into which another thread commits at each attempt, until it runs alone.
#[test]
fn nobody_starves() {
    let words = Words::new(64);
    for serial_after in [1, 5, 24] {
        let stm = stm(&words, 10, serial_after, false);
        let asked = AtomicU64::new(0);
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut thread = stm.thread();
                for turn in 1..=u64::from(serial_after) {
                    while asked.load(Ordering::Acquire) < turn {
                        std::thread::yield_now();
                    }
                    let add = thread.run(|tx| {
                        let value = tx.read_word(words.at(0))?;
                        Ok::<(), Halt<Infallible>>(tx.write_word(words.at(0), value + 1)?)
                    });
                    add.unwrap();
                    answered.store(turn, Ordering::Release);
                }
            });
            let mut thread = stm.thread();
            let mut attempts = 0;
            let sum = thread.run(|tx| {
                attempts += 1;
                let value = tx.read_word(words.at(0))?;
                if attempts <= u64::from(serial_after) {
                    asked.store(attempts, Ordering::Release);
                    while answered.load(Ordering::Acquire) < attempts {
                        std::thread::yield_now();
                    }
                }
                tx.write_word(words.at(0), value + 1)?;
                Ok::<u64, Halt<Infallible>>(value + 1)
            });
            assert_eq!(attempts, u64::from(serial_after) + 1);
            assert_eq!(sum, Ok(words.get(0)));
            let counts = thread.counts();
            assert_eq!((counts.conflicts, counts.serial), (u64::from(serial_after), 1));
        });
    }
}

/// Items pass through one word from thread to thread, each waiting by `retry`.
fn hands_over(words: &Words, executor: &impl Isolation) {
    const ITEMS: u64 = 300;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut thread = executor.thread();
            for item in 1..=ITEMS {
                let put = thread.run(|tx| {
                    if tx.read_word(words.at(0))? != 0 {
                        return Err(Halt::<Infallible>::Retry);
                    }
                    Ok(tx.write_word(words.at(0), item)?)
                });
                put.unwrap();
            }
        });
        let mut thread = executor.thread();
        for expected in 1..=ITEMS {
            let taken = thread.run(|tx| {
                let item = tx.read_word(words.at(0))?;
                if item == 0 {
                    return Err(Halt::<Infallible>::Retry);
                }
                tx.write_word(words.at(0), 0)?;
                Ok(item)
            });
            assert_eq!(taken.unwrap(), expected);
        }
    });
}

#[test]
fn retry_waits_for_a_change() {
    say_where_rtm_runs();
    let words = Words::new(ACCOUNTS);
    hands_over(&words, &stm(&words, 10, 24, false));
    hands_over(&words, &stm(&words, 10, 24, true));
    hands_over(&words, &stm(&words, 10, 0, false));
    hands_over(&words, &one_writer(&words, false));
    hands_over(&words, &Sgl::new(words.memory(), VolatileLog::new()));
    hands_over(&words, &Htm::new(words.memory(), VolatileLog::new()));
    hands_over(&words, &HardwareModel::new(words.memory(), VolatileLog::new(), HardwareLimits::default()));
}

/// Transfers on three threads, beside one whose transactions put what they saw into a list that no abort undoes.
fn happens_once(words: &Words, executor: &impl Isolation) {
    const ROUNDS: usize = 300;
    (0..ACCOUNTS).for_each(|account| words.set(account, EACH));
    std::thread::scope(|scope| {
        for number in 0..3 {
            scope.spawn(move || {
                let (mut handle, mut random) = (executor.thread(), Random::new(number + 1));
                let done = (0..3000).filter(|_| transfer(&mut handle, words, &mut random)).count();
                assert!(done > 1000, "most transfers take place");
            });
        }
        let mut handle = executor.thread();
        let mut list = Vec::new();
        for round in 0..ROUNDS {
            let answer = handle.irrevocable(|tx| {
                let mut total = 0;
                for account in 0..ACCOUNTS {
                    total += tx.read_word(words.at(account))?;
                    std::thread::yield_now();
                }
                list.push(total);
                let one = tx.read_word(words.at(0))?;
                tx.write_word(words.at(0), one)?;
                Ok(round)
            });
            assert!(answer.is_ok_and(|answer| answer == round), "the body's answer");
        }
        assert_eq!(
            list,
            [ACCOUNTS as u64 * EACH; ROUNDS],
            "each body ran once, and saw no transfer half done"
        );
        let counts = handle.counts();
        assert_eq!((counts.commits, counts.conflicts), (ROUNDS as u64, 0));
        let planned = catch_unwind(AssertUnwindSafe(|| {
            handle.irrevocable(|tx| -> Result<(), _> {
                tx.write_word(words.at(0), 1 << 40)?;
                std::panic::resume_unwind(Box::new("planned"))
            })
        }));
        assert!(planned.is_err(), "a panic goes on to the caller");
    });
    let sum: u64 = (0..ACCOUNTS).map(|account| words.get(account)).sum();
    assert_eq!(sum, ACCOUNTS as u64 * EACH, "what panicked is undone, and the others go on");
}

#[test]
fn what_is_irrevocable_happens_once() {
    say_where_rtm_runs();
    let words = Words::new(ACCOUNTS);
    happens_once(&words, &stm(&words, 10, 24, false));
    happens_once(&words, &stm(&words, 10, 24, true));
    happens_once(&words, &one_writer(&words, true));
    happens_once(&words, &Sgl::new(words.memory(), VolatileLog::new()));
    happens_once(&words, &Htm::new(words.memory(), VolatileLog::new()));
    happens_once(&words, &HardwareModel::new(words.memory(), VolatileLog::new(), HardwareLimits::default()));
}

/// A reader that asks for no log of its reads may write after all.
#[test]
fn a_read_that_writes_is_an_update() {
    let words = Words::new(ACCOUNTS);
    let stm = stm(&words, 10, 24, false);
    let mut thread = stm.thread();
    let answer = thread.read(|tx| {
        let value = tx.read_word(words.at(0))?;
        tx.write_word(words.at(0), value + 5)?;
        Ok::<u64, Halt<Infallible>>(value + 5)
    });
    assert_eq!((answer, words.get(0)), (Ok(5), 5));
    assert_eq!(thread.counts().conflicts, 0, "that was nobody's fault");
}

#[test]
fn a_million_words_in_one_transaction() {
    let words = Words::new(1 << 20);
    let stm = Stm::new(
        words.memory(),
        VolatileLog::new(),
        StmOptions { solo_after: None, ..StmOptions::default() },
    );
    let mut thread = stm.thread();
    for aborts in [true, false] {
        let outcome = thread.run(|tx| {
            for word in 0..1 << 20 {
                let value = tx.read_word(words.at(word))?;
                tx.write_word(words.at(word), value + word as u64)?;
            }
            if aborts { Err(Halt::Abort(())) } else { Ok(()) }
        });
        assert_eq!(outcome, if aborts { Err(TxError::Aborted(())) } else { Ok(()) });
        let expected = |word: usize| if aborts { 0 } else { word as u64 };
        assert!((0..1 << 20).all(|word| words.get(word) == expected(word)));
    }
}
