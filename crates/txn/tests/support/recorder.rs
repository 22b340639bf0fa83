//! Runs transactions of random accesses, and records what each attempt saw.

use super::checker::{Attempt, Event};
use super::words::Random;
use crate::api::{Halt, TxAccess, TxError, TxThread};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Which random accesses.
    pub(crate) seed: u64,
    /// Transactions.
    pub(crate) transactions: usize,
    /// Words that all threads use.
    pub(crate) words: usize,
    /// Accesses of one transaction, at most.
    pub(crate) accesses: usize,
    /// Of 100 transactions, those that abort themselves.
    pub(crate) aborts: usize,
    /// Of 100 transactions, those that only read.
    pub(crate) reads: usize,
    /// Of 100 accesses that follow each other, those that begin a nested transaction, which may halt.
    pub(crate) nests: usize,
    /// Of 100 transactions, those that are irrevocable.
    pub(crate) irrevocable: usize,
    /// Whether threads give the CPU away within transactions.
    pub(crate) yields: bool,
}

/// Moments of all threads of one history.
#[derive(Debug, Default)]
pub(crate) struct Moments(AtomicU64);

impl Moments {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// The value that a word holds in the beginning.
pub(crate) fn initial(word: usize) -> u64 {
    u64::MAX - word as u64
}

/// Runs the plan of thread `who` on the words at `addresses` and gives all its attempts.
pub(crate) fn work<H: TxThread>(
    handle: &mut H,
    addresses: impl Fn(usize) -> usize,
    plan: Plan,
    who: u64,
    moments: &Moments,
) -> Vec<Attempt> {
    let mut random = Random::new(plan.seed.wrapping_mul(64) + who + 1);
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut values = who << 40;
    for _ in 0..plan.transactions {
        let (seed, only_reads) = (random.next(), random.below(100) < plan.reads);
        let irrevocable = random.below(100) < plan.irrevocable;
        let aborts = !irrevocable && random.below(100) < plan.aborts;
        let mut begin = moments.next();
        let first = attempts.len();
        let mut body = |tx: &mut H::Tx| {
            attempts.push(Attempt { begin, end: 0, committed: false, events: Vec::new() });
            let attempt = attempts.last_mut().expect("just pushed");
            let answer = accesses(tx, &addresses, plan, seed, only_reads, &mut values, &mut attempt.events);
            begin = moments.next();
            attempt.end = begin;
            answer?;
            if aborts { Err(Halt::Abort(())) } else { Ok(()) }
        };
        let outcome = if irrevocable {
            let answer = handle.irrevocable(|tx| match body(tx) {
                Err(Halt::Interrupted(interrupted)) => Err(interrupted),
                answer => Ok(answer.is_ok()),
            });
            assert!(
                answer.is_ok_and(|answer| answer),
                "its body does not halt, and the log never fails here"
            );
            Ok(())
        } else if only_reads {
            handle.read(body)
        } else {
            handle.run(body)
        };
        assert!(!irrevocable || attempts.len() == first + 1, "an irrevocable body runs once");
        match outcome {
            Ok(()) => {
                let last = attempts.last_mut().expect("a body has run");
                (last.end, last.committed) = (moments.next(), true);
            }
            Err(TxError::Aborted(())) => assert!(aborts),
            Err(error) => panic!("the log never fails here: {error:?}"),
        }
        assert!(attempts.len() > first);
    }
    attempts
}

fn accesses<E>(
    tx: &mut impl TxAccess,
    addresses: &impl Fn(usize) -> usize,
    plan: Plan,
    seed: u64,
    only_reads: bool,
    values: &mut u64,
    events: &mut Vec<Event>,
) -> Result<(), Halt<E>> {
    let mut random = Random::new(seed);
    let count = 1 + random.below(plan.accesses);
    for _ in 0..count {
        if !only_reads && random.below(100) < plan.nests {
            nested(tx, addresses, plan, &mut random, values, events)?;
        }
        let word = random.below(plan.words);
        let value = tx.read_word(addresses(word))?;
        events.push(Event::Read(word, value));
        if plan.yields && random.below(4) == 0 {
            std::thread::yield_now();
        }
        if !only_reads && random.below(2) == 0 {
            *values += 1;
            // Noted first: an interrupted write may have left its value for a broken executor to show.
            events.push(Event::Write(word, *values));
            tx.write_word(addresses(word), *values)?;
        }
    }
    Ok(())
}

/// A nested transaction of a few accesses, which is kept, or halts and leaves only what it read of others.
fn nested<E>(
    tx: &mut impl TxAccess,
    addresses: &impl Fn(usize) -> usize,
    plan: Plan,
    random: &mut Random,
    values: &mut u64,
    events: &mut Vec<Event>,
) -> Result<(), Halt<E>> {
    let (seed, fate) = (random.next(), random.below(3));
    let (first_event, first_value) = (events.len(), *values);
    // A retry in the first of the two leads to the second, which does nothing.
    let answer = tx.or_else(
        |tx| {
            accesses::<()>(
                tx,
                addresses,
                Plan { nests: plan.nests / 4, accesses: 3, ..plan },
                seed,
                false,
                values,
                events,
            )?;
            match fate {
                0 => Ok(true),
                1 => Err(Halt::Abort(())),
                _ => Err(Halt::Retry),
            }
        },
        |_| Ok(false),
    );
    match answer {
        Ok(kept) => assert_eq!(kept, fate == 0),
        Err(Halt::Abort(())) => assert_eq!(fate, 1),
        Err(Halt::Interrupted(interrupted)) => return Err(interrupted.into()),
        Err(Halt::Retry) => panic!("the second one does not ask for it"),
    }
    if fate != 0 {
        let of_nested = events.split_off(first_event);
        events.extend(of_nested.into_iter().filter(|event| match *event {
            Event::Read(_, value) => value <= first_value || value >> 40 != first_value >> 40,
            Event::Write(..) => false,
        }));
    }
    Ok(())
}
