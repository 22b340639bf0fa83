//! Long transactions: what they need is in proportion to the words that they touch. In a program of its own, because it
//! watches the memory of the process.

mod support;

/// What `support` finds as `crate::api` here.
mod api {
    pub(crate) use mangrove_txn::{Halt, TxAccess, TxError, TxMemory, TxThread};
}

use mangrove_txn::{Halt, Isolation, Stm, StmOptions, TxAccess, TxError, TxThread, VolatileLog};
use support::words::Words;

#[test]
fn a_million_writes_of_two_words_need_room_for_two() {
    // The second one is in another stripe, and one that is only read in a third one.
    let words = Words::new(16);
    for solo in [false, true] {
        let options = StmOptions { solo_after: solo.then_some(64), ..StmOptions::default() };
        let stm = Stm::new(words.memory(), VolatileLog::new(), options);
        let mut thread = stm.thread();
        let before = resident_bytes();
        let outcome = thread.run(|tx| {
            for round in 0..4_000_000 {
                let at = words.at(round % 2 * 4);
                let value = tx.read_word(at)?;
                tx.read_word(words.at(12))?;
                tx.write_word(at, value + 1)?;
            }
            Err::<(), _>(Halt::Abort(()))
        });
        assert_eq!(outcome, Err(TxError::Aborted(())));
        assert_eq!((words.get(0), words.get(4)), (0, 0), "the first of many entries is restored");
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes for four million accesses to two words");
    }
}

#[test]
fn entries_are_dropped_within_one_nested_transaction_only() {
    let words = Words::new(16);
    let stm = Stm::new(words.memory(), VolatileLog::new(), StmOptions::default());
    let mut thread = stm.thread();
    let outcome = thread.run(|tx| {
        for depth in 1..=3 {
            tx.write_word(words.at(0), depth)?;
            let inner = tx.nested(|tx| {
                for round in 0..1000 {
                    tx.write_word(words.at(0), 100 + round)?;
                    tx.write_word(words.at(4), round)?;
                }
                // What this one replaces was written by the one around it.
                let innermost = tx.nested(|tx| {
                    (0..1000).try_for_each(|round| tx.write_word(words.at(4), round))?;
                    Err::<(), Halt<u8>>(Halt::Abort(1))
                });
                assert_eq!(innermost, Err(Halt::Abort(1)));
                assert_eq!(tx.read_word(words.at(4))?, 999);
                Err::<(), Halt<u8>>(Halt::Abort(2))
            });
            assert_eq!(inner, Err(Halt::Abort(2)));
            assert_eq!((tx.read_word(words.at(0))?, tx.read_word(words.at(4))?), (depth, 0));
        }
        Err::<(), Halt<u8>>(Halt::Abort(3))
    });
    assert_eq!(outcome, Err(TxError::Aborted(3)));
    assert_eq!((words.get(0), words.get(4)), (0, 0));
}

/// Memory of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}
