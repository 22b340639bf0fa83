//! Who may run: many transactions side by side, one thread alone for a long time (*solo mode*), or one transaction
//! alone (*exclusive*). And which snapshots are still in use.
//!
//! Each thread has a slot on cache lines of its own. To begin, it stores its snapshot there and then loads the
//! mode; a thread that changes the mode stores it and then loads the slots. Of the two barriers between, the
//! thread's is the light half and the changer's the heavy half of an asymmetric one: beginning a transaction costs
//! no locked instruction.
//!
//! 1. While the mode is closed or solo, no thread but the one that it admits is between `enter` and `leave`: a changer
//!    waits until every other slot is idle.
//! 2. Only the holder of the turn changes the mode.
//! 3. What runs alone writes without ownership records. It is in no other thread's snapshot: each of those begins
//!    after it, and sees all of it. `unrecorded` tells readers the last number of such a commit.

use crate::sync::{AsymmetricBarrier, AtomicU64, Mutex, MutexGuard, Ordering, fence, pause};
use std::sync::Arc;

/// In a slot: no transaction runs.
const IDLE: u64 = u64::MAX;

/// The mode: every thread may begin. (Solo is the thread's number, shifted.)
const OPEN: u64 = 0;

/// The mode: no thread may begin.
const CLOSED: u64 = 1;

/// One thread's slot.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    /// The running transaction's snapshot, or idle.
    snapshot: AtomicU64,
    /// Transactions begun; only its thread stores.
    starts: AtomicU64,
    number: u64,
}

impl Slot {
    /// The thread's number, at least 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn solo_mode(&self) -> u64 {
        self.number << 1
    }

    fn is_idle(&self) -> bool {
        // Acquire pairs with the Release in `leave`: we see what the transaction wrote.
        self.snapshot.load(Ordering::Acquire) == IDLE
    }
}

/// The mode, the slots, and the turn to change the mode.
#[derive(Debug)]
pub(crate) struct Gate {
    shared: ReadMostly,
    turn: Mutex<()>,
    slots: Mutex<Slots>,
    barrier: AsymmetricBarrier,
}

/// What every transaction loads, and a change of mode stores.
#[derive(Debug)]
#[repr(align(128))]
struct ReadMostly {
    mode: AtomicU64,
    /// How often the gate was closed.
    closings: AtomicU64,
    unrecorded: AtomicU64,
    /// 1 while at most one transaction writes. Changes only while the gate is closed.
    one_writer: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Arc<Slot>>,
    last_number: u64,
}

impl Gate {
    pub(crate) fn new(one_writer: bool) -> Self {
        let shared = ReadMostly {
            mode: AtomicU64::new(OPEN),
            closings: AtomicU64::new(0),
            unrecorded: AtomicU64::new(0),
            one_writer: AtomicU64::new(u64::from(one_writer)),
        };
        let barrier = AsymmetricBarrier::detect();
        Self { shared, turn: Mutex::new(()), slots: Mutex::new(Slots::default()), barrier }
    }

