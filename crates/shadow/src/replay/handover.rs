//! How committed atomic groups pass from the writers of several logs to the replayer, and log space back.
//!
//! Every atomic group has a number, drawn from one counter. An atomic group is *published* when it is durable. The
//! *watermark* is the greatest number up to which every atomic group has been published: atomic groups up to it are
//! acknowledged and applied, none beyond it is. (Several log writers publish in any order, and an atomic group may
//! depend on an earlier one, which a crash may have lost.)
//!
//! An atomic group is *deferred* when its log has it, and the fence that makes it durable is still to come: the log is
//! *open*. Any thread can close it, by flushing what was deferred and a fence of its own (`complete_deferred`), whether
//! the log's writer runs, sleeps, or has ended.
//!
//! With time stamps the callers number the atomic groups, and tell how far they are complete (`complete`). Then no
//! writer draws from the counter or announces itself: the counter is that watermark plus 1, and all else stays as
//! it is.
//!
//! Invariants:
//! 1. A log writer announces itself before it draws a number, and withdraws the announcement only after it has
//!    published. So a thread that reads the counter first and the announcements after it misses no atomic group
//!    under way.
//! 2. `head <= tail <= head + ring` for each log. Only the log's writer moves `tail`, only the replayer moves
//!    `head`.
//! 3. No log writer waits for space while it is announced: the replayer, which frees space, waits for announced
//!    writers.
//! 4. At any time each deferred atomic group of a log with a number up to its `completed`, or below its `open_from`, is
//!    durable.
//! 5. The log's writer moves `tail` only while the log is closed, and opens it. The thread that has `completing` moves
//!    `tail` only while the log is open, and closes it.

use crate::sync::{AtomicBool, AtomicU64, EventCount, Mutex, Ordering};
use std::ops::Range;

/// No atomic group is under way.
const NONE: u64 = u64::MAX;

/// The positions of one log, on lines of its own, so that writers of other logs do not slow its writer.
#[repr(align(128))]
struct LogPositions {
    /// At most the number of the atomic group under way, or `NONE`.
    announced: AtomicU64,
    /// Everything before is published.
    tail: AtomicU64,
    /// Everything before has been applied, durably.
    head: AtomicU64,
    /// The greatest number that a caller gave to an atomic group of the log. With time stamps only.
    given: AtomicU64,
    /// The number of the last atomic group that was deferred.
    deferred: AtomicU64,
    /// Everything before is in the log: up to that atomic group, at least.
    sealed: AtomicU64,
    /// Deferred atomic groups up to this number are durable. The log is open while it is less than `deferred`.
    completed: AtomicU64,
    /// The number of the atomic group that last opened the log.
    open_from: AtomicU64,
    /// Held by the thread that closes the log.
    completing: Mutex<()>,
}

impl LogPositions {
    /// At most the number of the first deferred atomic group that is not known to be durable, or `NONE`.
    #[inline]
    fn least_deferred(&self) -> u64 {
        // Acquire pairs with the Release in `defer`.
        let deferred = self.deferred.load(Ordering::Acquire);
        // Acquire pairs with the Release in `close`: the tail is visible.
        let completed = self.completed.load(Ordering::Acquire);
        if completed >= deferred {
            return NONE;
        }
        // Acquire pairs with the Release in `defer`. Each of the two is right (invariant 4), however old the other is.
        self.open_from.load(Ordering::Acquire).max(completed + 1)
    }

