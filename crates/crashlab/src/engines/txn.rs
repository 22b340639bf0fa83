//! Durable transactions as a subject: bytes of a small working copy, changed by an executor with its commit protocol;
//! an array as reference.
//!
//! What isolates the transactions, and how they commit, in each form:
//!
//! | form | executor | protocol with volatile caches; with persistent ones (on disks: automatic) |
//! |---|---|---|
//! | `RECORDS` | ownership records, with solo mode now and then | automatic |
//! | `OTHER` | the model of hardware; on disks one lock, durable by interval | automatic; automatic with gaps |
//! | `STAMPS` | the model of hardware; on disks one lock | SPHT; SPHT-eADR |
//! | `STAMPS_TOO` | one lock; with persistent caches the model of hardware | SPHT; SPHT-eADR with flushes |
//! | `LOCK` | one lock | automatic; automatic with gaps |
//! | `LOCK_STAMPS` | one lock | SPHT; SPHT-eADR |
//! | `LOCK_FLUSH` | one lock | SPHT; SPHT-eADR with flushes |
//! | `MODEL` | the model of hardware | automatic |

use crate::engines::subject::{Promised, Subject};
use crate::machine::cursor::CrashDomain;
use crate::machine::interrupt::{during_and_told, machine_domain, window};
use crate::machine::waits::waits_in_vain;
use crate::rng::Rng;
use mangrove_pool::Region;
use mangrove_shadow::{AddressChoice, Domain, Options, Order, Shadow};
use mangrove_txn::{
    Halt, HardwareLimits, HardwareModel, HeapLog, Isolation, Protocol, Sgl, Stm, StmOptions, TxAccess,
    TxError, TxMemory, TxThread, lab,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the working copy.
pub(super) const LEN: u64 = 32 << 10;
const RING_BYTES: u64 = 4096;
const LOGS: usize = 2;
/// The forms: see the table above.
pub(crate) const RECORDS: u8 = 0;
pub(crate) const OTHER: u8 = 1;
pub(crate) const STAMPS: u8 = 2;
pub(crate) const STAMPS_TOO: u8 = 3;
pub(crate) const LOCK: u8 = 4;
pub(crate) const LOCK_STAMPS: u8 = 5;
pub(crate) const LOCK_FLUSH: u8 = 6;
pub(crate) const MODEL: u8 = 7;
/// What an inner transaction reads of its outer one: a byte that only those write, and each adds 1 to.
const COUNTER: usize = LEN as usize - 1;

/// A write of a transaction: where, how long, and the seed of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    at: u32,
    len: u32,
    seed: u8,
}

impl Store {
    fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|n| u32::from(self.seed).wrapping_add(n.wrapping_mul(7)) as u8 | 1).collect()
    }
}

/// What another thread does in the middle of a transaction's commit.
#[derive(Clone, Debug)]
pub(crate) enum TxnInner {
    /// A transaction on other bytes.
    Apart(Vec<Store>),
    /// A transaction that counts up the outer one's counter, and writes some bytes; tells whether it came before
    /// the outer one, by what it read. (The outer one may still be making space in the log, and not have begun.)
    Behind(Vec<Store>, Arc<AtomicBool>),
    /// A transaction that only reads the counter; tells whether it saw it counted up.
    Look(Arc<AtomicBool>),
    /// It applies what is durable to the durable copy, as the replayer does.
    Replay,
}

/// One operation.
#[derive(Clone)]
pub(crate) enum TxnOp {
    /// A transaction, which aborts in the end or commits.
    Transaction(Vec<Store>, bool),
    /// A transaction that only reads.
    Read(u32, u32),
    /// Applies everything to the durable copy.
    Checkpoint,
    /// Applies one batch to it.
    Replay,
    /// A transaction that counts up its counter; at its n-th step on the medium another thread does something.
    During(Vec<Store>, u32, TxnInner),
}

impl fmt::Debug for TxnOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |stores: &[Store]| -> Vec<_> { stores.iter().map(|s| (s.at, s.len, s.seed)).collect() };
        match self {
            Self::Transaction(stores, aborts) => {
                write!(f, "transaction {:?}{}", list(stores), if *aborts { ", aborted" } else { "" })
            }
            Self::Read(at, len) => write!(f, "read {len} bytes at {at}"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Replay => f.write_str("replay"),
            Self::During(stores, at, inner) => {
                write!(f, "transaction {:?} and at step {at} of it {inner:?}", list(stores))
            }
        }
    }
}

