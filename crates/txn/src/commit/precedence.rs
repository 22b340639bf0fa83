//! What the threads of Algorithm 2 tell each other (l. are its lines): who has begun, who has committed in memory,
//! whose log is durable, and how far the marker is. So a commit waits for those before it, and a reader for what it
//! saw.
//!
//! There is a slot for each log, not for each thread: a thread that can write has a log, and keeps it until its
//! commit is acknowledged. A thread that has none is in no transaction that others could wait for.
//!
//! 1. A slot without a transaction shows a set persist bit: l.1 leaves that out, and all others would wait in l.27 for
//!    ever. That holds after an abort, a panic and the end of a thread, too.
//! 2. The lower bound (l.8) is visible before the stamp of l.14 is read. Otherwise a commit with a later stamp
//!    could look at this slot too early, move the marker beyond a stamp that is still to come, and no commit would
//!    wait for that one.
//! 3. Skipping the marker (l.29-30) is safe: `is_update` is reset (l.5) before `ts` grows (l.8), it is set (l.20)
//!    when no abort can follow, and l.29 loads `ts` first. So a thread that loads a greater `ts` and then a set
//!    `is_update` has found a commit that brings the marker beyond its own stamp, or leaves that to one that does.
//! 4. No thread waits for space in a log between `begin` and `persisted` or `leave`: all others, and the replayer,
//!    may be waiting for it.
//!
//! Two things differ from the text. Equal stamps wait for each other (`<=` in l.27): they belong to transactions that
//! share nothing, but the marker covers both. And the loop of CAS (l.34-38) is a lock from the comparison to the end of
//! the flush; so `marked` is one word, which only the lock's holder stores to, and a wait costs one load.

use crate::sync::{AtomicU64, Mutex, Ordering, pause};

/// The persist bit of `ts`.
const PERSISTENT: u64 = 1;

/// What a transaction shows the others.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// A stamp, shifted by the persist bit.
    ts: AtomicU64,
    is_update: AtomicU64,
}

/// The greatest stamp that the durable marker covers, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Marked(AtomicU64);

/// The shared variables of Algorithm 2.
#[derive(Debug)]
pub(crate) struct Precedence {
    slots: Box<[Slot]>,
    marked: Marked,
    turn: Mutex<()>,
}

fn stamp_of(ts: u64) -> u64 {
    ts >> 1
}

fn is_persistent(ts: u64) -> bool {
    ts & PERSISTENT != 0
}

impl Precedence {
    /// So many slots, without transactions; everything up to `covered` is durable.
    pub(crate) fn new(slots: usize, covered: u64) -> Self {
        let slot = |_| Slot { ts: AtomicU64::new(PERSISTENT), is_update: AtomicU64::new(0) };
        let marked = Marked(AtomicU64::new(covered));
        Self { slots: (0..slots).map(slot).collect(), marked, turn: Mutex::new(()) }
    }

    /// l.5 to l.8: a transaction begins, with this lower bound of its stamp.
    #[inline]
    pub(crate) fn begin(&self, slot: usize, bound: u64) {
        let own = &self.slots[slot];
        // Relaxed: the exchange releases it; see invariant 3.
        own.is_update.store(0, Ordering::Relaxed);
        // An exchange, not a store: it is visible before any later instruction reads the clock. Invariant 2.
        own.ts.swap(bound << 1, Ordering::SeqCst);
    }

    /// The transaction ended without a commit.
    #[inline]
    pub(crate) fn leave(&self, slot: usize) {
        // Relaxed load: only the slot's owner stores. Release pairs with the loads of the others.
        let ts = &self.slots[slot].ts;
        ts.store(ts.load(Ordering::Relaxed) | PERSISTENT, Ordering::Release);
    }

    /// l.16 and l.20: the update with this stamp is visible in memory.
    #[inline]
    pub(crate) fn committed(&self, slot: usize, stamp: u64) {
        let own = &self.slots[slot];
        // Release pairs with the Acquire in `passes`: in this order.
        own.ts.store(stamp << 1, Ordering::Release);
        own.is_update.store(1, Ordering::Release);
    }

