//! The model of hardware transactions does what real RTM was measured to do: the requester wins, written lines fit the
//! ways of their cache sets, the fallback lock aborts everyone, and a full cache leads to it at once.

mod support;

/// What `support` finds as `crate::api` here.
mod api {
    pub(crate) use mangrove_txn::{Halt, TxAccess, TxError, TxMemory, TxThread};
}

use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, HardwareThread, HardwareTx, Htm, Isolation, TxAccess, TxCounts,
    TxThread, VolatileLog,
};
use std::convert::Infallible;
use support::words::{Random, Words};

type Body<T> = Result<T, Halt<Infallible>>;

/// A megabyte whose first word begins a cache line, and its words by line.
struct Lines(Words);

impl Lines {
    fn new() -> Self {
        Self(Words::new((1 << 17) + 8))
    }

    fn at(&self, line: usize) -> usize {
        self.0.at(0).next_multiple_of(64) + line * 64
    }

    fn model(&self, limits: HardwareLimits) -> HardwareModel<VolatileLog> {
        HardwareModel::new(self.0.memory(), VolatileLog::new(), limits)
    }
}

/// Conflicts of a transaction that reads or writes a line, into whose first attempt another one comes that reads or
/// writes the same or another line.
fn conflicts(first_writes: bool, second_writes: bool, second_line: usize) -> u64 {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits::default());
    let (mut first, mut second) = (model.thread(), model.thread());
    let mut attempts = 0;
    let done = first.run(|tx| -> Body<()> {
        attempts += 1;
        if first_writes {
            tx.write_word(lines.at(5), 1)?;
        } else {
            tx.read_word(lines.at(5))?;
        }
        if attempts == 1 {
            let other = second.run(|tx| -> Body<()> {
                if second_writes {
                    tx.write_word(lines.at(second_line) + 8, 1)?;
                } else {
                    tx.read_word(lines.at(second_line) + 8)?;
                }
                Ok(())
            });
            other.unwrap();
        }
        Ok(())
    });
    done.unwrap();
    assert_eq!(second.counts().conflicts, 0, "the requester wins");
    assert_eq!(first.counts().conflicts + 1, attempts);
    first.counts().conflicts
}

#[test]
fn the_requester_wins() {
    assert_eq!(conflicts(false, false, 5), 0, "two that read");
    assert_eq!(conflicts(false, true, 5), 1, "a write aborts one that read");
    assert_eq!(conflicts(true, false, 5), 1, "a read aborts one that wrote");
    assert_eq!(conflicts(true, true, 5), 1, "a write aborts one that wrote");
    assert_eq!(conflicts(true, true, 6), 0, "other lines");
}

#[test]
fn an_aborted_attempt_reads_nothing_any_more() {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits::default());
    let (mut first, mut second) = (model.thread(), model.thread());
    let mut attempts = 0;
    let seen = first.run(|tx| -> Body<u64> {
        attempts += 1;
        let before = tx.read_word(lines.at(5))?;
        if attempts == 1 {
            second.run(|tx| -> Body<()> { Ok(tx.write_word(lines.at(5), 7)?) }).unwrap();
            assert!(tx.read_word(lines.at(5)).is_err(), "the same line, which was held");
            assert!(tx.read_word(lines.at(6)).is_err(), "another line");
        }
        Ok(before)
    });
    assert_eq!((seen, attempts), (Ok(7), 2), "what the body concluded from an aborted attempt is not told");
}

/// Writes to these lines in one transaction, and gives what it met.
fn write_lines(
    lines: &Lines,
    model: &HardwareModel<VolatileLog>,
    numbers: impl Iterator<Item = usize>,
) -> TxCounts {
    let numbers: Vec<usize> = numbers.collect();
    let mut thread = model.thread();
    let done = thread.run(|tx| -> Body<()> {
        numbers.iter().try_for_each(|&number| Ok(tx.write_word(lines.at(number), 1)?))
    });
    done.unwrap();
    thread.counts()
}

#[test]
fn a_full_cache_set_leads_to_the_lock() {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits::default());
    let serial = |counts: TxCounts| (counts.capacity, counts.serial);
    assert_eq!(serial(write_lines(&lines, &model, 0..768)), (0, 0), "all ways of all sets");
    assert_eq!(serial(write_lines(&lines, &model, 0..769)), (1, 1), "one more");
    assert_eq!(serial(write_lines(&lines, &model, (0..12).map(|i| i * 64))), (0, 0), "all ways of one set");
    assert_eq!(serial(write_lines(&lines, &model, (0..13).map(|i| i * 64))), (1, 1), "one more");
}