/// What the working copy holds.
#[derive(Clone)]
pub(crate) struct TxnModel(pub(super) Arc<Vec<u8>>);

impl Default for TxnModel {
    fn default() -> Self {
        Self(Arc::new(vec![0; LEN as usize]))
    }
}

impl TxnModel {
    fn with(&self, stores: &[Store]) -> Self {
        let mut after = self.clone();
        let bytes = Arc::make_mut(&mut after.0);
        for store in stores {
            bytes[store.at as usize..(store.at + store.len) as usize].copy_from_slice(&store.bytes());
        }
        after
    }

    /// After a transaction that counts up.
    fn counted(&self, stores: &[Store]) -> Self {
        let mut after = self.with(stores);
        let counter = &mut Arc::make_mut(&mut after.0)[COUNTER];
        *counter = counter.wrapping_add(1);
        after
    }
}

/// An executor over the working copy.
enum Executor {
    Records(Box<Stm<HeapLog>>),
    Hardware(HardwareModel<HeapLog>),
    Lock(Sgl<HeapLog>),
}

/// What a transaction does, in this order.
#[derive(Clone, Default)]
pub(super) struct Work {
    pub(super) counts: bool,
    pub(super) stores: Vec<Store>,
    pub(super) aborts: bool,
}

/// What the simulator needs of an executor.
pub(super) trait Executes: Send + Sync + 'static {
    /// Runs a transaction on a handle of its own; returns the counter that it saw.
    fn transact(&self, base: usize, work: &Work) -> Result<u8, String>;

    fn read(&self, at: usize, len: usize) -> Result<Vec<u8>, String>;
}

impl Executes for Executor {
    fn transact(&self, base: usize, work: &Work) -> Result<u8, String> {
        match self {
            Self::Records(stm) => transact(&mut stm.thread(), base, work),
            Self::Hardware(model) => transact(&mut model.thread(), base, work),
            Self::Lock(sgl) => transact(&mut sgl.thread(), base, work),
        }
    }

    fn read(&self, at: usize, len: usize) -> Result<Vec<u8>, String> {
        match self {
            Self::Records(stm) => read(&mut stm.thread(), at, len),
            Self::Hardware(model) => read(&mut model.thread(), at, len),
            Self::Lock(sgl) => read(&mut sgl.thread(), at, len),
        }
    }
}

pub(super) fn transact<H: TxThread>(thread: &mut H, base: usize, work: &Work) -> Result<u8, String> {
    let answer = thread.run(|tx| {
        let [seen] = tx.read::<1>(base + COUNTER)?;
        if work.counts {
            tx.write(base + COUNTER, [seen.wrapping_add(1)])?;
        }
        for store in &work.stores {
            tx.write_bytes(base + store.at as usize, &store.bytes())?;
        }
        if work.aborts { Err(Halt::Abort(())) } else { Ok(seen) }
    });
    match answer {
        Ok(_) if work.aborts => Err("a transaction that aborts has committed".into()),
        Ok(seen) => Ok(seen),
        Err(TxError::Aborted(())) if work.aborts => Ok(0),
        Err(error) => Err(format!("transaction: {error:?}")),
    }
}

pub(super) fn read<H: TxThread>(thread: &mut H, at: usize, len: usize) -> Result<Vec<u8>, String> {
    let answer = thread.read(|tx| -> Result<_, Halt<()>> {
        let mut bytes = vec![0; len];
        tx.read_bytes(at, &mut bytes)?;
        Ok(bytes)
    });
    answer.map_err(|error| format!("read: {error:?}"))
}

/// Durable transactions under test.
pub(crate) struct TxnSubject<const FORM: u8> {
    /// Dropped before the shadow.
    executor: Arc<Executor>,
    shadow: Arc<Shadow>,
    log: bool,
}

impl<const FORM: u8> Drop for TxnSubject<FORM> {
    fn drop(&mut self) {
        lab::set_window(None);
    }
}

