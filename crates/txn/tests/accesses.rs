//! Accesses of every size and alignment against a byte array, undone ones too; neighbours; addresses outside.

#[path = "support/rtm.rs"]
mod rtm;
mod support;

/// What `support` finds as `crate::api` here.
mod api {
    pub(crate) use mangrove_txn::{Halt, TxAccess, TxError, TxMemory, TxThread};
}

use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, Htm, Isolation, OwnStack, Sgl, Stm, StmOptions, TxAccess, TxError,
    TxThread, VolatileLog,
};
use rtm::say_where_rtm_runs;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use support::words::{Random, Words};

const WORDS: usize = 64;
const BYTES: usize = WORDS * 8;

fn stm(words: &Words, serial_after: u32, solo: bool) -> Stm<VolatileLog> {
    Stm::new(
        words.memory(),
        VolatileLog::new(),
        StmOptions { serial_after, solo_after: solo.then_some(64), ..StmOptions::default() },
    )
}

/// A model that aborts now and then, so that both of its ways are taken.
fn model(words: &Words) -> HardwareModel<VolatileLog> {
    let limits = HardwareLimits { spurious_per_million: 50_000, ..HardwareLimits::default() };
    HardwareModel::new(words.memory(), VolatileLog::new(), limits)
}

/// One access of random size at a random place, compared with `model`.
fn access(
    tx: &mut impl TxAccess,
    base: usize,
    model: &mut [u8],
    random: &mut Random,
) -> Result<(), Halt<()>> {
    macro_rules! sized {
        ($size:literal) => {{
            let at = random.below(BYTES - $size + 1);
            if random.below(2) == 0 {
                let bytes: [u8; $size] = std::array::from_fn(|_| random.next() as u8);
                tx.write(base + at, bytes)?;
                model[at..at + $size].copy_from_slice(&bytes);
            } else {
                let bytes: [u8; $size] = tx.read(base + at)?;
                assert_eq!(bytes, model[at..at + $size], "{} bytes at {at}", $size);
            }
        }};
    }
    match random.below(9) {
        0 => sized!(1),
        1 => sized!(2),
        2 => sized!(4),
        3 => sized!(8),
        4 => sized!(16),
        5 => sized!(3),
        6 => sized!(100),
        7 => {
            let at = random.below(BYTES - 7);
            let value = random.next();
            tx.write_word(base + at, value)?;
            model[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        _ => {
            let at = random.below(BYTES - 7);
            let value = u64::from_le_bytes(model[at..at + 8].try_into().expect("eight bytes"));
            assert_eq!(tx.read_word(base + at)?, value, "a word at {at}");
        }
    }
    Ok(())
}

/// A nested transaction of some accesses, which is kept, aborts, or panics; in it, now and then, another one.
fn nested(
    tx: &mut impl TxAccess,
    base: usize,
    model: &mut [u8],
    random: &mut Random,
) -> Result<(), Halt<()>> {
    let (before, fate) = (model.to_vec(), random.below(3));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        tx.nested(|tx| {
            for _ in 0..random.below(6) {
                access(tx, base, model, random)?;
            }
            if random.below(3) == 0 {
                nested(&mut *tx, base, model, random)?;
            }
            match fate {
                0 => Err(Halt::Abort(())),
                1 => std::panic::resume_unwind(Box::new("planned")),
                _ => Ok(()),
            }
        })
    }));
    match outcome {
        Ok(Err(Halt::Interrupted(interrupted))) => return Err(interrupted.into()),
        Ok(answer) => assert_eq!(answer.is_err(), fate == 0),
        Err(panic) => assert_eq!((fate, panic.downcast_ref()), (1, Some(&"planned"))),
    }
    if fate < 2 {
        model.copy_from_slice(&before);
    }
    Ok(())
}

