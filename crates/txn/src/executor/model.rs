//! A model of hardware transactions on real threads, for tests: on machines without RTM it takes the steps of the
//! executor that uses RTM, and it aborts when a test asks for it.
//!
//! As on hardware, an attempt subscribes to the fallback lock: it reads the lock's line first, and so is aborted
//! when a transaction takes the lock. After as many conflicts as [`RetryBudget`] says, one abort for capacity, or
//! two aborts in a row without a reason, a transaction takes the lock. An attempt that finds the lock taken waits
//! for it, and does not count as an attempt (otherwise one transaction with the lock sends all others to the lock
//! too: the lemming effect; Dice, Herlihy, Lea, Lev, Luchangco, Mesard, Moir, Moore, Nussbaum, TRANSACT 2008).
//!
//! 1. The values and the number of the atomic group are taken while the core commits, before its writes can be
//!    seen.
//! 2. The atomic group is sealed then, too, or, where sealing writes lines back (`RedoSink::seals_after_hardware`),
//!    right behind the commit. There the attempt cannot be undone any more.
//! 3. An attempt whose atomic group is longer than the space that was made for it (`RedoSink::has_room`) takes the
//!    lock, where the group is put before anything is announced. Otherwise two attempts could wait for each other: one
//!    for the other's lower bound, this one for space that the first one's atomic group still has.
//! 4. On the lock path no hardware attempt runs or commits: taking the lock aborts them, or waits.

use super::backoff::Backoff;
use super::hardware::{CORES, Hardware};
use super::retries::{Retries, RetryBudget, Site, WITHOUT_REASON_MAX};
use super::undo::UndoLog;
use super::wakeup::Wakeups;
use crate::access::{Halt, Interrupted, TxAccess};
use crate::left_out::is_left_out;
use crate::memory::{TxMemory, WORD_BYTES, load, store};
use crate::run::{Answer, Isolation, TxCounts, TxError, TxThread, foreign_interruption, once};
use crate::sink::{RedoLog, RedoSink, TxWrites, Unit, UnitSize};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::panic::Location;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The line of the fallback lock; no memory has it.
const LOCK_LINE: usize = usize::MAX;

/// What the modelled hardware holds, and how often it fails.
#[derive(Clone, Copy, Debug)]
pub struct HardwareLimits {
    /// Cache sets for written lines.
    pub write_sets: usize,
    /// Written lines that one set holds.
    pub write_ways: usize,
    /// Lines that an attempt may read.
    pub read_lines_max: usize,
    /// Of a million accesses, those at which the attempt aborts for no reason.
    pub spurious_per_million: u32,
}

impl Default for HardwareLimits {
    /// A first-level cache of 48 KiB with 12 ways, on which RTM was measured; nothing spurious.
    fn default() -> Self {
        Self { write_sets: 64, write_ways: 12, read_lines_max: 4096, spurious_per_million: 0 }
    }
}

/// The executor on modelled hardware, for at most 64 threads. It is slow.
pub struct HardwareModel<L> {
    memory: TxMemory,
    limits: HardwareLimits,
    retries: RetryBudget,
    hardware: Hardware,
    turn: Mutex<()>,
    /// 1 while a transaction has the lock.
    held: AtomicU64,
    /// Transactions that wrote, for those that sleep in `retry`.
    updates: AtomicU64,
    wakeups: Wakeups,
    window: Option<Box<dyn Fn() + Send + Sync>>,
    log: L,
}

