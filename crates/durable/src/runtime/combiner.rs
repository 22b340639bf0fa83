//! The order of commands: reads in parallel, writes in batches by one thread at a time.
//!
//! The client request handler of the Mangosteen paper (ATC'24, section 4.1, Fig. 2): C-RW-WP, the
//! reader-writer lock with writer preference of Calciu et al. (PPoPP'13), joined with flat combining
//! and early notification. Line numbers in comments are those of Fig. 2.
//!
//! Deviations, and why:
//! - Waits spin briefly and then sleep. A lock operation makes no system call unless a thread sleeps: each release
//!   looks at a counter of writers that sleep and at a mark of readers that do.
//! - A reader that found the lock taken a few times bars new combiners until it has entered (the R-Barrier of Calciu
//!   et al., which the paper leaves out), so a steady stream of writers starves no reader.
//! - Slots belong to clients, not to threads; their number is not fixed (`runtime/slots.rs`).
//! - Where all writers of a batch must then wait for the same event (durability), the combiner waits for it first,
//!   outside the lock, and only then wakes them: each writer sleeps once instead of twice.
//! - Readers pay no locked instruction for a combiner that sleeps until they have left: the combiner pays for both
//!   sides (`AsymmetricBarrier`).
//!
//! Invariants:
//! 1. Mutex (section 5): while one thread is in `execute`, no other is, and no reader is in its call.
//! 2. Prog (section 5): every job that became READY becomes DONE, if each `execute` returns.
//! 3. A writer sleeps only after it made `sleepers` and its `asleep` visible and then saw, in this order, that the
//!    lock is taken (or barred) and its job not DONE. A thread that changes any of these looks at `sleepers`
//!    afterwards, with a full barrier between.
//!    A reader sleeps in the same way, with `awaited` in place of the two. Who wakes readers takes the mark away first:
//!    a reader that has been woken and waits for a processor costs the releases until then no system call.
//! 4. `hand_over` wakes a READY writer whenever the lock is free and not barred: each release and each
//!    end of a bar calls it.

use super::slots::{ClientSlot, DONE, IDLE, READY, STARTED, SlotTable};
use super::sync::{
    AsymmetricBarrier, AtomicU32, EventCount, Ordering, Patience, barrier_after_rmw, thread_mark,
};
use std::ptr::NonNull;

/// Waiting jobs among which `hand_over` looks for a thread that sleeps.
const SLEEPERS_SOUGHT: usize = 16;

/// Times that a reader finds the lock taken before it bars new writers.
const REFUSALS_MAX: u32 = 2;

/// A word that all threads share, on a cache line of its own, so that writers of one word do not disturb readers of
/// another.
#[repr(align(128))]
struct CacheLine<T>(T);

/// The lock and its slots. `J` is a job of the executor.
pub(crate) struct Combiner<J> {
    slots: SlotTable<J>,
    /// wrFlag of Fig. 2.
    wr_flag: CacheLine<AtomicU32>,
    /// Readers that bar new combiners because they waited too long.
    barring: CacheLine<AtomicU32>,
    /// Writers that sleep or are about to.
    sleepers: CacheLine<AtomicU32>,
    /// 1 when a reader sleeps at `released`, or is about to.
    awaited: CacheLine<AtomicU32>,
    /// Opened for readers when the lock is released.
    released: EventCount,
    /// 1 while a combiner sleeps until readers have left.
    awaits_readers: CacheLine<AtomicU32>,
    /// Opened for that combiner by readers that leave.
    left: EventCount,
    barrier: AsymmetricBarrier,
}

/// Ends a read, also when the call unwinds.
struct EndRead<'a, J> {
    combiner: &'a Combiner<J>,
    slot: &'a ClientSlot<J>,
}

impl<J> Drop for EndRead<'_, J> {
    #[inline]
    fn drop(&mut self) {
        self.combiner.end_read(self.slot);
    }
}

impl<J> Combiner<J> {
    pub(crate) fn new() -> Self {
        Self {
            slots: SlotTable::new(),
            wr_flag: CacheLine(AtomicU32::new(0)),
            barring: CacheLine(AtomicU32::new(0)),
            sleepers: CacheLine(AtomicU32::new(0)),
            awaited: CacheLine(AtomicU32::new(0)),
            released: EventCount::new(),
            awaits_readers: CacheLine(AtomicU32::new(0)),
            left: EventCount::new(),
            barrier: AsymmetricBarrier::detect(),
        }
    }

    /// A slot for a new client; `None` when there are more than 2^26.
    pub(crate) fn join(&self) -> Option<&ClientSlot<J>> {
        self.slots.take()
    }

    /// Ends a client, which must not use its slot any more.
    pub(crate) fn leave(&self, slot: &ClientSlot<J>) {
        self.slots.give_back(slot);
    }