impl<const FORM: u8> TxnSubject<FORM> {
    fn open(region: Region) -> Result<Self, String> {
        let log = region.medium().capabilities().has_units;
        let options = Options::new().address(AddressChoice::Anywhere).capacity(LEN).log_bytes(RING_BYTES);
        let options = options.log_count(LOGS).background(false);
        let options = match machine_domain() {
            Some(CrashDomain::Eadr) if matches!(FORM, OTHER | LOCK) => {
                options.domain(Domain::Eadr).order(Order::Gaps)
            }
            Some(CrashDomain::Eadr) if FORM > OTHER => options.domain(Domain::Eadr),
            _ => options,
        };
        let protocol = Self::protocol();
        let options = match protocol.order() {
            Some(order) => options.order(order).stamped(true),
            None => options,
        };
        lab::count_stamps();
        // On a thread of its own: a fence orders only what its own thread flushed, and opening must not fence for
        // others.
        let opened = std::thread::scope(|scope| {
            let open = || {
                let shadow = Shadow::on_region(region, &options)?;
                shadow.grow(LEN).map(|()| shadow)
            };
            scope.spawn(open).join()
        });
        lab::set_window(Some(window));
        lab::set_wait_watch(Some(waits_in_vain));
        let shadow = Arc::new(opened.map_err(|_| "opening panicked")?.map_err(|e| e.to_string())?);
        // SAFETY: the executor is dropped before the shadow, and only transactions use the working copy until the
        // simulator looks at it, between two of them.
        let memory = unsafe { TxMemory::new(shadow.base(), LEN as usize) };
        let protocol = protocol.log(Arc::clone(&shadow)).map_err(|e| e.to_string())?;
        let by_lock = match FORM {
            LOCK | LOCK_STAMPS | LOCK_FLUSH => true,
            MODEL => false,
            STAMPS_TOO => log || machine_domain() == Some(CrashDomain::Adr),
            _ => log,
        };
        let executor = match (FORM, by_lock) {
            (RECORDS, _) => {
                let options = StmOptions {
                    record_bits: 8,
                    stripe_bits: 3,
                    serial_after: 3,
                    solo_after: Some(2),
                    ..StmOptions::default()
                };
                Executor::Records(Box::new(Stm::new(memory, protocol, options)))
            }
            (_, false) => {
                let limits = HardwareLimits {
                    write_sets: 4,
                    write_ways: 4,
                    read_lines_max: 64,
                    spurious_per_million: 0,
                };
                Executor::Hardware(HardwareModel::new(memory, protocol, limits))
            }
            (_, true) => Executor::Lock(Sgl::new(memory, protocol)),
        };
        Ok(Self { executor: Arc::new(executor), shadow, log })
    }

    fn protocol() -> Protocol {
        match (machine_domain(), FORM) {
            (_, RECORDS | OTHER | LOCK | MODEL) | (None | Some(CrashDomain::File), _) => Protocol::Automatic,
            (Some(CrashDomain::Adr), _) => Protocol::Spht,
            (Some(CrashDomain::Eadr), STAMPS | LOCK_STAMPS) => Protocol::SphtEadr,
            (Some(CrashDomain::Eadr), _) => Protocol::SphtEadrFlush,
        }
    }

    fn base(&self) -> usize {
        self.shadow.base() as usize
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the usable part; the simulator looks between operations.
        unsafe { std::slice::from_raw_parts(self.shadow.base(), LEN as usize) }
    }

    /// On disks one form is durable by interval.
    fn is_by_interval(&self) -> bool {
        FORM == OTHER && self.log
    }

    /// By interval a commit is not waited for.
    fn promised(&self) -> Promised {
        if self.is_by_interval() { Promised::Nothing } else { Promised::All }
    }
}

impl<const FORM: u8> Subject for TxnSubject<FORM> {
    type Op = TxnOp;
    type Model = TxnModel;