    /// Makes durable what was deferred, by `flush` with its positions.
    fn close<E>(&self, flush: impl FnOnce(Range<u64>) -> Result<(), E>) -> Result<(), E> {
        let _turn = self.completing.lock();
        // Acquire pairs with the Release in `defer`: the bytes are visible, and so is a position behind them.
        let deferred = self.deferred.load(Ordering::Acquire);
        // Relaxed: only the lock's holder stores.
        if self.completed.load(Ordering::Relaxed) >= deferred {
            return Ok(());
        }
        // Acquire pairs with the Release in `defer`: an atomic group after `deferred` may be among these bytes.
        let sealed = self.sealed.load(Ordering::Acquire);
        // Relaxed: while the log is open, only the lock's holder stores.
        flush(self.tail.load(Ordering::Relaxed)..sealed)?;
        // Relaxed: a thread that reads it has seen `completed` first.
        self.tail.store(sealed, Ordering::Relaxed);
        // Release pairs with the Acquire in `least_deferred` and in `is_open`.
        self.completed.store(deferred, Ordering::Release);
        Ok(())
    }
}

/// Numbers, tails and heads of all logs.
pub(crate) struct Handover {
    /// The number of the next atomic group. With time stamps: everything below is complete.
    next: AtomicU64,
    logs: Box<[LogPositions]>,
    /// A watermark that some thread has read: at most the present one.
    reached: AtomicU64,
    /// Notified when space was freed, or never will be.
    pub(crate) space: EventCount,
    /// Notified when the replayer has work, or shall end.
    pub(crate) work: EventCount,
    /// The replayer has nothing to do and sleeps.
    idle: AtomicBool,
    /// A log writer needs space, or soon will; the replayer has been notified.
    space_requested: AtomicBool,
    /// Log writers that wait for space.
    waiting: AtomicU64,
}

impl Handover {
    /// Empty logs: `next` is the number of the next atomic group, `positions` are the logs' ends.
    pub(crate) fn new(next: u64, positions: &[u64]) -> Self {
        let own = |&position: &u64| LogPositions {
            announced: AtomicU64::new(NONE),
            tail: AtomicU64::new(position),
            head: AtomicU64::new(position),
            given: AtomicU64::new(next - 1),
            deferred: AtomicU64::new(0),
            sealed: AtomicU64::new(position),
            completed: AtomicU64::new(0),
            open_from: AtomicU64::new(0),
            completing: Mutex::new(()),
        };
        Self {
            next: AtomicU64::new(next),
            logs: positions.iter().map(own).collect(),
            reached: AtomicU64::new(next - 1),
            space: EventCount::new(),
            work: EventCount::new(),
            idle: AtomicBool::new(false),
            space_requested: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
        }
    }

    /// Draws the number of an atomic group that the writer of `log` will publish.
    #[inline(always)]
    pub(crate) fn begin(&self, log: usize) -> u64 {
        let own = &self.logs[log];
        // Release pairs with the Acquire in `watermark`: who sees this announcement sees how the last one ended. (That
        // the announcement is visible with the number, the Release of the addition sees to.)
        own.announced.store(self.next.load(Ordering::Relaxed), Ordering::Release);
        self.next.fetch_add(1, Ordering::AcqRel)
    }

    /// As `begin`, while no other thread draws a number: without a locked instruction, which would wait for the last
    /// fence's write-backs.
    #[inline(always)]
    pub(crate) fn begin_alone(&self, log: usize) -> u64 {
        // Relaxed: no other thread stores to it, and what keeps them from it has ordered the last store.
        let number = self.next.load(Ordering::Relaxed);
        // Release: as in `begin`.
        self.logs[log].announced.store(number, Ordering::Release);
        // Release pairs with the Acquire in `watermark`: who sees the number drawn sees the announcement.
        self.next.store(number + 1, Ordering::Release);
        number
    }

    /// Reports that the atomic group, and everything before `tail` of this log, is durable.
    #[inline(always)]
    pub(crate) fn publish(&self, log: usize, tail: u64) {
        let own = &self.logs[log];
        // Relaxed: a thread that reads it has seen the announcement withdrawn first.
        own.tail.store(tail, Ordering::Relaxed);
        // Release pairs with the Acquire in `watermark`: the atomic group's bytes come before.
        own.announced.store(NONE, Ordering::Release);
    }