impl<L> fmt::Debug for HardwareModel<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HardwareModel").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<L: RedoLog> HardwareModel<L> {
    /// An executor for the transactions on `memory`; no other one may use it meanwhile.
    pub fn new(memory: TxMemory, log: L, limits: HardwareLimits) -> Self {
        Self {
            memory,
            limits,
            retries: RetryBudget::default(),
            hardware: Hardware::new(),
            turn: Mutex::new(()),
            held: AtomicU64::new(0),
            updates: AtomicU64::new(0),
            wakeups: Wakeups::new(),
            window: None,
            log,
        }
    }

    /// Calls `window` behind each hardware commit that wrote, before [`RedoSink::finish`]: the writes are visible, and
    /// nothing of them has been fenced. A panic in it harms no commit.
    #[must_use]
    pub fn with_window(mut self, window: impl Fn() + Send + Sync + 'static) -> Self {
        self.window = Some(Box::new(window));
        self
    }

    /// How often a transaction is tried in hardware. Default: [`RetryBudget::Found`].
    #[must_use]
    pub fn with_retries(mut self, retries: RetryBudget) -> Self {
        self.retries = retries;
        self
    }

    /// The redo log.
    pub fn log(&self) -> &L {
        &self.log
    }

    /// Takes the lock: no attempt runs or commits in hardware until it is given back.
    fn take_lock(&self) -> Locked<'_> {
        let turn = self.turn.lock();
        // SeqCst and the line's lock: an attempt that begins either sees it, or holds the line when it is stored to.
        self.held.store(1, Ordering::SeqCst);
        self.hardware.store_outside(LOCK_LINE);
        Locked { held: &self.held, _turn: turn }
    }

    /// An update is visible; the caller still holds its lines or the lock.
    fn count_update(&self) {
        // Release pairs with the Acquire loads of sleepers and of attempts that begin.
        self.updates.fetch_add(1, Ordering::AcqRel);
    }
}

impl<L: RedoLog> Isolation for HardwareModel<L> {
    type Thread<'model>
        = HardwareThread<'model, L>
    where
        Self: 'model;

    /// # Panics
    /// When 64 threads have a handle.
    fn thread(&self) -> HardwareThread<'_, L> {
        self.try_thread().unwrap_or_else(|| panic!("the model has {CORES} cores"))
    }
}

impl<L: RedoLog> HardwareModel<L> {
    /// A handle for the calling thread; none while every core is taken.
    pub(crate) fn try_thread(&self) -> Option<HardwareThread<'_, L>> {
        let core = self.hardware.take_core()?;
        let tx = HardwareTx {
            memory: self.memory,
            limits: self.limits,
            hardware: &self.hardware,
            core,
            random: core as u64 * 2 + 1,
            locked: false,
            cause: Cause::Conflict,
            lines: HashMap::new(),
            written: HashMap::new(),
            buffer: BTreeMap::new(),
            nested: Vec::new(),
            undo: UndoLog::new(),
        };
        let backoff = Backoff::new(core as u64 + 1);
        let retries = Retries::new(self.retries);
        Some(HardwareThread {
            model: self,
            sink: self.log.sink(),
            tx,
            backoff,
            retries,
            counts: TxCounts::default(),
        })
    }
}

/// Why an attempt aborted itself, if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Conflict,
    Capacity,
    Spurious,
    LockTaken,
}

/// Bytes of a word that were written: the value, and a bit for each byte.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    value: u64,
    bytes: u8,
}

impl Written {
    fn mask(self) -> u64 {
        (0..WORD_BYTES).filter(|i| self.bytes >> i & 1 != 0).fold(0, |mask, i| mask | 0xFF << (8 * i))
    }

    /// The runs of written bytes: offset, length, value.
    fn runs(self) -> impl Iterator<Item = (usize, usize, u64)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            from += (self.bytes.checked_shr(from as u32)?).trailing_zeros().min(8) as usize;
            if from >= WORD_BYTES {
                return None;
            }
            let run = (from, (self.bytes >> from).trailing_ones() as usize, self.value >> (8 * from));
            from += run.1;
            Some(run)
        })
    }
}

/// A transaction of [`HardwareModel`].
#[derive(Debug)]
pub struct HardwareTx<'model> {
    memory: TxMemory,
    limits: HardwareLimits,
    hardware: &'model Hardware,
    core: usize,
    random: u64,
    /// It has the lock, and works in place.
    locked: bool,
    cause: Cause,
    /// The lines that the attempt holds, and whether it wrote them.
    lines: HashMap<usize, bool>,
    /// Written lines by cache set.
    written: HashMap<usize, usize>,
    buffer: BTreeMap<usize, Written>,
    /// The buffer as it was when each open nested transaction began.
    nested: Vec<BTreeMap<usize, Written>>,
    undo: UndoLog,
}

