//! What executors hand to a redo log: the calls in their order, whole units, dense numbers, and what readers wait
//! for.

mod support;

/// What `support` finds as `crate::api` here.
mod api {
    pub(crate) use mangrove_txn::{Halt, TxAccess, TxError, TxMemory, TxThread};
}

use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, Isolation, RedoLog, RedoSink, Sgl, Stm, StmOptions, StmThread,
    TxAccess, TxError, TxThread, TxWrites, Unit, UnitSize,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use support::words::{Random, Words};

/// Keeps every unit, and panics when the calls come in another order than the trait's.
#[derive(Default)]
struct Keeper {
    newest: AtomicU64,
    units: Mutex<BTreeMap<u64, KeptUnit>>,
    full: AtomicBool,
    /// Units are refused when they have their number.
    late: AtomicBool,
    broken: AtomicBool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct KeptUnit {
    void: bool,
    finished: bool,
    ranges: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Outside,
    Prepared,
    Announced,
    Put,
    PutAndAnnounced,
    Refused,
    Numbered(u64),
    Closed(u64),
}

struct KeeperSink<'log> {
    log: &'log Keeper,
    step: Step,
    unit: KeptUnit,
    settled: &'log Mutex<Vec<u64>>,
}

/// The log, and what its sinks waited for.
#[derive(Default)]
struct Kept {
    log: Keeper,
    settled: Mutex<Vec<u64>>,
}

impl RedoLog for Kept {
    type Sink<'log> = KeeperSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = true;

    fn sink(&self) -> KeeperSink<'_> {
        let unit = KeptUnit::default();
        KeeperSink { log: &self.log, step: Step::Outside, unit, settled: &self.settled }
    }

    fn newest(&self) -> u64 {
        self.log.newest.load(Ordering::Acquire)
    }
}

/// Takes a unit, and panics when it is larger than was said.
struct Builder {
    room: UnitSize,
    ranges: Vec<(usize, Vec<u8>)>,
}

impl Unit for Builder {
    fn word(&mut self, address: usize, value: u64) {
        assert!(address.is_multiple_of(8));
        self.room.words = self.room.words.checked_sub(1).expect("no more words than said");
        self.ranges.push((address, value.to_le_bytes().to_vec()));
    }

    fn range(&mut self, address: usize, bytes: &[u8]) {
        self.room.ranges = self.room.ranges.checked_sub(1).expect("no more ranges than said");
        self.room.range_bytes =
            self.room.range_bytes.checked_sub(bytes.len()).expect("no more bytes than said");
        self.ranges.push((address, bytes.to_vec()));
    }
}

impl KeeperSink<'_> {
    fn close(&mut self, void: bool) {
        let Step::Numbered(number) = self.step else { panic!("{:?}", self.step) };
        let mut unit = std::mem::take(&mut self.unit);
        if void {
            unit = KeptUnit { void, ..KeptUnit::default() };
        }
        assert!(self.log.units.lock().unwrap().insert(number, unit).is_none(), "{number} was drawn twice");
        self.step = Step::Closed(number);
    }
}