#[test]
fn random_lines_fit_as_measured() {
    // Measured on RTM: 256 random lines fit in 94 of 100 attempts, 350 in 50, 512 in none.
    let lines = Lines::new();
    let model = lines.model(HardwareLimits::default());
    let mut random = Random::new(1);
    for (count, least, most) in [(256, 90, 100), (350, 40, 90), (512, 0, 5)] {
        let fits = (0..100).filter(|_| {
            let numbers: Vec<usize> = (0..count).map(|_| random.below(1 << 14)).collect();
            write_lines(&lines, &model, numbers.into_iter()).capacity == 0
        });
        let fits = fits.count();
        assert!((least..=most).contains(&fits), "{fits} of 100 with {count} lines");
    }
}

#[test]
fn the_lock_aborts_attempts_that_share_nothing_with_it() {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits { write_sets: 1, write_ways: 2, ..HardwareLimits::default() });
    let (mut first, mut second) = (model.thread(), model.thread());
    let mut attempts = 0;
    let done = first.run(|tx| -> Body<()> {
        attempts += 1;
        tx.read_word(lines.at(5))?;
        if attempts == 1 {
            let locked = second.run(|tx| -> Body<()> {
                (10..13).try_for_each(|number| Ok(tx.write_word(lines.at(number), 1)?))
            });
            locked.unwrap();
        }
        tx.read_word(lines.at(6))?;
        Ok(())
    });
    done.unwrap();
    assert_eq!((second.counts().serial, second.counts().capacity), (1, 1));
    assert_eq!((first.counts().conflicts, first.counts().serial, attempts), (1, 0, 2));
}

#[test]
fn ten_conflicts_lead_to_the_lock() {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits::default());
    let (mut first, mut second) = (model.thread(), model.thread());
    let mut attempts = 0;
    let done = first.run(|tx| -> Body<()> {
        attempts += 1;
        tx.write_word(lines.at(5), 1)?;
        if attempts <= 10 {
            second.run(|tx| -> Body<()> { Ok(tx.write_word(lines.at(5), 2)?) }).unwrap();
        }
        tx.read_word(lines.at(6))?;
        Ok(())
    });
    done.unwrap();
    assert_eq!((first.counts().conflicts, first.counts().serial, attempts), (10, 1, 11));
}

/// As on RTM: a page fault has no reason, and repeats until the page was touched outside of hardware.
#[test]
fn two_aborts_in_a_row_without_a_reason_lead_to_the_lock() {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits { spurious_per_million: 1_000_000, ..HardwareLimits::default() });
    let mut thread = model.thread();
    thread.run(|tx| -> Body<()> { Ok(tx.write_word(lines.at(0), 1)?) }).unwrap();
    let counts = thread.counts();
    assert_eq!((counts.conflicts, counts.without_reason, counts.serial), (2, 2, 1));
}

/// Runs a body as one transaction at a call site of its own.
type CallSite = fn(&mut HardwareThread<'_, VolatileLog>, &mut dyn FnMut(&mut HardwareTx<'_>) -> Body<()>);

static CALL_SITES: [CallSite; 8] = [
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
    |thread, body| thread.run(body).unwrap(),
];

/// Two call sites of one thread: transactions of the one meet another one at each attempt, those of the other never
/// do. Conflicts of the first in 32 rounds, and after many rounds in 10,000; and transactions of the second that took
/// the lock in those.
fn two_call_sites(meets: CallSite, never_meets: CallSite) -> (u64, u64, u64) {
    let lines = Lines::new();
    let model = lines.model(HardwareLimits::default());
    let (mut thread, mut rival) = (model.thread(), model.thread());
    let mut written = 0;
    // Conflicts of the one site, and transactions of the other that took the lock.
    let mut rounds = |count: usize| {
        let (mut conflicts, mut locked) = (0, 0);
        for _ in 0..count {
            let before = thread.counts();
            meets(&mut thread, &mut |tx: &mut HardwareTx<'_>| -> Body<()> {
                written += 1;
                tx.write_word(lines.at(0), written)?;
                // In hardware the write is not in memory yet.
                if lines.0.get((lines.at(0) - lines.0.at(0)) / 8) != written {
                    rival.run(|tx| -> Body<()> { Ok(tx.write_word(lines.at(0), 0)?) }).unwrap();
                }
                tx.read_word(lines.at(1))?;
                Ok(())
            });
            let between = thread.counts();
            never_meets(&mut thread, &mut |tx: &mut HardwareTx<'_>| -> Body<()> {
                Ok(tx.write_word(lines.at(7), 1)?)
            });
            conflicts += between.conflicts - before.conflicts;
            locked += thread.counts().serial - between.serial;
        }
        (conflicts, locked)
    };
    let at_first = rounds(32).0;
    rounds(20_000);
    let (conflicts, locked) = rounds(10_000);
    (at_first, conflicts, locked)
}