impl HardwareTx<'_> {
    fn abort(&mut self, cause: Cause) -> Interrupted {
        self.cause = cause;
        self.hardware.abort(self.core);
        Interrupted(())
    }

    /// Gets the line of an access.
    fn request(&mut self, line: usize, writes: bool) -> Result<(), Interrupted> {
        // xorshift64 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if (self.random >> 32) % 1_000_000 < u64::from(self.limits.spurious_per_million) {
            return Err(self.abort(Cause::Spurious));
        }
        let held = self.lines.get(&line).copied();
        if held != Some(true) && writes {
            let set = self.written.entry(line % self.limits.write_sets).or_default();
            *set += 1;
            if *set > self.limits.write_ways {
                return Err(self.abort(Cause::Capacity));
            }
        }
        if held.is_none() && self.lines.len() >= self.limits.read_lines_max {
            return Err(self.abort(Cause::Capacity));
        }
        if held.is_none() || (writes && held == Some(false)) {
            // Noted first: an attempt that is aborted meanwhile gives it up, too.
            self.lines.insert(line, writes);
            if !self.hardware.request(self.core, line, writes) {
                return Err(Interrupted(()));
            }
        }
        Ok(())
    }

    /// Ends the attempt, whether it committed or not.
    fn end(&mut self) {
        self.hardware.end(self.core, self.lines.keys().copied());
        self.lines.clear();
        self.written.clear();
        self.buffer.clear();
        self.nested.clear();
    }

    /// The largest atomic group that an attempt can need.
    fn unit_size_max(&self) -> UnitSize {
        let words = self.limits.write_sets * self.limits.write_ways * LINE_BYTES / WORD_BYTES;
        // At most every second byte of a word begins a range.
        UnitSize { words, ranges: words * WORD_BYTES / 2, range_bytes: words * WORD_BYTES }
    }

    /// Stores the writes to memory, and notes what they replace. The core is committing: others wait for its lines.
    fn write_back(&mut self) {
        for (&address, written) in &self.buffer {
            for (offset, len, value) in written.runs() {
                let at = self.memory.at(address + offset, len);
                // SAFETY: every byte of the run was checked by `at` when it was written.
                unsafe {
                    self.undo.note(address + offset, len, load(at, len));
                    store(at, len, value);
                }
            }
        }
        if let Some(stores) = self.memory.stores() {
            let runs = self
                .buffer
                .iter()
                .flat_map(|(&address, written)| written.runs().map(move |(at, len, _)| (address + at, len)));
            stores.stored(&mut { runs });
        }
    }
}

impl TxWrites for HardwareTx<'_> {
    type Entry = Infallible;

    /// The writes stand in a map, not in a list.
    fn as_words(&self) -> Option<&[Infallible]> {
        None
    }

    fn word(&self, entry: &Infallible) -> (usize, u64) {
        match *entry {}
    }

    fn size(&self) -> UnitSize {
        self.buffer.values().fold(UnitSize::default(), |mut size, written| {
            if written.bytes == u8::MAX {
                size.words += 1;
            } else {
                written.runs().for_each(|(_, len, _)| {
                    size.ranges += 1;
                    size.range_bytes += len;
                });
            }
            size
        })
    }

    fn each(&self, unit: &mut impl Unit) {
        for (&address, written) in &self.buffer {
            if written.bytes == u8::MAX {
                unit.word(address, written.value);
            } else {
                written.runs().for_each(|(at, len, value)| {
                    unit.range(address + at, &value.to_le_bytes()[..len]);
                });
            }
        }
    }
}