impl RedoSink for KeeperSink<'_> {
    type Error = &'static str;

    fn announce(&mut self) {
        assert!(matches!(self.step, Step::Prepared | Step::Put), "{:?}", self.step);
        self.step = if self.step == Step::Put { Step::PutAndAnnounced } else { Step::Announced };
    }

    fn withdraw(&mut self) {
        assert!(!matches!(self.step, Step::Numbered(_) | Step::Closed(_)), "{:?}", self.step);
        self.step = Step::Outside;
    }

    fn prepare(&mut self, _size: UnitSize) -> Result<(), &'static str> {
        assert_eq!(self.step, Step::Outside, "nobody waits for room when others may wait for him");
        self.step = Step::Prepared;
        if self.log.full.load(Ordering::Relaxed) { Err("full") } else { Ok(()) }
    }

    fn put(&mut self, writes: &impl TxWrites) -> Result<(), &'static str> {
        assert!(matches!(self.step, Step::Outside | Step::Announced), "{:?}", self.step);
        if self.log.full.load(Ordering::Relaxed) {
            self.step = Step::Refused;
            return Err("full");
        }
        let mut builder = Builder { room: writes.size(), ranges: Vec::new() };
        writes.each(&mut builder);
        self.unit.ranges = builder.ranges;
        self.step = if self.step == Step::Announced { Step::PutAndAnnounced } else { Step::Put };
        Ok(())
    }

    fn number(&mut self) -> u64 {
        assert_eq!(self.step, Step::PutAndAnnounced);
        let number = self.log.newest.fetch_add(1, Ordering::AcqRel) + 1;
        self.step = Step::Numbered(number);
        number
    }

    fn seal(&mut self) -> Result<(), &'static str> {
        if self.log.late.load(Ordering::Relaxed) {
            self.close(true);
            self.step = Step::Refused;
            return Err("late");
        }
        self.close(false);
        Ok(())
    }

    fn void(&mut self) {
        self.close(true);
    }

    fn number_void(&mut self) -> u64 {
        assert!(!matches!(self.step, Step::Numbered(_) | Step::Closed(_)), "{:?}", self.step);
        let number = self.log.newest.fetch_add(1, Ordering::AcqRel) + 1;
        self.step = Step::Numbered(number);
        self.close(true);
        number
    }

    fn finish(&mut self) -> Result<(), &'static str> {
        let Step::Closed(number) = self.step else { panic!("{:?}", self.step) };
        self.step = Step::Outside;
        self.log.units.lock().unwrap().get_mut(&number).expect("closed").finished = true;
        if self.log.broken.load(Ordering::Relaxed) { Err("broken") } else { Ok(()) }
    }

    fn settle(&mut self, number: u64) -> Result<(), &'static str> {
        assert_eq!(self.step, Step::Outside);
        self.settled.lock().unwrap().push(number);
        if self.log.broken.load(Ordering::Relaxed) { Err("broken") } else { Ok(()) }
    }
}

const WORDS: usize = 16;

/// A transaction of random writes of every size, which may abort.
fn scramble<H: TxThread>(thread: &mut H, words: &Words, seed: u64, aborts: bool) {
    let outcome = thread.run(|tx| {
        let mut random = Random::new(seed);
        for _ in 0..1 + random.below(6) {
            let mut bytes = vec![0; 1 + random.below(20)];
            let at = words.at(0) + random.below(WORDS * 8 - bytes.len() + 1);
            tx.read_bytes(at, &mut bytes)?;
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(random.next() as u8));
            tx.write_bytes(at, &bytes)?;
        }
        if aborts { Err(Halt::Abort(())) } else { Ok(()) }
    });
    match outcome {
        Ok(()) => assert!(!aborts),
        Err(TxError::Aborted(())) => assert!(aborts),
        Err(error) => panic!("{error:?}"),
    }
}

