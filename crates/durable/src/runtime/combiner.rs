//! Who runs when: reads in parallel, writes in batches by one thread at a time.
//!
//! The client request handler of the Mangosteen paper (ATC'24, section 4.1, Fig. 2): C-RW-WP, the
//! reader-writer lock with writer preference of Calciu et al. (PPoPP'13), joined with flat combining
//! and early notification. Line numbers in comments are those of Fig. 2.
//!
//! Deviations, and why:
//! - Waits spin briefly and then sleep. Nobody is woken by a lock operation that could have stayed in
//!   user space: each release looks at one counter of sleepers.
//! - A reader that found the lock taken a few times bars new combiners until it got in (the R-Barrier
//!   of Calciu et al., which the paper leaves out): a steady stream of writers starves no reader.
//! - Slots belong to clients, not to threads; their number is not fixed (`slots.rs`).
//! - A writer whose answer waits for something that all of its batch wait for (durability) is not woken before
//!   it is there: the combiner waits for it first, outside the lock, and each writer sleeps once instead of twice.
//! - The wait for readers by a combiner that sleeps costs the readers no locked instruction: the
//!   combiner pays for both sides (`AsymmetricBarrier`).
//!
//! Invariants:
//! 1. Mutex (section 5): while one thread is in `execute`, no other is, and no reader is in its call.
//! 2. Prog (section 5): every job that became READY becomes DONE, if each `execute` returns.
//! 3. A writer sleeps only after it made `sleepers` and its `asleep` visible and then saw, in this
//!    order, that the lock is taken (or barred) and its job not DONE; who changes any of these looks
//!    at `sleepers` afterwards, with a full barrier between.
//! 4. `hand_over` wakes a READY writer whenever the lock is free and not barred: each release and each
//!    end of a bar calls it.

use crate::slots::{DONE, IDLE, READY, STARTED, Slot, Slots};
use crate::sync::{AsymmetricBarrier, AtomicU32, Gate, Ordering, Patience, barrier_after_rmw, thread_mark};
use std::ptr::NonNull;

/// Times that a reader finds the lock taken before it bars new writers.
const REFUSALS_MAX: u32 = 2;

/// Words that all threads share, each on a line of its own where writers of one disturb readers of
/// the other.
#[repr(align(128))]
struct Line<T>(T);

/// The lock and its slots. `J` is a job as the executor wants it.
pub(crate) struct Combiner<J> {
    slots: Slots<J>,
    /// wrFlag of Fig. 2.
    wr_flag: Line<AtomicU32>,
    /// Readers that lost patience and bar new combiners.
    barring: Line<AtomicU32>,
    /// Clients, readers or writers, that sleep or are about to.
    sleepers: Line<AtomicU32>,
    /// Opened when the lock is released, for readers.
    released: Gate,
    /// 1 while a combiner sleeps until readers have left.
    awaits_readers: Line<AtomicU32>,
    /// Opened by readers that leave, for that combiner.
    left: Gate,
    barrier: AsymmetricBarrier,
}

/// Leaves the read side, also when the call unwinds.
struct Leave<'a, J> {
    combiner: &'a Combiner<J>,
    slot: &'a Slot<J>,
}

impl<J> Drop for Leave<'_, J> {
    #[inline]
    fn drop(&mut self) {
        self.combiner.leave(self.slot);
    }
}