/// The one site soon takes the lock at once, and the other stays in hardware. The addresses of call sites choose among
/// 64 places for their numbers: two sites may share one, and then have one number, but not each pair of these does.
#[test]
fn each_call_site_finds_its_own_number_of_attempts() {
    let mut seen = Vec::new();
    for pair in CALL_SITES.chunks_exact(2) {
        let (at_first, conflicts, locked) = two_call_sites(pair[0], pair[1]);
        assert_eq!(at_first, 320, "ten attempts each");
        if conflicts < 10_000 && locked < 1_000 {
            return;
        }
        seen.push((conflicts, locked));
    }
    panic!(
        "attempts in vain, and transactions without conflicts that took the lock, of 10000 each: {seen:?}"
    );
}

/// A log that keeps nothing. Drawing a number executes a page of code that all other code leaves alone.
#[cfg(target_arch = "x86_64")]
mod log_with_code_of_its_own {
    use mangrove_txn::{RedoLog, RedoSink, TxWrites, UnitSize};
    use std::convert::Infallible;

    std::arch::global_asm!(
        ".pushsection .text.mangrove_only_in_hardware, \"ax\", @progbits",
        ".p2align 12",
        ".globl mangrove_only_in_hardware",
        "mangrove_only_in_hardware:",
        "ret",
        ".p2align 12",
        ".popsection",
    );

    unsafe extern "C" {
        safe fn mangrove_only_in_hardware();
    }

    pub(crate) struct Log;
    pub(crate) struct Sink;

    impl RedoLog for Log {
        type Sink<'log> = Sink;
        const KEEPS: bool = false;
        const DENSE: bool = false;

        fn sink(&self) -> Sink {
            Sink
        }

        fn newest(&self) -> u64 {
            0
        }
    }

    impl RedoSink for Sink {
        type Error = Infallible;

        fn prepare(&mut self, _size: UnitSize) -> Result<(), Infallible> {
            Ok(())
        }

        fn put(&mut self, _writes: &impl TxWrites) -> Result<(), Infallible> {
            Ok(())
        }

        fn number(&mut self) -> u64 {
            mangrove_only_in_hardware();
            0
        }

        fn number_alone(&mut self) -> u64 {
            0
        }

        fn seal(&mut self) -> Result<(), Infallible> {
            Ok(())
        }

        fn void(&mut self) {}

        fn number_void(&mut self) -> u64 {
            0
        }

        fn finish(&mut self) -> Result<(), Infallible> {
            Ok(())
        }

        fn settle(&mut self, _number: u64) -> Result<(), Infallible> {
            Ok(())
        }
    }
}

/// Where RTM commits: from the beginning, and also after the kernel has looked which pages are in use. A transaction
/// cannot mark one as accessed, nor map one, and no other code executes those of its own.
#[test]
#[cfg(target_arch = "x86_64")]
fn rtm_commits_again_after_the_kernel_has_marked_all_pages_as_unused() {
    if !mangrove_sys::rtm().commits() {
        eprintln!("not tested: no RTM here");
        return;
    }
    let lines = Lines::new();
    let executor = Htm::new(lines.0.memory(), log_with_code_of_its_own::Log);
    let mut thread = executor.thread();
    let mut commits_in_hardware = || {
        let before = thread.counts().hardware;
        for _ in 0..10_000 {
            let add = |tx: &mut mangrove_txn::InPlaceTx| -> Body<()> {
                let value = tx.read_word(lines.at(5))?;
                Ok(tx.write_word(lines.at(5), value + 1)?)
            };
            thread.run(add).unwrap();
        }
        thread.counts().hardware - before
    };
    commits_in_hardware();
    let at_first = commits_in_hardware();
    if let Err(error) = std::fs::write("/proc/self/clear_refs", "1") {
        eprintln!("not tested: /proc/self/clear_refs: {error}");
        return;
    }
    commits_in_hardware();
    let afterwards = commits_in_hardware();
    assert!(at_first > 5_000, "{at_first} of 10,000 commits in hardware");
    assert!(afterwards > 5_000, "{afterwards} of 10,000 commits in hardware, {at_first} before");
}