    /// l.22: the log of the update is durable.
    #[inline]
    pub(crate) fn persisted(&self, slot: usize, stamp: u64) {
        // Release: the flush and l.20 come before. Pairs with the Acquire in `passes`.
        self.slots[slot].ts.store(stamp << 1 | PERSISTENT, Ordering::Release);
    }

    /// l.27, and the two loads of l.29: waits until the slot's transaction is later than `stamp`, or durable. Returns
    /// its stamp if it is an update.
    #[inline]
    fn passes<E>(
        &self,
        slot: &Slot,
        stamp: u64,
        alive: &impl Fn() -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let mut round = 0;
        let its = loop {
            // Acquire pairs with the stores of `ts`: `is_update` is loaded after it.
            let ts = slot.ts.load(Ordering::Acquire);
            if is_persistent(ts) || stamp_of(ts) > stamp {
                break stamp_of(ts);
            }
            alive()?;
            pause(round);
            round = round.saturating_add(1);
        };
        // Acquire: as it was stored after `ts`.
        Ok((slot.is_update.load(Ordering::Acquire) != 0).then_some(its))
    }

    /// l.25 to l.30: waits until every transaction before `stamp` has its log durable, or has no effect. True if a
    /// later update will bring the marker beyond `stamp`. The caller's own log is durable.
    ///
    /// # Errors
    /// Those of `alive`, which is asked in each turn.
    #[inline]
    pub(crate) fn wait_for_preceding<E>(
        &self,
        own: usize,
        stamp: u64,
        alive: impl Fn() -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut skips = false;
        for slot in self.slots.iter().enumerate().filter(|(other, _)| *other != own).map(|(_, slot)| slot) {
            skips |= self.passes(slot, stamp, &alive)?.is_some_and(|its| its > stamp);
        }
        Ok(skips)
    }

    /// l.31 to l.40, for a commit that does not leave it to others: the marker covers `stamp` when this returns. `mark`
    /// makes it durable.
    ///
    /// # Errors
    /// Those of `mark`.
    #[inline]
    pub(crate) fn update_marker<E>(
        &self,
        stamp: u64,
        mark: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.covers(stamp) {
            let _turn = self.turn.lock();
            if !self.covers(stamp) {
                mark(stamp)?;
                // Release pairs with the Acquire in `covers`: the marker is durable.
                self.marked.0.store(stamp, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Whether the marker covers `stamp`, durably.
    #[inline]
    pub(crate) fn covers(&self, stamp: u64) -> bool {
        // Acquire pairs with the Release in `update_marker`.
        self.marked.0.load(Ordering::Acquire) >= stamp
    }

    /// l.41 to l.43.
    ///
    /// # Errors
    /// Those of `alive`.
    #[inline]
    pub(crate) fn wait_for_marker<E>(&self, stamp: u64, alive: impl Fn() -> Result<(), E>) -> Result<(), E> {
        let mut round = 0;
        while !self.covers(stamp) {
            alive()?;
            pause(round);
            round = round.saturating_add(1);
        }
        Ok(())
    }

    /// What l.19 leaves out: returns the stamp that the marker must cover before a reader may return that has seen
    /// nothing later than `stamp`. Waits for those of whom that is not known yet; one load for each slot in which
    /// no transaction commits.
    ///
    /// # Errors
    /// Those of `alive`.
    #[inline]
    pub(crate) fn newest_seen<E>(&self, stamp: u64, alive: impl Fn() -> Result<(), E>) -> Result<u64, E> {
        let mut newest = 0;
        for slot in &self.slots {
            let its = self.passes(slot, stamp, &alive)?.filter(|&its| its <= stamp);
            newest = newest.max(its.unwrap_or(0));
        }
        Ok(newest)
    }
}