/// Transactions that commit, abort or panic leave memory as a byte array would be.
fn like_a_byte_array(words: &Words, executor: &impl Isolation, seed: u64) {
    let mut thread = executor.thread();
    let mut random = Random::new(seed);
    let mut model = vec![0; BYTES];
    let base = words.at(0);
    for round in 0..3000 {
        let before = model.clone();
        let (seed, fate) = (random.next(), random.below(4));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            thread.run(|tx| {
                // A body may run again: from the same numbers, on the same model.
                let mut random = Random::new(seed);
                model.copy_from_slice(&before);
                for _ in 0..random.below(12) {
                    access(tx, base, &mut model, &mut random)?;
                    if random.below(8) == 0 {
                        nested(tx, base, &mut model, &mut random)?;
                    }
                }
                match fate {
                    0 => Err(Halt::Abort(())),
                    1 => std::panic::resume_unwind(Box::new("planned")),
                    _ => Ok(()),
                }
            })
        }));
        match fate {
            0 => assert!(matches!(outcome.expect("no panic"), Err(TxError::Aborted(())))),
            1 => assert!(outcome.is_err_and(|panic| panic.downcast_ref() == Some(&"planned"))),
            _ => assert!(outcome.expect("no panic").is_ok()),
        }
        if fate < 2 {
            model = before;
        }
        let found: Vec<u8> = (0..BYTES).map(|at| words.byte(at).load(Ordering::Relaxed)).collect();
        assert_eq!(found, model, "after round {round}, which ended by {fate}");
    }
}

#[test]
fn every_size_and_alignment_is_byte_exact() {
    say_where_rtm_runs();
    for (seed, serial_after, solo) in [(1, 24, false), (2, 24, true), (3, 0, false)] {
        let words = Words::new(WORDS);
        like_a_byte_array(&words, &stm(&words, serial_after, solo), seed);
    }
    let words = Words::new(WORDS);
    let options = StmOptions { solo_after: None, one_writer: true, ..StmOptions::default() };
    like_a_byte_array(&words, &Stm::new(words.memory(), VolatileLog::new(), options), 7);
    let words = Words::new(WORDS);
    like_a_byte_array(&words, &Sgl::new(words.memory(), VolatileLog::new()), 4);
    let words = Words::new(WORDS);
    like_a_byte_array(&words, &model(&words), 5);
    let words = Words::new(WORDS);
    like_a_byte_array(&words, &Htm::new(words.memory(), VolatileLog::new()), 6);
}

/// Odd bytes belong to transactions, half of which abort; even bytes to a thread that uses plain stores.
fn keeps_neighbours(words: &Words, executor: &impl Isolation) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut thread = executor.thread();
            let base = words.at(0);
            for round in 0..20_000_usize {
                let outcome = thread.run(|tx| {
                    for at in (1..16).step_by(2) {
                        tx.write(base + at, [round as u8])?;
                    }
                    if round % 2 == 0 { Err(Halt::Abort(())) } else { Ok(()) }
                });
                assert_eq!(outcome.is_ok(), round % 2 != 0);
            }
            done.store(true, Ordering::Release);
        });
        let mut value = 0_u8;
        while !done.load(Ordering::Acquire) {
            value = value.wrapping_add(1);
            (0..16).step_by(2).for_each(|at| words.byte(at).store(value, Ordering::Relaxed));
            std::hint::spin_loop();
            for at in (0..16).step_by(2) {
                assert_eq!(words.byte(at).load(Ordering::Relaxed), value, "byte {at} was stored to");
            }
        }
    });
}

#[test]
fn bytes_beside_a_write_are_never_stored_to() {
    say_where_rtm_runs();
    let words = Words::new(2);
    keeps_neighbours(&words, &stm(&words, 24, false));
    keeps_neighbours(&words, &stm(&words, 24, true));
    keeps_neighbours(&words, &Sgl::new(words.memory(), VolatileLog::new()));
    keeps_neighbours(&words, &model(&words));
    keeps_neighbours(&words, &Htm::new(words.memory(), VolatileLog::new()));
}

/// An access outside panics, and what the transaction wrote before is undone.
fn refuses_addresses_outside(words: &Words, executor: &impl Isolation) {
    let mut thread = executor.thread();
    let (first, end) = (words.at(0), words.at(0) + BYTES);
    for (address, size) in [(end, 1), (end - 4, 8), (first - 1, 1), (usize::MAX - 3, 8), (0, 1)] {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            thread.run(|tx| {
                tx.write_word(first, 99)?;
                tx.read_bytes(address, &mut vec![0; size])?;
                Ok::<(), Halt<Infallible>>(())
            })
        }));
        assert!(outcome.is_err(), "{size} bytes at {address:#x} were read");
        assert_eq!(words.get(0), 0);
    }
    let answer = thread.run(|tx| Ok::<_, Halt<()>>(tx.read_word(first)?));
    assert_eq!(answer.unwrap(), 0, "the thread goes on");
}