    /// In place of `publish`: the atomic group, and everything before `end` of this log, is in the log.
    #[inline]
    pub(crate) fn defer(&self, log: usize, number: u64, end: u64) {
        let own = &self.logs[log];
        if !self.is_open(log) {
            // Release pairs with the Acquire in `least_deferred`: what `is_open` has seen is visible.
            own.open_from.store(number, Ordering::Release);
        }
        // Before `deferred`: a thread that sees the number finds the position behind its bytes.
        own.sealed.store(end, Ordering::Release);
        // Release pairs with the Acquire in `least_deferred` and in `close`.
        own.deferred.store(number, Ordering::Release);
        // Release pairs with the Acquire in `watermark`: `deferred` comes before.
        own.announced.store(NONE, Ordering::Release);
    }

    /// Whether the log has atomic groups that were deferred and are not durable, as its writer asks.
    #[inline]
    pub(crate) fn is_open(&self, log: usize) -> bool {
        let own = &self.logs[log];
        // Acquire pairs with the Release in `close`. Relaxed: only the log's writer stores.
        own.completed.load(Ordering::Acquire) < own.deferred.load(Ordering::Relaxed)
    }

    /// Whether some log is open.
    pub(crate) fn is_any_open(&self) -> bool {
        self.logs.iter().any(|own| own.least_deferred() != NONE)
    }