    /// Runs `call` while no write runs; others may read at the same time (lines 2 to 11). One call at a time on a
    /// slot. From inside `call`, only on another slot, and not from inside a job.
    #[inline]
    pub(crate) fn read<R>(&self, slot: &ClientSlot<J>, call: impl FnOnce() -> R) -> R {
        // Lines 4 and 5: set the flag, then look at the lock. The barrier pairs with the one in `try_take`: at least
        // one of the two threads sees the other.
        self.slots.begin_read(slot, thread_mark());
        barrier_after_rmw();
        // Acquire, with the Release in `release`: the reader sees what the last batch wrote.
        if self.wr_flag.0.load(Ordering::Acquire) != 0 {
            self.read_refused(slot);
        }
        let _end = EndRead { combiner: self, slot };
        call() // line 6
    }

    /// Lines 7 and 10.
    #[inline]
    fn end_read(&self, slot: &ClientSlot<J>) {
        self.slots.end_read(slot);
        // Pairs with `heavy` in `wait_for_readers`.
        self.barrier.light();
        if self.awaits_readers.0.load(Ordering::Relaxed) != 0 {
            self.left.notify_all();
        }
    }

    /// The lock was taken: leaves, waits and sets the flag again, until it has entered (lines 9 to 11).
    #[cold]
    fn read_refused(&self, slot: &ClientSlot<J>) {
        if self.reads_elsewhere(slot) {
            // The writer waits for that read, which waits for this one.
            return;
        }
        let (mut refusals, mut barred) = (0, false);
        loop {
            self.end_read(slot);
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
            self.slots.begin_read(slot, thread_mark());
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

    /// Whether this thread is in a read on another slot, inside which it now reads on `slot`. No writer is in
    /// `execute` then.
    fn reads_elsewhere(&self, slot: &ClientSlot<J>) -> bool {
        self.slots.reads_here(thread_mark(), Some(slot))
    }

    /// A reader sleeps until the lock is released, or finds at once that it is.
    fn sleep_until_released(&self) {
        let ticket = self.released.ticket();
        self.awaited.0.swap(1, Ordering::SeqCst);
        // Pairs with the barrier in `release`.
        barrier_after_rmw();
        if self.wr_flag.0.load(Ordering::Acquire) != 0 {
            self.released.wait(ticket);
        }
    }

    /// Wakes the readers that sleep until the lock is released.
    #[cold]
    fn wake_readers(&self) {
        // Before the event: a reader that marks itself later took its ticket later, or will find the lock free or its
        // mark seen. SeqCst, with that of `sleep_until_released`: its ticket is older than this event.
        self.awaited.0.swap(0, Ordering::SeqCst);
        self.released.notify_all();
    }

    /// Has `job` done by the next thread that combines, this one or another, and returns when it is done (lines 13
    /// to 31). `execute` gets all jobs of a batch, in no promised order, while no other thread reads or writes. It
    /// must not unwind and must not use this combiner. One call at a time on a slot.
    pub(crate) fn write(&self, slot: &ClientSlot<J>, job: &mut J, execute: impl FnOnce(&[NonNull<J>])) {
        self.submit(slot, job, execute, None::<fn(&J)>);
    }

    /// As `write`, and returns only after `settle`, which gets the finished job outside the lock. When one `settle`
    /// returns, those of the other jobs of its batch would return at once; so sleeping writers are woken after the
    /// combiner's own.
    pub(crate) fn write_and_settle(
        &self,
        slot: &ClientSlot<J>,
        job: &mut J,
        execute: impl FnOnce(&[NonNull<J>]),
        settle: impl FnOnce(&J),
    ) {
        self.submit(slot, job, execute, Some(settle));
    }

    #[inline]
    fn submit(
        &self,
        slot: &ClientSlot<J>,
        job: &mut J,
        execute: impl FnOnce(&[NonNull<J>]),
        mut settle: Option<impl FnOnce(&J)>,
    ) {
        let request = &slot.request;
        // SAFETY: the status is IDLE: the cell is the owner's (runtime/slots.rs, invariant 4).
        unsafe { *request.job.get() = Some(NonNull::from(&mut *job)) };
        // Relaxed: published with the status.
        request.settles.store(u32::from(settle.is_some()), Ordering::Relaxed);
        // Release, with the Acquire in `collect`: a combiner that sees READY sees the job. Line 13.
        request.status.store(READY, Ordering::Release);
        self.slots.enlist(slot);
        let mut execute = Some(execute);
        let mut patience = Patience::new();
        loop {
            // Acquire, with the Release in `combine`: the owner sees what the combiner wrote to the job.
            match request.status.load(Ordering::Acquire) {
                DONE => break, // line 17
                READY if self.try_take() => {
                    self.combine(slot, execute.take().expect("a job is done after one combining"));
                    debug_assert_eq!(request.status.load(Ordering::Relaxed), DONE);
                    self.wake_batch(slot, false);
                    if let Some(settle) = settle.take() {
                        settle(job);
                    }
                    self.wake_batch(slot, true);
                    break;
                }
                _ => {} // STARTED (lines 15 and 16), or another thread combines
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

    /// Runs `call` alone, as a batch would, without taking jobs.
    pub(crate) fn exclusive<R>(&self, call: impl FnOnce() -> R) -> R {
        self.hold();
        let result = call();
        self.let_go();
        result
    }

    /// From now on no other thread reads or writes, until `let_go`. Not from inside a read or a job.
    pub(crate) fn hold(&self) {
        let mut patience = Patience::new();
        while !self.try_take() {
            if !patience.spin() {
                self.sleep_until_released();
            }
        }
        self.wait_for_readers(|| {});
    }

    /// Ends what `hold` began.
    pub(crate) fn let_go(&self) {
        self.release();
    }

    /// Whether this thread is in a read.
    pub(crate) fn reads_here(&self) -> bool {
        self.slots.reads_here(thread_mark(), None)
    }

    /// True when a combiner may begin: no thread combines, and no reader bars it (line 18).
    #[inline]
    fn is_free(&self) -> bool {
        self.wr_flag.0.load(Ordering::Acquire) == 0 && self.barring.0.load(Ordering::Acquire) == 0
    }

    /// Line 19. Acquire, with the Release in `release`: the combiner sees the last batch.
    #[inline]
    fn try_take(&self) -> bool {
        let taken = self.is_free()
            && self.wr_flag.0.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        // Between the flag and the look at the readers; pairs with the one in `read`.
        barrier_after_rmw();
        taken
    }

    /// Lines 20 to 31, with the lock held.
    fn combine(&self, slot: &ClientSlot<J>, execute: impl FnOnce(&[NonNull<J>])) {
        // SAFETY: these lists are the owner's alone (runtime/slots.rs, invariant 4).
        let (ready, jobs) = unsafe { (&mut *slot.lists.ready.get(), &mut *slot.lists.jobs.get()) };
        ready.clear();
        self.wait_for_readers(|| self.collect(ready));
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

    /// Wakes the sleeping writers of the batch that `slot` has just combined: those that settle, or those that do
    /// not.
    fn wake_batch(&self, slot: &ClientSlot<J>, settling: bool) {
        // A writer that is not counted yet will see that its job is DONE (invariant 3).
        if self.sleepers.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        // SAFETY: the list is the owner's alone (runtime/slots.rs, invariant 4).
        for other in unsafe { &*slot.lists.ready.get() } {
            // SAFETY: slots live as long as the table. The owner may have gone on to another call; it then wakes for
            // nothing.
            let request = &unsafe { other.as_ref() }.request;
            if (request.settles.load(Ordering::Relaxed) != 0) == settling
                && request.asleep.load(Ordering::Acquire) != 0
            {
                request.gate.notify_all();
            }
        }
    }

    /// Lines 22 to 24: takes what is READY, the oldest first.
    fn collect(&self, ready: &mut Vec<NonNull<ClientSlot<J>>>) {
        let before = ready.len();
        self.slots.take_waiting(|slot| {
            // Only a combiner changes READY, and there is one.
            slot.request.status.store(STARTED, Ordering::Relaxed);
            ready.push(NonNull::from(slot));
        });
        ready[before..].reverse();
    }

    /// Lines 21 to 25: does `meanwhile` at least once, and until every reader has left.
    fn wait_for_readers(&self, mut meanwhile: impl FnMut()) {
        let mut patience = Patience::new();
        loop {
            meanwhile();
            if self.slots.readers_are_out() {
                return;
            }
            if patience.spin() {
                continue;
            }
            let ticket = self.left.ticket();
            self.awaits_readers.0.store(1, Ordering::SeqCst);
            // Pairs with `light` in `end_read`: a reader that we still see sees the flag when it leaves.
            self.barrier.heavy();
            if !self.slots.readers_are_out() {
                self.left.wait(ticket);
            }
            self.awaits_readers.0.store(0, Ordering::Relaxed);
        }
    }

    /// Line 31, and wakes the threads that waited for it.
    #[inline]
    fn release(&self) {
        self.wr_flag.0.swap(0, Ordering::SeqCst);
        // Between the release and the look for sleepers (invariant 3).
        barrier_after_rmw();
        if self.awaited.0.load(Ordering::Relaxed) != 0 {
            self.wake_readers();
        }
        if self.sleepers.0.load(Ordering::Relaxed) != 0 {
            self.hand_over();
        }
    }

    /// Wakes one writer that could combine (invariant 4). That writer takes all the others with it.
    #[cold]
    fn hand_over(&self) {
        if self.sleepers.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        // The newest job's thread, if it is awake, looks at the lock by itself before it sleeps: so a thread is on its
        // way even if this loop finds none asleep. It looks on, because that thread may wait for a processor.
        for slot in self.slots.waiting(SLEEPERS_SOUGHT) {
            let request = &slot.request;
            if request.asleep.load(Ordering::Acquire) != 0 && request.status.load(Ordering::Acquire) == READY
            {
                request.gate.notify_all();
                return;
            }
        }
    }

    /// A writer sleeps until its job is done, or until it may combine.
    fn sleep(&self, slot: &ClientSlot<J>) {
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