    const NAME: &'static str = [
        "txn",
        "txn-other",
        "txn-stamps",
        "txn-stamps-too",
        "txn-lock",
        "txn-lock-stamps",
        "txn-lock-flush",
        "txn-model",
    ][FORM as usize];
    const REGION_BYTES: u64 = 128 << 10;

    fn create(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn recover(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn apply(&mut self, _index: u32, op: &TxnOp, before: &TxnModel) -> Result<Promised, String> {
        let base = self.base();
        match op {
            TxnOp::Transaction(stores, aborts) => {
                let work = Work { counts: false, stores: stores.clone(), aborts: *aborts };
                self.executor.transact(base, &work)?;
                Ok(self.promised())
            }
            TxnOp::Read(at, len) => {
                let (at, len) = (*at as usize, *len as usize);
                let found = self.executor.read(base + at, len)?;
                if found != before.0[at..at + len] {
                    return Err(format!("{len} bytes at {at} were read as {found:?}"));
                }
                Ok(self.promised())
            }
            TxnOp::Checkpoint => {
                self.shadow.checkpoint().map_err(|e| e.to_string())?;
                Ok(Promised::All)
            }
            TxnOp::Replay => {
                self.shadow.replay();
                Ok(Promised::Nothing)
            }
            TxnOp::During(stores, at, inner) => {
                // By interval nothing is promised, so that nothing could be seen too early: one after the other.
                let at = if self.is_by_interval() { u32::MAX } else { *at };
                let shadow = Arc::clone(&self.shadow);
                let replay = move || {
                    shadow.replay();
                };
                let acknowledges = self.promised() == Promised::All;
                two_at_once(&self.executor, base, before, (at, acknowledges, stores, inner), replay)?;
                Ok(self.promised())
            }
        }
    }

    fn advance(model: &mut TxnModel, _index: u32, op: &TxnOp) {
        match op {
            TxnOp::Transaction(stores, false) => *model = model.with(stores),
            TxnOp::During(stores, _, inner) => {
                *model = match inner {
                    TxnInner::Behind(other, before) if before.load(Ordering::Relaxed) => {
                        model.counted(other).counted(stores)
                    }
                    TxnInner::Behind(other, _) => model.counted(stores).counted(other),
                    TxnInner::Apart(other) => model.counted(stores).with(other),
                    TxnInner::Look(_) | TxnInner::Replay => model.counted(stores),
                };
            }
            TxnOp::Transaction(_, true) | TxnOp::Read(..) | TxnOp::Checkpoint | TxnOp::Replay => {}
        }
    }

    fn between(before: &TxnModel, _index: u32, op: &TxnOp, inner_returned: bool) -> Vec<TxnModel> {
        let TxnOp::During(stores, _, inner) = op else { return Vec::new() };
        let first = before.counted(stores);
        match inner {
            // Which of the two draws its number first is not said.
            TxnInner::Apart(other) => {
                let (alone, both) = (before.with(other), first.with(other));
                if inner_returned { vec![alone, both] } else { vec![before.clone(), first, alone, both] }
            }
            TxnInner::Behind(other, came_before) if came_before.load(Ordering::Relaxed) => {
                let alone = before.counted(other);
                let both = alone.counted(stores);
                if inner_returned { vec![alone, both] } else { vec![before.clone(), alone, both] }
            }
            TxnInner::Behind(other, _) => {
                let both = first.counted(other);
                if inner_returned { vec![both] } else { vec![before.clone(), first, both] }
            }
            TxnInner::Look(saw) if inner_returned && saw.load(Ordering::Relaxed) => vec![first],
            TxnInner::Look(_) | TxnInner::Replay => vec![before.clone(), first],
        }
    }

    fn after_outer(before: &TxnModel, _index: u32, op: &TxnOp) -> Vec<TxnModel> {
        let TxnOp::During(stores, _, inner) = op else { return Vec::new() };
        let first = before.counted(stores);
        match inner {
            TxnInner::Apart(other) => vec![first.clone(), first.with(other)],
            // The outer one saw what the inner one had written.
            TxnInner::Behind(other, came_before) if came_before.load(Ordering::Relaxed) => {
                vec![before.counted(other).counted(stores)]
            }
            TxnInner::Behind(other, _) => vec![first.clone(), first.counted(other)],
            TxnInner::Look(_) | TxnInner::Replay => vec![first],
        }
    }

    fn rebase(_model: &mut TxnModel) {}

    fn holds(&self, model: &TxnModel) -> Result<bool, String> {
        Ok(*self.bytes() == **model.0)
    }

    fn difference(&self, model: &TxnModel) -> String {
        difference(self.bytes(), model)
    }

    fn check(&self) -> Result<(), String> {
        self.shadow.poisoned().map_or(Ok(()), |e| Err(e.to_string()))
    }

    fn scenario_count() -> u32 {
        5
    }

    fn scenario_name(scenario: u32) -> &'static str {
        ["transactions", "readers", "long transactions", "two at once", "a mixture"][scenario as usize]
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<TxnOp> {
        let count = 10 + rng.below(6);
        (0..count).map(|_| operation(scenario, rng)).collect()
    }

    fn follow_up(rng: &mut Rng, _recovered: &TxnModel) -> Vec<TxnOp> {
        // One operation at a time: where an inner one waits for its outer one, that takes 50 ms.
        let scenario = if rng.one_in(2) { 0 } else { 2 };
        (0..3).map(|_| operation(scenario, rng)).collect()
    }
}

/// Runs a transaction that counts up, and at its n-th step what another thread does.
pub(super) fn two_at_once<E: Executes>(
    executor: &Arc<E>,
    base: usize,
    before: &TxnModel,
    (at, acknowledges, stores, inner): (u32, bool, &[Store], &TxnInner),
    replay: impl FnOnce() + Send + 'static,
) -> Result<(), String> {
    let old = before.0[COUNTER];
    let outer = Work { counts: true, stores: stores.to_vec(), aborts: false };
    let (other, inner) = (Arc::clone(executor), inner.clone());
    let (first, second) = during_and_told(
        at,
        acknowledges,
        || executor.transact(base, &outer),
        move || -> Result<(), String> {
            match inner {
                TxnInner::Apart(stores) => {
                    other.transact(base, &Work { stores, ..Work::default() })?;
                }
                TxnInner::Behind(stores, before) => {
                    let work = Work { counts: true, stores, aborts: false };
                    let counter = other.transact(base, &work)?;
                    before.store(counter == old, Ordering::Relaxed);
                }
                TxnInner::Look(saw) => {
                    let counter = other.read(base + COUNTER, 1)?[0];
                    saw.store(counter != old, Ordering::Relaxed);
                }
                TxnInner::Replay => replay(),
            }
            Ok(())
        },
    );
    first?;
    second.map(drop)
}

/// The first difference of what is there from the model.
pub(super) fn difference(bytes: &[u8], model: &TxnModel) -> String {
    match (0..LEN as usize).find(|&at| bytes[at] != model.0[at]) {
        Some(at) => format!("byte {at} is {:#x} where {:#x} was expected", bytes[at], model.0[at]),
        None => "the same".to_owned(),
    }
}

pub(super) fn stores(rng: &mut Rng, from: u64, to: u64, count: u64, longest: u64) -> Vec<Store> {
    let store = |rng: &mut Rng| {
        // Words mostly; bytes of every other length and place now and then.
        let (len, unit) = if rng.one_in(3) { (1 + rng.below(longest), 1) } else { (8, 8) };
        let at = (from + rng.below(to - from - len)) / unit * unit;
        Store { at: at as u32, len: len as u32, seed: rng.next() as u8 }
    };
    (0..count).map(|_| store(rng)).collect()
}

/// A commit of a few words has two steps on memory: its bytes, its fence.
fn step(rng: &mut Rng) -> u32 {
    if rng.one_in(4) { rng.below(12) as u32 } else { rng.below(3) as u32 }
}

fn operation(scenario: u32, rng: &mut Rng) -> TxnOp {
    // Most of the working copy stays untouched: lines that several transactions share find more bugs.
    let near = 2048 + if rng.one_in(4) { LEN - 4096 } else { 0 };
    match scenario {
        0 => match rng.below(8) {
            0 => TxnOp::Checkpoint,
            1 => TxnOp::Replay,
            _ => {
                let count = 1 + rng.below(6);
                TxnOp::Transaction(stores(rng, 0, near, count, 40), rng.one_in(5))
            }
        },
        1 => match rng.below(4) {
            0 => TxnOp::Read(rng.below(near) as u32, 1 + rng.below(100) as u32),
            1 => TxnOp::Transaction(stores(rng, 0, near, 2, 20), false),
            _ => {
                let outer = stores(rng, 0, 1024, 2, 60);
                TxnOp::During(outer, step(rng), TxnInner::Look(Arc::default()))
            }
        },
        2 => match rng.below(3) {
            0 => TxnOp::Transaction(stores(rng, 0, near, 2, 64), false),
            1 => TxnOp::Transaction(stores(rng, 0, LEN - 8, 1, 1500), rng.one_in(4)),
            _ => {
                let longest = 1000 + rng.below(1500);
                TxnOp::Transaction(stores(rng, 0, LEN - 8, 3, longest), false)
            }
        },
        3 => match rng.below(4) {
            0 => TxnOp::Transaction(stores(rng, 0, near, 2, 100), false),
            n => {
                let longest = if rng.one_in(6) { 1000 } else { 60 };
                let outer = stores(rng, 0, 1024, n, longest);
                let inner = match rng.below(5) {
                    0 => TxnInner::Replay,
                    1 | 2 => TxnInner::Apart(stores(rng, 1024, 2048, 2, 60)),
                    _ => TxnInner::Behind(stores(rng, 0, 2048, 1, 60), Arc::default()),
                };
                TxnOp::During(outer, step(rng), inner)
            }
        },
        _ => operation(rng.below(4) as u32, rng),
    }
}