impl<J> Combiner<J> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Slots::new(),
            wr_flag: Line(AtomicU32::new(0)),
            barring: Line(AtomicU32::new(0)),
            sleepers: Line(AtomicU32::new(0)),
            released: Gate::new(),
            awaits_readers: Line(AtomicU32::new(0)),
            left: Gate::new(),
            barrier: AsymmetricBarrier::detect(),
        }
    }

    /// A slot for a new client; `None` when there are more than 2^26.
    pub(crate) fn join(&self) -> Option<&Slot<J>> {
        self.slots.take()
    }

    /// Ends a client. Its slot must not be used any more by who had it.
    pub(crate) fn part(&self, slot: &Slot<J>) {
        self.slots.give_back(slot);
    }

    /// Runs `call` while no write runs; others may read at the same time (lines 2 to 11).
    /// One call at a time on a slot; from inside `call` on another slot only, and not from inside a job.
    #[inline]
    pub(crate) fn read<R>(&self, slot: &Slot<J>, call: impl FnOnce() -> R) -> R {
        // Lines 4 and 5: announce, then look. The barrier pairs with the one in `try_take`: one of the
        // two sees the other.
        slot.reading.0.swap(thread_mark(), Ordering::SeqCst);
        barrier_after_rmw();
        // Acquire, with the Release in `release`: what the last batch wrote is seen.
        if self.wr_flag.0.load(Ordering::Acquire) != 0 {
            self.read_refused(slot);
        }
        let _leave = Leave { combiner: self, slot };
        call() // line 6
    }

    /// Lines 7 and 10.
    #[inline]
    fn leave(&self, slot: &Slot<J>) {
        // Release, with the Acquire in `readers_are_out`: what was read was read before.
        slot.reading.0.store(0, Ordering::Release);
        // Pairs with `heavy` in `await_readers`.
        self.barrier.light();
        if self.awaits_readers.0.load(Ordering::Relaxed) != 0 {
            self.left.open();
        }
    }

    /// The lock was taken: leaves, waits, announces again, until it is in (lines 9 to 11).
    #[cold]
    fn read_refused(&self, slot: &Slot<J>) {
        if self.reads_elsewhere(slot) {
            // The writer waits for that read, which waits for this one.
            return;
        }
        let (mut refusals, mut barred) = (0, false);
        loop {
            self.leave(slot);
            refusals += 1;
            if refusals > REFUSALS_MAX && !barred {
                barred = true;
                self.barring.0.fetch_add(1, Ordering::SeqCst);
            }
            let mut patience = Patience::new();
            while self.wr_flag.0.load(Ordering::Acquire) != 0 {
                if !patience.spin() {
                    self.sleep_until_released();
                }
            }
            slot.reading.0.swap(thread_mark(), Ordering::SeqCst);
            barrier_after_rmw();
            if self.wr_flag.0.load(Ordering::Acquire) == 0 {
                break;
            }
        }
        if barred {
            self.barring.0.fetch_sub(1, Ordering::SeqCst);
            barrier_after_rmw();
            self.hand_over();
        }
    }

    /// Whether this thread is in a read on another slot, inside which it reads on `slot`. No writer is in `execute` then.
    fn reads_elsewhere(&self, slot: &Slot<J>) -> bool {
        let mark = thread_mark();
        // Relaxed: a thread sees its own stores, and no other thread stores its mark.
        self.slots
            .each()
            .any(|other| !std::ptr::eq(other, slot) && other.reading.0.load(Ordering::Relaxed) == mark)
    }

    /// A reader sleeps until the lock is released, or at once finds that it is.
    fn sleep_until_released(&self) {
        let ticket = self.released.ticket();
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        // Pairs with the barrier in `release`.
        barrier_after_rmw();
        if self.wr_flag.0.load(Ordering::Acquire) != 0 {
            self.released.wait(ticket);
        }
        self.sleepers.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Has `job` done by whoever combines next, this thread or another, and returns when it is done
    /// (lines 13 to 31). `execute` gets all jobs of a batch, in no promised order, while nobody reads
    /// or writes; it must not unwind and not use this combiner. One call at a time on a slot.
    pub(crate) fn write(&self, slot: &Slot<J>, job: &mut J, execute: impl FnOnce(&[NonNull<J>])) {
        self.have_done(slot, job, execute, None::<fn(&J)>);
    }

    /// As `write`, and returns only after `settle`, which gets the job when it is done, outside the lock. One
    /// that returns means that those of the other jobs of its batch would return at once: writers that sleep are
    /// woken after that of their combiner.
    pub(crate) fn write_and_settle(
        &self,
        slot: &Slot<J>,
        job: &mut J,
        execute: impl FnOnce(&[NonNull<J>]),
        settle: impl FnOnce(&J),
    ) {
        self.have_done(slot, job, execute, Some(settle));
    }

    #[inline]
    fn have_done(
        &self,
        slot: &Slot<J>,
        job: &mut J,
        execute: impl FnOnce(&[NonNull<J>]),
        mut settle: Option<impl FnOnce(&J)>,
    ) {
        let request = &slot.request;
        // SAFETY: the status is IDLE: the cell is the owner's (slots.rs, invariant 3).
        unsafe { *request.job.get() = Some(NonNull::from(&mut *job)) };
        // Relaxed: published with the status.
        request.settles.store(u32::from(settle.is_some()), Ordering::Relaxed);
        // Release, with the Acquire in `collect`: who sees READY sees the job. Line 13.
        request.status.store(READY, Ordering::Release);
        let mut execute = Some(execute);
        let mut patience = Patience::new();
        loop {
            // Acquire, with the Release in `combine`: what the combiner wrote to the job is seen.
            match request.status.load(Ordering::Acquire) {
                DONE => break, // line 17
                READY if self.try_take() => {
                    self.combine(slot, execute.take().expect("a job is done after one combining"));
                    debug_assert_eq!(request.status.load(Ordering::Relaxed), DONE);
                    self.tell(slot, false);
                    if let Some(settle) = settle.take() {
                        settle(job);
                    }
                    self.tell(slot, true);
                    break;
                }
                _ => {} // STARTED (lines 15 and 16), or somebody else combines
            }
            if !patience.spin() {
                self.sleep(slot);
            }
        }
        if let Some(settle) = settle {
            settle(job);
        }
        request.status.store(IDLE, Ordering::Relaxed);
    }

    /// Runs `call` alone, as a batch would, without taking jobs: for checkpoints and closing.
    pub(crate) fn exclusive<R>(&self, call: impl FnOnce() -> R) -> R {
        let mut patience = Patience::new();
        while !self.try_take() {
            if !patience.spin() {
                self.sleep_until_released();
            }
        }
        self.await_readers(|| {});
        let result = call();
        self.release();
        result
    }

    /// True when a combiner may begin: nobody combines, no reader bars it (line 18).
    #[inline]
    fn is_free(&self) -> bool {
        self.wr_flag.0.load(Ordering::Acquire) == 0 && self.barring.0.load(Ordering::Acquire) == 0
    }

    /// Line 19. Acquire, with the Release in `release`: the last batch is seen.
    #[inline]
    fn try_take(&self) -> bool {
        let taken = self.is_free()
            && self.wr_flag.0.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        // Between the flag and the look at the readers; pairs with the one in `read`.
        barrier_after_rmw();
        taken
    }

    /// Lines 20 to 31, with the lock held.
    fn combine(&self, slot: &Slot<J>, execute: impl FnOnce(&[NonNull<J>])) {
        // SAFETY: these lists are the owner's alone (slots.rs, invariant 3).
        let (ready, jobs) = unsafe { (&mut *slot.lists.ready.get(), &mut *slot.lists.jobs.get()) };
        ready.clear();
        self.await_readers(|| self.collect(ready));
        jobs.clear();
        // SAFETY: between STARTED and DONE the cells are the combiner's to read.
        jobs.extend(ready.iter().filter_map(|slot| unsafe { *slot.as_ref().request.job.get() }));
        execute(jobs); // lines 26 to 29
        for slot in &*ready {
            // SAFETY: slots live as long as the table. Release, with the Acquire in `write`. Line 30.
            unsafe { slot.as_ref() }.request.status.store(DONE, Ordering::Release);
        }
        self.release(); // line 31
    }

    /// Wakes those of the batch that `slot` has just combined who sleep and who settle, or do not.
    fn tell(&self, slot: &Slot<J>, who_settle: bool) {
        // Who is not counted yet will see that its job is DONE (invariant 3).
        if self.sleepers.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        // SAFETY: the list is the owner's alone (slots.rs, invariant 3).
        for other in unsafe { &*slot.lists.ready.get() } {
            // SAFETY: slots live as long as the table. Its owner may be elsewhere by now; it then wakes for nothing.
            let request = &unsafe { other.as_ref() }.request;
            if (request.settles.load(Ordering::Relaxed) != 0) == who_settle
                && request.asleep.load(Ordering::Acquire) != 0
            {
                request.gate.open();
            }
        }
    }

    /// Lines 22 to 24: takes what is READY.
    fn collect(&self, ready: &mut Vec<NonNull<Slot<J>>>) {
        for slot in self.slots.each() {
            // Acquire, with the Release in `write`.
            if slot.request.status.load(Ordering::Acquire) == READY {
                // Only a combiner changes READY, and there is one.
                slot.request.status.store(STARTED, Ordering::Relaxed);
                ready.push(NonNull::from(slot));
            }
        }
    }

    /// Lines 21 to 25: does `meanwhile` at least once, and until every reader has left.
    fn await_readers(&self, mut meanwhile: impl FnMut()) {
        let mut patience = Patience::new();
        loop {
            meanwhile();
            if self.readers_are_out() {
                return;
            }
            if patience.spin() {
                continue;
            }
            let ticket = self.left.ticket();
            self.awaits_readers.0.store(1, Ordering::SeqCst);
            // Pairs with `light` in `leave`: a reader that we still see sees the flag when it leaves.
            self.barrier.heavy();
            if !self.readers_are_out() {
                self.left.wait(ticket);
            }
            self.awaits_readers.0.store(0, Ordering::Relaxed);
        }
    }

    /// Acquire, with the Release in `leave`.
    #[inline]
    fn readers_are_out(&self) -> bool {
        self.slots.each().all(|slot| slot.reading.0.load(Ordering::Acquire) == 0)
    }

    /// Line 31, and whoever waited for it is told.
    #[inline]
    fn release(&self) {
        self.wr_flag.0.swap(0, Ordering::SeqCst);
        // Between the release and the look for sleepers (invariant 3).
        barrier_after_rmw();
        if self.sleepers.0.load(Ordering::Relaxed) != 0 {
            self.released.open();
            self.hand_over();
        }
    }

    /// Wakes one writer that could combine (invariant 4). It will take all the others with it.
    #[cold]
    fn hand_over(&self) {
        if self.sleepers.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        for slot in self.slots.each() {
            let request = &slot.request;
            if request.asleep.load(Ordering::Acquire) != 0 && request.status.load(Ordering::Acquire) == READY
            {
                request.gate.open();
                return;
            }
        }
        // A thread in `exclusive` waits at the same gate as readers.
        self.released.open();
    }

    /// A writer sleeps until its job is done, or until it may combine.
    fn sleep(&self, slot: &Slot<J>) {
        let request = &slot.request;
        let ticket = request.gate.ticket();
        request.asleep.store(1, Ordering::Relaxed);
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        // Pairs with the barriers in `release` and after the end of a bar (invariant 3).
        barrier_after_rmw();
        let status = request.status.load(Ordering::Acquire);
        if status != DONE && !(status == READY && self.is_free()) {
            request.gate.wait(ticket);
        }
        request.asleep.store(0, Ordering::Relaxed);
        self.sleepers.0.fetch_sub(1, Ordering::SeqCst);
    }
}