#[test]
fn addresses_outside_are_refused() {
    say_where_rtm_runs();
    let words = Words::new(WORDS);
    refuses_addresses_outside(&words, &stm(&words, 24, false));
    refuses_addresses_outside(&words, &stm(&words, 0, false));
    refuses_addresses_outside(&words, &Sgl::new(words.memory(), VolatileLog::new()));
    refuses_addresses_outside(&words, &model(&words));
    refuses_addresses_outside(&words, &Htm::new(words.memory(), VolatileLog::new()));
}

/// Accesses to the body's own frame pass the filter: they are byte-exact, an abort leaves them, and what lies in the
/// executor's memory is undone. Beside the frame, an access is refused as before.
fn passes_its_own_frame(words: &Words, executor: &impl Isolation) {
    let mut thread = executor.thread();
    let mut frame = [0_u64; 16];
    let from = frame.as_mut_ptr().expose_provenance() + 8;
    let until = from + 14 * 8;
    for aborts in [true, false] {
        let outcome = thread.run(|tx| {
            // SAFETY: the middle of an array of this thread, which nothing else uses before the transaction has ended.
            let mut tx = unsafe { OwnStack::new(tx, from..until) };
            let mut expected = [0_u8; 14 * 8];
            tx.write_bytes(from, &expected)?;
            for (at, len) in [(0, 8), (3, 1), (9, 16), (30, 4), (61, 51)] {
                let bytes: Vec<u8> = (0..len).map(|n| (at + n + 1) as u8).collect();
                tx.write_bytes(from + at, &bytes)?;
                expected[at..at + len].copy_from_slice(&bytes);
            }
            let mut found = [0_u8; 14 * 8];
            tx.read_bytes(from, &mut found)?;
            assert_eq!(found, expected);
            let value = tx.read_word(words.at(3))?;
            let [first] = tx.read(from)?;
            tx.write_word(words.at(3), value + u64::from(first))?;
            let nested = tx.nested(|tx| {
                tx.write_word(words.at(4), 5)?;
                tx.write_word(until - 8, 6)?;
                Err::<(), _>(Halt::Abort(()))
            });
            assert_eq!(nested, Err(Halt::Abort(())));
            assert_eq!((tx.read_word(words.at(4))?, tx.read_word(until - 8)?), (0, 6));
            if aborts { Err(Halt::Abort(())) } else { Ok(()) }
        });
        assert_eq!(outcome.is_err(), aborts);
        assert_eq!((words.get(3), words.get(4)), (u64::from(!aborts), 0));
        let frame = std::hint::black_box(&frame);
        assert_eq!((frame[0], frame[1].to_le_bytes()[0], frame[14], frame[15]), (0, 1, 6, 0));
    }
    words.set(3, 0);
    for (address, size) in [(from - 1, 1), (until, 1), (until - 4, 8), (from - 8, 8)] {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            thread.run(|tx| {
                // SAFETY: as above.
                let mut tx = unsafe { OwnStack::new(tx, from..until) };
                tx.write_bytes(address, &vec![9; size])?;
                Ok::<(), Halt<Infallible>>(())
            })
        }));
        assert!(outcome.is_err(), "{size} bytes at {address:#x} were written");
    }
}

#[test]
fn the_bodys_own_frame_is_passed_through() {
    say_where_rtm_runs();
    let words = Words::new(WORDS);
    passes_its_own_frame(&words, &stm(&words, 24, false));
    passes_its_own_frame(&words, &stm(&words, 0, false));
    passes_its_own_frame(&words, &stm(&words, 24, true));
    passes_its_own_frame(&words, &Sgl::new(words.memory(), VolatileLog::new()));
    passes_its_own_frame(&words, &model(&words));
    passes_its_own_frame(&words, &Htm::new(words.memory(), VolatileLog::new()));
}