impl TxAccess for HardwareTx<'_> {
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        let at = self.memory.at(address, size);
        if self.locked {
            // SAFETY: checked by `at`.
            return Ok(unsafe { load(at, size) });
        }
        self.request(address / LINE_BYTES, false)?;
        // SAFETY: checked by `at`.
        let value = unsafe { load(at, size) };
        if !self.hardware.is_running(self.core) {
            return Err(Interrupted(()));
        }
        let own = self.buffer.get(&(address - address % WORD_BYTES)).copied().unwrap_or_default();
        let shift = 8 * (address % WORD_BYTES);
        let (mask, own) = (own.mask() >> shift, own.value >> shift);
        let size_mask = u64::MAX >> (64 - 8 * size);
        Ok((value & !mask | own & mask) & size_mask)
    }

    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        let at = self.memory.at(address, size);
        if self.locked {
            // SAFETY: checked by `at`.
            let old = unsafe { load(at, size) };
            self.undo.note(address, size, old);
            let written = match self.memory.stores() {
                // SAFETY: as above.
                Some(stores) => unsafe { stores.write(at, size, old, value) },
                None => {
                    // SAFETY: as above.
                    unsafe { store(at, size, value) };
                    true
                }
            };
            return if written { Ok(()) } else { Err(Interrupted(())) };
        }
        self.request(address / LINE_BYTES, true)?;
        let within = address % WORD_BYTES;
        let written = self.buffer.entry(address - within).or_default();
        let mask = (u64::MAX >> (64 - 8 * size)) << (8 * within);
        written.value = written.value & !mask | value << (8 * within) & mask;
        written.bytes |= (((1_u16 << size) - 1) << within) as u8;
        Ok(())
    }

    /// Nothing to wait for: a commit aborts every attempt that read what it wrote, and the writes of those never
    /// reach memory.
    fn privatise(&mut self) {}

    fn begin_nested(&mut self) {
        if self.locked {
            self.undo.nest();
        } else {
            self.nested.push(self.buffer.clone());
        }
    }

    /// Lines stay with the core, as on hardware.
    fn end_nested(&mut self, keeps: bool) {
        if self.locked {
            self.undo.unnest(keeps, &self.memory);
        } else if let Some(buffer) = self.nested.pop().filter(|_| !keeps) {
            self.buffer = buffer;
        }
    }
}

/// One thread's handle to a [`HardwareModel`].
#[derive(Debug)]
pub struct HardwareThread<'model, L: RedoLog + 'model> {
    model: &'model HardwareModel<L>,
    sink: L::Sink<'model>,
    tx: HardwareTx<'model>,
    backoff: Backoff,
    retries: Retries,
    counts: TxCounts,
}

impl<L: RedoLog> Drop for HardwareThread<'_, L> {
    fn drop(&mut self) {
        self.model.hardware.give_core(self.tx.core);
    }
}

/// An attempt that runs, in hardware or with the lock; undone if it does not get to its number.
struct Running<'a, 'model, S: RedoSink> {
    tx: &'a mut HardwareTx<'model>,
    sink: &'a mut S,
    sealed: bool,
    lock: Option<Locked<'model>>,
}

/// The lock, held.
struct Locked<'model> {
    held: &'model AtomicU64,
    _turn: MutexGuard<'model, ()>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of attempts that begin.
        self.held.store(0, Ordering::Release);
    }
}

impl<S: RedoSink> Drop for Running<'_, '_, S> {
    fn drop(&mut self) {
        if !self.sealed {
            self.tx.undo.roll_back(&self.tx.memory);
        }
        self.tx.undo.clear();
        if let Some(lock) = self.lock.take() {
            self.tx.locked = false;
            // Before others run: a log that keeps undo entries must forget them first.
            if !self.sealed {
                self.sink.withdraw();
            }
            drop(lock);
        } else {
            self.tx.end();
            if !self.sealed {
                self.sink.withdraw();
            }
        }
    }
}

/// How an attempt ended, when its lines or the lock are free again.
enum End<T, E, S> {
    Wrote(T),
    Read(T, u64),
    Aborted(Cause),
    Retry,
    Failed(TxError<E, S>),
}

/// How an attempt with this handle's sink ends.
type HandleEnd<'model, T, E, L> = End<T, E, <<L as RedoLog>::Sink<'model> as RedoSink>::Error>;