/// Several threads' units, applied in order, give memory.
fn units_give_memory<X: Isolation>(words: &Words, executor: &X, log: &Kept) {
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let mut thread = executor.thread();
                let mut random = Random::new(number + 1);
                for _ in 0..2000 {
                    let (seed, aborts) = (random.next(), random.below(8) == 0);
                    scramble(&mut thread, words, seed, aborts);
                }
            });
        }
    });
    let units = log.log.units.lock().unwrap();
    assert_eq!(units.len() as u64, log.newest(), "every number that was drawn has its unit");
    assert_eq!(units.keys().next_back(), Some(&log.newest()));
    let mut replayed = vec![0; WORDS * 8];
    for unit in units.values() {
        assert!(unit.finished, "every unit was finished");
        for (address, bytes) in &unit.ranges {
            let at = address - words.at(0);
            replayed[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
    let found: Vec<u8> = (0..WORDS * 8).map(|at| words.byte(at).load(Ordering::Relaxed)).collect();
    assert_eq!(found, replayed);
}

fn stm(words: &Words, serial_after: u32, solo: bool) -> Stm<Kept> {
    let solo_after = solo.then_some(64);
    let options = StmOptions { record_bits: 8, serial_after, solo_after, ..StmOptions::default() };
    let options = StmOptions { stripe_bits: 3, ..options };
    Stm::new(words.memory(), Kept::default(), options)
}

/// Which aborts now and then, so that both of its ways are taken.
fn model(words: &Words) -> HardwareModel<Kept> {
    let limits = HardwareLimits { spurious_per_million: 50_000, ..HardwareLimits::default() };
    HardwareModel::new(words.memory(), Kept::default(), limits)
}

#[test]
fn units_in_their_order_give_memory() {
    for (serial_after, solo) in [(24, false), (24, true), (1, true), (0, false)] {
        let words = Words::new(WORDS);
        let stm = stm(&words, serial_after, solo);
        units_give_memory(&words, &stm, stm.log());
    }
    let words = Words::new(WORDS);
    let sgl = Sgl::new(words.memory(), Kept::default());
    units_give_memory(&words, &sgl, sgl.log());
    let words = Words::new(WORDS);
    let model = model(&words);
    units_give_memory(&words, &model, model.log());
}

type Body<T> = Result<T, Halt<Infallible>>;

/// A reader waits for what it has seen, whoever wrote it, and however.
fn waits_for_what_it_saw<H: TxThread>(mut writer: H, mut reader: H, words: &Words, log: &Kept) {
    for round in 1..500 {
        writer.run(|tx| -> Body<()> { Ok(tx.write_word(words.at(0), round)?) }).unwrap();
        if round % 100 != 0 {
            continue;
        }
        let (number, logged) = (log.newest(), round % 200 == 0);
        log.settled.lock().unwrap().clear();
        let look = |tx: &mut H::Tx| -> Body<u64> { Ok(tx.read_word(words.at(0))?) };
        let seen = if logged { reader.run(look) } else { reader.read(look) };
        assert_eq!(seen.unwrap(), round);
        assert_eq!(*log.settled.lock().unwrap(), [number], "round {round}");
    }
    assert_eq!(writer.counts().commits, 499);
}

#[test]
fn a_reader_waits_for_what_it_saw() {
    for (serial_after, solo) in [(24, false), (24, true), (0, false)] {
        let words = Words::new(WORDS);
        let stm = stm(&words, serial_after, solo);
        waits_for_what_it_saw(stm.thread(), stm.thread(), &words, stm.log());
    }
    let words = Words::new(WORDS);
    let sgl = Sgl::new(words.memory(), Kept::default());
    waits_for_what_it_saw(sgl.thread(), sgl.thread(), &words, sgl.log());
    let words = Words::new(WORDS);
    let model = model(&words);
    waits_for_what_it_saw(model.thread(), model.thread(), &words, model.log());
}

#[test]
fn a_reader_of_old_words_waits_for_little() {
    let words = Words::new(WORDS);
    let stm = stm(&words, 24, false);
    let mut thread = stm.thread();
    for round in 1..10 {
        thread.run(|tx| -> Body<()> { Ok(tx.write_word(words.at(round % 2), 1)?) }).unwrap();
    }
    let settled = || std::mem::take(&mut *stm.log().settled.lock().unwrap());
    let read = |thread: &mut StmThread<'_, Kept>| {
        thread.read(|tx| -> Body<u64> { Ok(tx.read_word(words.at(0))?) }).unwrap();
    };
    let mut reader = stm.thread();
    read(&mut reader);
    assert_eq!(settled(), [8], "the last commit to that word");
    // What a thread has waited for once, it knows to be durable.
    read(&mut reader);
    read(&mut thread);
    assert_eq!(settled(), []);
    thread.run(|tx| -> Body<()> { Ok(tx.write_word(words.at(0), 2)?) }).unwrap();
    read(&mut reader);
    assert_eq!(settled(), [10], "a later commit to it");
}

fn a_log_fails(mut thread: impl TxThread<SinkError = &'static str>, words: &Words, log: &Kept) {
    fn add<H: TxThread>(thread: &mut H, words: &Words) -> Result<(), TxError<Infallible, H::SinkError>> {
        thread.run(|tx| {
            let value = tx.read_word(words.at(0))?;
            Ok(tx.write_word(words.at(0), value + 1)?)
        })
    }
    assert_eq!(add(&mut thread, words), Ok(()));
    log.log.full.store(true, Ordering::Relaxed);
    assert_eq!(add(&mut thread, words), Err(TxError::Refused("full")));
    assert_eq!(words.get(0), 1, "refused, so undone");
    log.log.full.store(false, Ordering::Relaxed);
    assert_eq!(add(&mut thread, words), Ok(()));
    log.log.broken.store(true, Ordering::Relaxed);
    assert_eq!(add(&mut thread, words), Err(TxError::InDoubt("broken")));
    assert_eq!(words.get(0), 3, "visible before the log failed");
    let look = thread.read(|tx| -> Body<u64> { Ok(tx.read_word(words.at(0))?) });
    assert_eq!(look, Err(TxError::InDoubt("broken")), "nothing is acknowledged any more");
    assert_eq!(thread.counts().commits, 4, "those that took place");
    assert_eq!(log.newest(), 3, "the refused one drew no number");
    log.log.late.store(true, Ordering::Relaxed);
    assert_eq!(add(&mut thread, words), Err(TxError::Refused("late")));
    assert_eq!((words.get(0), log.newest()), (3, 4), "numbered, refused, and undone");
}

#[test]
fn a_log_that_fails_is_told_apart() {
    for (serial_after, solo) in [(24, false), (24, true), (0, false)] {
        let words = Words::new(WORDS);
        let stm = stm(&words, serial_after, solo);
        a_log_fails(stm.thread(), &words, stm.log());
    }
    let words = Words::new(WORDS);
    let sgl = Sgl::new(words.memory(), Kept::default());
    a_log_fails(sgl.thread(), &words, sgl.log());
    let words = Words::new(WORDS);
    let model = model(&words);
    a_log_fails(model.thread(), &words, model.log());
}

/// Between a hardware commit and the flush others see the writes, and the unit is sealed but not finished.
#[test]
fn a_window_is_between_hardware_commit_and_flush() {
    let words = Words::new(WORDS);
    let stage = Arc::new(AtomicU64::new(0));
    let model = {
        let stage = Arc::clone(&stage);
        HardwareModel::new(words.memory(), Kept::default(), HardwareLimits::default()).with_window(
            move || {
                stage.store(1, Ordering::Release);
                while stage.load(Ordering::Acquire) != 2 {
                    std::thread::yield_now();
                }
            },
        )
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = model.thread();
            writer.run(|tx| -> Body<()> { Ok(tx.write_word(words.at(3), 7)?) }).unwrap();
        });
        while stage.load(Ordering::Acquire) != 1 {
            std::thread::yield_now();
        }
        let seen = model.thread().run(|tx| -> Body<u64> { Ok(tx.read_word(words.at(3))?) });
        let unit = model.log().log.units.lock().unwrap()[&1].clone();
        stage.store(2, Ordering::Release);
        assert_eq!(seen, Ok(7));
        let ranges = vec![(words.at(3), 7_u64.to_le_bytes().to_vec())];
        assert_eq!(unit, KeptUnit { void: false, finished: false, ranges });
    });
    assert!(model.log().log.units.lock().unwrap()[&1].finished);
}