    /// Closes the log, if it is open: `flush` makes the positions durable that it is given.
    pub(crate) fn close<E>(
        &self,
        log: usize,
        flush: impl FnOnce(Range<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.logs[log].close(flush)
    }

    /// Closes every log in which an atomic group up to `number` was deferred: `flush` makes the positions of a log
    /// durable. Waits for no log writer.
    pub(crate) fn complete_deferred<E>(
        &self,
        number: u64,
        mut flush: impl FnMut(usize, Range<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (log, own) in self.logs.iter().enumerate() {
            if own.least_deferred() <= number {
                own.close(|positions| flush(log, positions))?;
            }
        }
        Ok(())
    }

    /// After `publish`: if every smaller number is known to be published, all up to this one are. Then no thread
    /// has to look at the other logs for it. True if it is so.
    #[inline(always)]
    pub(crate) fn note_published(&self, number: u64) -> bool {
        // Acquire pairs with the Release below and in `covers`.
        let follows = self.reached.load(Ordering::Acquire) + 1 == number;
        if follows {
            // As in `covers`, another thread may have stored a greater one meanwhile.
            self.reached.store(number, Ordering::Release);
        }
        follows
    }

    /// The number up to which every atomic group is published.
    #[inline]
    pub(crate) fn watermark(&self) -> u64 {
        // Acquire pairs with the addition in `begin`: the announcements of all numbers drawn are visible.
        let next = self.next.load(Ordering::Acquire);
        // Acquire pairs with the Release in `publish`, `defer` and `begin`. The announcement before what was deferred:
        // it is withdrawn after that.
        let least = |own: &LogPositions| own.announced.load(Ordering::Acquire).min(own.least_deferred());
        self.logs.iter().fold(next, |number, own| number.min(least(own))) - 1
    }

    /// Whether every atomic group up to `number` is published. Costs one load once a thread has found it so.
    #[inline(always)]
    pub(crate) fn covers(&self, number: u64) -> bool {
        // Acquire pairs with the Release below: what the other thread saw published is visible.
        if self.reached.load(Ordering::Acquire) >= number {
            return true;
        }
        let watermark = self.watermark();
        // Another thread may store a smaller one after this: then the next to ask reads the logs again.
        self.reached.store(watermark, Ordering::Release);
        watermark >= number
    }

    /// Notes the number that the caller gave to the atomic group under way in `log`. One store to a line of the log.
    #[inline]
    pub(crate) fn give(&self, log: usize, number: u64) {
        // Release pairs with the Acquire in `given`.
        self.logs[log].given.store(number, Ordering::Release);
    }

    /// The greatest number that a caller gave.
    pub(crate) fn given(&self) -> u64 {
        let before = self.begun();
        self.logs.iter().fold(before, |most, own| most.max(own.given.load(Ordering::Acquire)))
    }

    /// With time stamps: every atomic group up to `number` is published, or never will be.
    pub(crate) fn complete(&self, number: u64) {
        // Release pairs with the Acquire in `watermark`: what the caller knows to be published is visible there.
        self.next.fetch_max(number + 1, Ordering::AcqRel);
    }

    /// The number of the last atomic group begun. With time stamps: everything up to it is complete.
    #[inline(always)]
    pub(crate) fn begun(&self) -> u64 {
        self.next.load(Ordering::Acquire) - 1
    }

    /// Everything of the log before this position is published. All atomic groups up to a watermark that was read
    /// before lie before it.
    #[inline]
    pub(crate) fn tail(&self, log: usize) -> u64 {
        self.logs[log].tail.load(Ordering::Acquire)
    }

    /// Everything of the log before this position may be overwritten.
    #[inline]
    pub(crate) fn head(&self, log: usize) -> u64 {
        // Acquire pairs with the Release in `free`: the replayer has read the bytes there.
        self.logs[log].head.load(Ordering::Acquire)
    }

    /// Bytes of the log in use. The head is read first: the tail only grows, and the head never passes it.
    pub(crate) fn used(&self, log: usize) -> u64 {
        let head = self.head(log);
        self.tail(log) - head
    }

    /// Frees everything before `head`: the replayer has applied it, durably.
    pub(crate) fn free(&self, log: usize, head: u64) {
        // Release pairs with the Acquire in `head`.
        self.logs[log].head.store(head, Ordering::Release);
    }

    /// Whether a log writer waits for space, or some log has more than `kept_bytes` in use.
    pub(crate) fn wants_space(&self, kept_bytes: u64) -> bool {
        // Relaxed: a writer that the replayer misses asks again.
        self.waiting.load(Ordering::Relaxed) > 0
            || (0..self.logs.len()).any(|log| self.used(log) > kept_bytes)
    }

    /// A log writer begins to wait for space, or ends it.
    pub(crate) fn set_waiting(&self, waits: bool) {
        // Relaxed: as in `wants_space`.
        let change = if waits { 1 } else { 1u64.wrapping_neg() };
        self.waiting.fetch_add(change, Ordering::Relaxed);
    }

    /// Bytes that were ever published, in all logs.
    pub(crate) fn published_bytes(&self) -> u64 {
        (0..self.logs.len()).map(|log| self.tail(log)).sum()
    }

    /// Asks the replayer for space. Only the first request of each of its rounds notifies it.
    #[inline]
    pub(crate) fn request_space(&self) {
        // AcqRel pairs with `begin_round`: a thread that finds space requested knows that the next round sees its
        // atomic group.
        if !self.space_requested.swap(true, Ordering::AcqRel) {
            self.work.notify_all();
        }
    }

    /// Whether space was requested since the last round began.
    pub(crate) fn is_space_requested(&self) -> bool {
        self.space_requested.load(Ordering::Acquire)
    }

    /// Begins a round of the replayer; returns whether space was requested since the last one began.
    pub(crate) fn begin_round(&self) -> bool {
        self.space_requested.swap(false, Ordering::AcqRel)
    }

    /// Marks the replayer idle: it found nothing to do and is about to sleep.
    pub(crate) fn go_idle(&self) {
        self.idle.store(true, Ordering::Relaxed);
    }

    /// True when the replayer sleeps, or is about to, and has not been woken since.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    /// Wakes an idle replayer. One that is about to become idle may miss it: then what was published waits for the
    /// next atomic group, or for a log writer that needs space, which asks until there is some. What was deferred waits
    /// for the replayer to look once more before it sleeps without a limit.
    #[inline(always)]
    pub(crate) fn wake_if_idle(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::Relaxed) {
            self.work.notify_all();
        }
    }
}