impl<'model, L: RedoLog> HardwareThread<'model, L> {
    /// From xbegin to xend.
    fn in_hardware<T, E>(
        &mut self,
        body: &mut impl FnMut(&mut HardwareTx<'model>) -> Result<T, Halt<E>>,
    ) -> HandleEnd<'model, T, E, L> {
        if let Err(cause) = self.sink.refuse_child() {
            return End::Failed(TxError::Refused(cause));
        }
        let model = self.model;
        if let Err(cause) = self.sink.prepare(self.tx.unit_size_max()) {
            self.sink.withdraw();
            return End::Failed(TxError::Refused(cause));
        }
        self.sink.announce();
        self.tx.cause = Cause::Conflict;
        model.hardware.begin(self.tx.core);
        let mut running = Running { tx: &mut self.tx, sink: &mut self.sink, sealed: false, lock: None };
        running.tx.memory.refresh();
        if running.tx.request(LOCK_LINE, false).is_err() {
            return End::Aborted(running.tx.cause);
        }
        // Acquire pairs with the Release when the lock is given back.
        if model.held.load(Ordering::Acquire) != 0 {
            running.tx.abort(Cause::LockTaken);
            return End::Aborted(Cause::LockTaken);
        }
        let answer = match body(running.tx) {
            _ if !model.hardware.is_running(running.tx.core) => return End::Aborted(running.tx.cause),
            Ok(answer) => answer,
            Err(Halt::Abort(value)) => return End::Failed(TxError::Aborted(value)),
            Err(Halt::Retry) => return End::Retry,
            Err(Halt::Interrupted(_)) => return End::Aborted(Cause::Conflict),
        };
        if !running.sink.has_room(running.tx.size()) {
            running.tx.abort(Cause::Capacity);
            return End::Aborted(Cause::Capacity);
        }
        if !model.hardware.commit(running.tx.core) {
            return End::Aborted(Cause::Conflict);
        }
        if running.tx.buffer.is_empty() {
            return End::Read(answer, if L::KEEPS { model.log.newest() } else { 0 });
        }
        if let Err(cause) = running.sink.put(running.tx) {
            return End::Failed(TxError::Refused(cause));
        }
        // A log may take from memory what was written when it draws the number.
        running.tx.write_back();
        let seals_behind = running.sink.seals_after_hardware();
        let numbered = !seals_behind || !is_left_out();
        if numbered {
            running.sink.number();
        }
        if !seals_behind && let Err(cause) = running.sink.seal() {
            return End::Failed(TxError::Refused(cause));
        }
        running.sealed = true;
        model.count_update();
        // From here on others see the writes.
        drop(running);
        if seals_behind && let Err(cause) = self.seal_behind(numbered) {
            return End::Failed(TxError::InDoubt(cause));
        }
        if let Some(window) = &model.window {
            window();
        }
        End::Wrote(answer)
    }

    /// Seals the atomic group of a commit that other threads see. The crash simulator runs another thread before
    /// that.
    fn seal_behind(&mut self, numbered: bool) -> Result<(), <L::Sink<'model> as RedoSink>::Error> {
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        if !numbered {
            self.sink.number();
        }
        if is_left_out() {
            self.sink.void();
            return Ok(());
        }
        self.sink.seal()
    }

    /// With the lock.
    fn with_lock<T, E>(
        &mut self,
        body: &mut impl FnMut(&mut HardwareTx<'model>) -> Result<T, Halt<E>>,
    ) -> HandleEnd<'model, T, E, L> {
        if let Err(cause) = self.sink.refuse_child() {
            return End::Failed(TxError::Refused(cause));
        }
        let model = self.model;
        let lock = model.take_lock();
        self.tx.locked = true;
        let mut running = Running { tx: &mut self.tx, sink: &mut self.sink, sealed: false, lock: Some(lock) };
        running.tx.memory.refresh();
        let answer = body(running.tx);
        if let Some(cause) = running.sink.refusal() {
            return End::Failed(TxError::Refused(cause));
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(Halt::Abort(value)) => return End::Failed(TxError::Aborted(value)),
            Err(Halt::Retry) => return End::Retry,
            Err(Halt::Interrupted(_)) => return End::Aborted(Cause::Conflict),
        };
        if running.tx.undo.is_empty() {
            return End::Read(answer, if L::KEEPS { model.log.newest() } else { 0 });
        }
        if let Err(cause) = running.sink.put(&running.tx.undo.written(&running.tx.memory)) {
            return End::Failed(TxError::Refused(cause));
        }
        running.sink.announce();
        running.sink.number_alone();
        if let Err(cause) = running.sink.seal() {
            return End::Failed(TxError::Refused(cause));
        }
        running.sealed = true;
        model.count_update();
        End::Wrote(answer)
    }
}