    /// A slot for a new thread.
    pub(crate) fn register(&self) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        slots.last_number += 1;
        let (snapshot, starts) = (AtomicU64::new(IDLE), AtomicU64::new(0));
        let slot = Arc::new(Slot { snapshot, starts, number: slots.last_number });
        slots.all.push(Arc::clone(&slot));
        slot
    }

    /// Takes back the slot of a thread that ends.
    pub(crate) fn unregister(&self, slot: &Slot) {
        self.end_solo(slot);
        self.slots.lock().all.retain(|other| other.number != slot.number);
    }

    /// Begins a transaction with the snapshot that `newest` gives; true if it runs alone. Waits while another thread
    /// runs alone, and ends another thread's solo mode.
    #[inline(always)]
    pub(crate) fn enter(&self, slot: &Slot, newest: impl Fn() -> u64) -> (bool, u64) {
        loop {
            // Relaxed: a guess. In solo mode no thread needs the snapshot, and 0 is older than any other: who waits for
            // older ones waits for it.
            let is_solo = self.shared.mode.load(Ordering::Relaxed) == slot.solo_mode();
            let snapshot = if is_solo { 0 } else { newest() };
            // Relaxed: the barrier orders it before the load of the mode. Pairs with the heavy half in `close`.
            slot.snapshot.store(snapshot, Ordering::Relaxed);
            self.barrier.light();
            // Acquire pairs with the Release stores of the mode: we see what ran alone before.
            let mode = self.shared.mode.load(Ordering::Acquire);
            if is_solo && mode == slot.solo_mode() || !is_solo && mode == OPEN {
                slot.starts.store(slot.starts.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                return (mode != OPEN, snapshot);
            }
            self.leave(slot);
            self.wait_until_open(slot);
        }
    }

    /// The transaction has ended; its writes are visible or undone.
    #[inline(always)]
    pub(crate) fn leave(&self, slot: &Slot) {
        // Release pairs with the Acquire in `is_idle` and `quiesce`.
        slot.snapshot.store(IDLE, Ordering::Release);
    }

    /// The running transaction's snapshot is a later one from now on. Everything that it has read belongs to it.
    pub(crate) fn advance(&self, slot: &Slot, snapshot: u64) {
        // Release pairs with the Acquire in `quiesce`: our earlier loads come before whatever follows there.
        slot.snapshot.store(snapshot, Ordering::Release);
    }

    /// Waits until no transaction runs whose snapshot is older than the commit `number`. The caller runs none.
    pub(crate) fn quiesce(&self, slot: &Slot, number: u64) {
        // A thread whose snapshot we miss has not loaded anything yet, and will see our commit.
        self.barrier.heavy();
        for other in self.others(slot) {
            let mut round = 0;
            // Acquire pairs with the Release in `leave` and `advance`. (Idle is larger than any number.)
            while other.snapshot.load(Ordering::Acquire) < number {
                pause(round);
                round = round.saturating_add(1);
            }
        }
    }

    /// Closes the gate and waits until no other thread runs a transaction. The caller runs none, either.
    #[cold]
    #[inline(never)]
    pub(crate) fn exclusive(&self, slot: &Slot) -> Exclusive<'_> {
        let turn = self.turn.lock();
        self.close(slot);
        self.count_closing();
        Exclusive { gate: self, _turn: turn }
    }

    /// Whether at most one transaction writes. The caller runs a transaction, or has the gate closed.
    #[inline(always)]
    pub(crate) fn one_writer(&self) -> bool {
        // Relaxed: `enter` has synchronized with the store of the mode after it.
        self.shared.one_writer.load(Ordering::Relaxed) != 0
    }

    /// Lets one transaction write at a time instead of many, or many instead of one, when those that run have ended.
    /// The caller runs none. The records that count from then on do not tell what was committed until now, up to
    /// `newest`; a sleeper must look again.
    pub(crate) fn change_writers(&self, slot: &Slot, newest: impl Fn() -> u64) {
        let turn = self.turn.lock();
        self.close(slot);
        self.shared.one_writer.store(u64::from(!self.one_writer()), Ordering::Relaxed);
        self.note_unrecorded(newest());
        self.count_closing();
        self.set_mode(OPEN);
        drop(turn);
    }

    /// Begins solo mode if no other thread has begun a transaction since `others` was taken (which this renews), and
    /// none runs or, by `sleeping`, is about to run again. The caller runs none.
    pub(crate) fn try_solo(&self, slot: &Slot, others: &mut u64, sleeping: impl Fn() -> bool) -> bool {
        let turn = self.turn.lock();
        let all = self.others(slot);
        let starts =
            all.iter().fold(0, |sum: u64, other| sum.wrapping_add(other.starts.load(Ordering::Relaxed)));
        if std::mem::replace(others, starts) != starts
            || self.mode() != OPEN
            || !all.iter().all(|o| o.is_idle())
        {
            return false;
        }
        self.close(slot);
        self.count_closing();
        // The closing is counted before we look for sleepers; a sleeper is counted before it looks for closings.
        fence(Ordering::SeqCst);
        let alone = !sleeping();
        self.set_mode(if alone { slot.solo_mode() } else { OPEN });
        drop(turn);
        alone
    }

    /// Ends the caller's solo mode, if it has one. It runs no transaction.
    pub(crate) fn end_solo(&self, slot: &Slot) {
        // Relaxed: only we ourselves make the mode ours.
        if self.shared.mode.load(Ordering::Relaxed) == slot.solo_mode() {
            let _turn = self.turn.lock();
            if self.mode() == slot.solo_mode() {
                self.set_mode(OPEN);
            }
        }
    }

    /// How often the gate was closed: a count that has not changed tells a running transaction's successor that
    /// nothing was written without ownership records since.
    pub(crate) fn closings(&self) -> u64 {
        // Acquire pairs with the Release in `count_closing`.
        self.shared.closings.load(Ordering::Acquire)
    }

    /// Remembers the number of a commit that wrote no ownership records. The caller runs alone.
    #[inline(always)]
    pub(crate) fn note_unrecorded(&self, number: u64) {
        // Relaxed: `leave` or the next store of the mode publishes it.
        self.shared.unrecorded.store(number, Ordering::Relaxed);
    }

    /// The last commit that wrote no ownership records; the caller runs a transaction.
    pub(crate) fn unrecorded(&self) -> u64 {
        // Relaxed: `enter` has synchronized with the store of the mode after it.
        self.shared.unrecorded.load(Ordering::Relaxed)
    }

    /// The barrier between a commit's stores and its look for sleepers.
    #[inline(always)]
    pub(crate) fn light(&self) {
        self.barrier.light();
    }

    /// The barrier of the rare side.
    pub(crate) fn heavy(&self) {
        self.barrier.heavy();
    }

    /// Waits for what runs exclusively, or ends another thread's solo mode.
    #[cold]
    #[inline(never)]
    fn wait_until_open(&self, slot: &Slot) {
        let _turn = self.turn.lock();
        if self.mode() != OPEN {
            // A turn ends with the mode open or solo, and ours is open when we come here.
            self.close(slot);
            self.set_mode(OPEN);
        }
    }

    /// Lets no thread begin, and waits for those that run. The caller has the turn.
    fn close(&self, slot: &Slot) {
        // Relaxed: the barrier orders it before the loads of the slots. Pairs with the light half in `enter`.
        self.shared.mode.store(CLOSED, Ordering::Relaxed);
        self.barrier.heavy();
        for other in self.others(slot) {
            let mut round = 0;
            while !other.is_idle() {
                pause(round);
                round = round.saturating_add(1);
            }
        }
    }

    fn count_closing(&self) {
        // Release pairs with the Acquire in `closings`. The turn excludes other writers.
        let closings = self.shared.closings.load(Ordering::Relaxed);
        self.shared.closings.store(closings + 1, Ordering::Release);
    }

    /// The mode, for the holder of the turn.
    fn mode(&self) -> u64 {
        // Relaxed: the turn orders the changes.
        self.shared.mode.load(Ordering::Relaxed)
    }

    fn set_mode(&self, mode: u64) {
        // Release pairs with the Acquire in `enter`.
        self.shared.mode.store(mode, Ordering::Release);
    }

    /// A thread that registers later begins no transaction while the gate is closed: it sees the mode.
    fn others(&self, slot: &Slot) -> Vec<Arc<Slot>> {
        self.slots.lock().all.iter().filter(|other| other.number != slot.number).cloned().collect()
    }
}

/// The right to run alone; opens the gate when it is dropped.
#[derive(Debug)]
pub(crate) struct Exclusive<'gate> {
    gate: &'gate Gate,
    _turn: MutexGuard<'gate, ()>,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.gate.set_mode(OPEN);
    }
}