/// A commit finds what it read changed, after it has drawn its number: that one gets a void unit.
#[test]
fn a_number_drawn_in_vain_is_void() {
    let words = Words::new(WORDS);
    let stm = stm(&words, 24, false);
    let (mut first, mut second) = (stm.thread(), stm.thread());
    let mut attempts = 0;
    let sum = first.run(|tx| -> Body<u64> {
        attempts += 1;
        let value = tx.read_word(words.at(0))?;
        tx.write_word(words.at(1), value + 1)?;
        if attempts == 1 {
            second.run(|tx| -> Body<()> { Ok(tx.write_word(words.at(0), 5)?) }).unwrap();
        }
        Ok(value + 1)
    });
    assert_eq!((sum, attempts, words.get(1)), (Ok(6), 2, 6));
    let units = stm.log().log.units.lock().unwrap();
    let unit = |word: usize, value: u64| KeptUnit {
        void: false,
        finished: true,
        ranges: vec![(words.at(word), value.to_le_bytes().to_vec())],
    };
    assert_eq!(units[&1], unit(0, 5));
    assert_eq!(units[&2], KeptUnit { void: true, finished: true, ranges: vec![] });
    assert_eq!((units[&3].clone(), units.len()), (unit(1, 6), 3));
}

/// Undone attempts draw no number until a record's incarnations are used up; then one, which has a void unit.
#[test]
fn undone_attempts_draw_one_number_in_many() {
    let words = Words::new(WORDS);
    let stm = stm(&words, 24, false);
    let mut thread = stm.thread();
    for round in 1..=1000 {
        // The log is full now and then: undoing must not depend on it.
        stm.log().log.full.store(round % 3 == 0, Ordering::Relaxed);
        let outcome = thread.run(|tx| {
            tx.write_word(words.at(0), 1)?;
            Err::<(), _>(Halt::Abort(()))
        });
        assert_eq!(outcome, Err(TxError::Aborted(())));
    }
    let units = stm.log().log.units.lock().unwrap();
    assert_eq!(units.len(), 1000 / 128);
    assert!(units.values().all(|unit| unit.void && unit.finished));
    assert_eq!(words.get(0), 0);
}