impl<L: RedoLog> HardwareThread<'_, L> {
    /// Runs `work` while no transaction runs, and everything that was committed is in the log; `work` begins none.
    pub(crate) fn alone<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _lock = self.model.take_lock();
        if L::KEEPS {
            // A medium that has failed is reported by whatever asks it next.
            let _ = self.sink.settle(self.model.log.newest());
        }
        work()
    }
}

impl<'model, L: RedoLog> TxThread for HardwareThread<'model, L> {
    type Tx = HardwareTx<'model>;
    type SinkError = <L::Sink<'model> as RedoSink>::Error;

    #[track_caller]
    fn run<T, E>(&mut self, mut body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>) -> Answer<T, E, Self> {
        let (model, site) = (self.model, Site::of(Location::caller()));
        let tried = self.retries.begin(site);
        let (mut attempts, mut without_reason) = (0, 0);
        loop {
            // Acquire pairs with the count of each update: what comes later is a change for a sleeper.
            let updates = model.updates.load(Ordering::Acquire);
            let locked = attempts >= tried.most || without_reason >= WITHOUT_REASON_MAX;
            let end = if locked { self.with_lock(&mut body) } else { self.in_hardware(&mut body) };
            let (answer, durable) = match end {
                End::Wrote(answer) => {
                    model.wakeups.wake_after_commit();
                    (answer, self.sink.finish())
                }
                End::Read(answer, newest) if L::KEEPS => (answer, self.sink.settle(newest)),
                End::Read(answer, _) => (answer, Ok(())),
                End::Aborted(cause) => {
                    self.counts.conflicts += 1;
                    without_reason = if cause == Cause::Spurious { without_reason + 1 } else { 0 };
                    match cause {
                        Cause::Conflict => {
                            attempts += 1;
                            self.backoff.wait(attempts);
                        }
                        Cause::Spurious => self.counts.without_reason += 1,
                        Cause::Capacity => {
                            self.counts.capacity += 1;
                            attempts = tried.most;
                        }
                        Cause::LockTaken => {
                            self.counts.explicit += 1;
                            // Waits until the lock is free.
                            drop(model.turn.lock());
                        }
                    }
                    continue;
                }
                End::Retry => {
                    (attempts, without_reason) = (0, 0);
                    model.wakeups.join();
                    fence(Ordering::SeqCst);
                    model.wakeups.sleep(|| model.updates.load(Ordering::Acquire) != updates);
                    continue;
                }
                End::Failed(error) => return Err(error),
            };
            self.counts.commits += 1;
            self.counts.serial += u64::from(locked);
            self.counts.hardware += u64::from(!locked);
            self.retries.end(tried);
            return durable.map(|()| answer).map_err(TxError::InDoubt);
        }
    }

    fn irrevocable<T>(
        &mut self,
        body: impl FnOnce(&mut Self::Tx) -> Result<T, Interrupted>,
    ) -> Answer<T, Infallible, Self> {
        let mut body = Some(body);
        let end = self.with_lock(&mut |tx| Ok::<T, Halt<Infallible>>(once(&mut body)(tx)?));
        let (answer, durable) = match end {
            End::Wrote(answer) => {
                self.model.wakeups.wake_after_commit();
                (answer, self.sink.finish())
            }
            End::Read(answer, newest) => (answer, self.sink.settle(newest)),
            End::Failed(error) => return Err(error),
            End::Aborted(_) | End::Retry => foreign_interruption(),
        };
        self.counts.commits += 1;
        self.counts.serial += 1;
        durable.map(|()| answer).map_err(TxError::InDoubt)
    }

    fn settle_all(&mut self) -> Result<(), Self::SinkError> {
        if L::KEEPS { self.sink.settle(self.model.log.newest()) } else { Ok(()) }
    }

    fn counts(&self) -> TxCounts {
        self.counts
    }
}
