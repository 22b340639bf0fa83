//! Group commit: many threads wait for positions of a log. A group of them is served by one write, which one of its
//! members, the leader, seals and issues; up to [`WRITES_MAX`] such writes are under way at a time.
//!
//! A leader seals the gathering group and writes it in one of two cases. Either about half of the active clients
//! are in it: then the other half is in the write before, and the two halves alternate. Or no write is under way,
//! and the other clients have not come back within the time of about two writes. So a group waits only for clients
//! that were just served, and a single client never waits.
//!
//! Invariants:
//! 1. Ranges are sealed in the order of positions, and the thread that sealed a range, its leader, writes it.
//! 2. `durable` only grows, and only to the end of a write that returned `Ok` and before which every write returned
//!    `Ok`: a write that overtakes its predecessor counts when that one is done.
//! 3. Members of a sealed group sleep at the event count of the group's slot until the group is durable. Members of
//!    the gathering group sleep there too, except one, the timed waiter: it sleeps at the slot's other event count,
//!    for a limited time, and then has the group written.
//! 4. A wake-up carries no information: a thread that wakes reads the state again, under the lock. So another
//!    thread that arrives may lead although the timed waiter was woken to do so.
//! 5. After a failure nothing is written any more, and every wait, present or future, returns the failure.

use crate::sync::{AtomicBool, AtomicU64, EventCount, Mutex, MutexGuard, Ordering, nanoseconds, yield_now};
use std::time::Duration;

/// Writes under way at most. Two keep a disk with a queue busy while threads are woken; more only make the groups
/// smaller.
const WRITES_MAX: u64 = 2;
/// Groups that may have sleeping members: those under way, and the gathering one.
const SLOTS: usize = WRITES_MAX as usize + 1;
/// Bounds on how long a timed waiter waits for the rest of its group, in nanoseconds. Between them it waits for the
/// time of two writes (one may be under way when it begins).
const LINGER_NS: (u64, u64) = (20_000, 5_000_000);
/// After the second timed wait in vain in a row the next 2 groups do not wait, after the third the next 6, then 14, and
/// so on, up to this many waits in vain.
const LINGER_MISSES_MAX: u32 = 6;
/// From so many clients for each processor on, they crowd it.
const CLIENTS_PER_PROCESSOR: u32 = 6;
/// Yields before sleeping, where clients crowd the processors.
const YIELDS_MAX: u32 = 8;

/// What the leader calls.
pub(crate) trait GroupWriter {
    /// Closes what was appended so far, so that a write up to the returned position makes it durable.
    fn seal(&self) -> u64;

    /// Writes `from..to`; true when it is durable. `durable` is a position before which everything was
    /// durable before this write was issued.
    fn write(&self, from: u64, to: u64, durable: u64) -> bool;
}

/// The write failed, now or earlier.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// A group, by the slot of its number.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Its end, once sealed.
    to: u64,
    /// Its write returned `Ok`.
    done: bool,
    /// Threads that wait for it.
    members: u32,
    /// Members that sleep, or did, at the slot's event count. For none, the leader saves the system call.
    sleepers: u32,
    /// A member sleeps at the slot's other event count.
    timed_waiter: bool,
}

#[derive(Default)]
struct GroupQueue {
    groups: [Group; SLOTS],
    /// Number of the oldest group that is not durable; `sealed_count + 1` when all are.
    first: u64,
    /// Number of the group last sealed. The gathering group is the next.
    last: u64,
    /// End of the group last sealed.
    sealed: u64,
    /// Threads whose groups are sealed and not durable.
    in_flight: u32,
    /// Threads that were served and are expected to return.
    expected: u32,
    /// Writes that have not returned.
    writing: u32,
    /// Timed waits in vain, in a row.
    linger_misses: u32,
    /// So many of the next groups do not wait.
    skip_linger: u32,
    /// Duration of a write, in nanoseconds, smoothed.
    write_ns: u64,
}

impl GroupQueue {
    fn slot(number: u64) -> usize {
        (number % SLOTS as u64) as usize
    }

    /// Members of the gathering group.
    fn gathered(&self) -> u32 {
        self.groups[Self::slot(self.last + 1)].members
    }

    /// True when no group is sealed and not durable.
    fn is_idle(&self) -> bool {
        self.first > self.last
    }

    /// Active clients.
    fn clients(&self) -> u32 {
        self.gathered() + self.in_flight + self.expected
    }

    /// True when a leader shall write the gathering group now.
    fn is_due(&self) -> bool {
        let under_way = self.last + 1 - self.first;
        under_way < WRITES_MAX
            && (self.gathered() >= self.clients().div_ceil(WRITES_MAX as u32)
                || (under_way == 0 && self.skip_linger > 0))
    }

    /// After a timed wait in vain: the expected clients do not come, and the next groups need not wait for them
    /// either.
    fn give_up(&mut self) {
        self.expected = 0;
        self.linger_misses = (self.linger_misses + 1).min(LINGER_MISSES_MAX);
        self.skip_linger = (1 << self.linger_misses) - 1;
    }

    /// Seals the gathering group, up to `to`; returns its slot.
    fn seal(&mut self, to: u64) -> usize {
        self.last += 1;
        self.sealed = to;
        self.writing += 1;
        if self.skip_linger > 0 {
            self.skip_linger -= 1;
        } else {
            self.linger_misses = 0;
        }
        let slot = Self::slot(self.last);
        self.groups[slot].to = to;
        self.in_flight += self.groups[slot].members;
        slot
    }
}

/// Election of leaders, hand-over between them, and wake-up of members.
pub(crate) struct GroupCommit {
    durable: AtomicU64,
    failed: AtomicBool,
    queue: Mutex<GroupQueue>,
    /// Where the members of a group sleep, except its timed waiter.
    served: [EventCount; SLOTS],
    /// Where the timed waiter of a group sleeps.
    lead: [EventCount; SLOTS],
    /// From so many clients on, a thread yields before it sleeps: others are ready to run then, and it is often
    /// served by its next turn, without a sleep and a wake-up.
    crowd: u32,
}

impl GroupCommit {
    /// Everything before `durable` is durable already; for `crowd` see the field.
    pub(crate) fn new(durable: u64, crowd: u32) -> Self {
        Self {
            durable: AtomicU64::new(durable),
            failed: AtomicBool::new(false),
            queue: Mutex::new(GroupQueue { sealed: durable, first: 1, ..GroupQueue::default() }),
            served: std::array::from_fn(|_| EventCount::new()),
            lead: std::array::from_fn(|_| EventCount::new()),
            crowd,
        }
    }

    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        // Acquire pairs with the Release in `lead`: a thread that sees the position may rely on the write.
        self.durable.load(Ordering::Acquire)
    }

    /// Relaxed: only the flag is read; the error itself is published by its own cell.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Makes every wait fail, now and from now on.
    pub(crate) fn fail(&self) {
        // Release pairs with the Acquire in `wait`.
        self.failed.store(true, Ordering::Release);
        // A thread that went to sleep without seeing the flag took its ticket under the lock, before this.
        drop(self.queue.lock());
        self.open_all();
    }

    /// First half of `fail`, for a caller that holds a lock that is inner to this one's: no write begins any more.
    pub(crate) fn refuse(&self) {
        // Release pairs with the Acquire in `wait`.
        self.failed.store(true, Ordering::Release);
    }

    fn open_all(&self) {
        self.served.iter().chain(&self.lead).for_each(EventCount::notify_all);
    }

    /// After `fail`: true when no write is under way any more, and none will be.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.lock().writing == 0
    }

    /// Returns when everything before `lsn`, which has been appended, is durable.
    pub(crate) fn wait(&self, lsn: u64, writer: &impl GroupWriter) -> Result<(), Failed> {
        let mut counted = false;
        // The slot where this thread was the timed waiter and its time passed, and its ticket there.
        let mut late: Option<(usize, u32)> = None;
        loop {
            // Acquire pairs with the Release in `fail` and `lead`.
            if self.failed.load(Ordering::Acquire) {
                return Err(Failed);
            }
            if self.durable() >= lsn {
                return Ok(());
            }
            let mut queue = self.queue.lock();
            if self.failed.load(Ordering::Acquire) || self.durable() >= lsn {
                continue;
            }
            if let Some((slot, ticket)) = late.take()
                && self.lead[slot].ticket() == ticket
            {
                // No leader has sealed our group meanwhile: the slot is still its.
                queue.groups[slot].timed_waiter = false;
                if queue.is_idle() {
                    queue.give_up();
                }
            }
            let number = if lsn > queue.sealed { queue.last + 1 } else { self.group_of(&queue, lsn) };
            let slot = GroupQueue::slot(number);
            if !counted {
                counted = true;
                queue.expected = queue.expected.saturating_sub(1);
                queue.groups[slot].members += 1;
                if number <= queue.last {
                    queue.in_flight += 1;
                }
            }
            if number > queue.last && queue.is_due() {
                // Also when there is a timed waiter: it sleeps, and this thread runs.
                self.lead(queue, writer);
            } else if number <= queue.last || queue.groups[slot].timed_waiter {
                queue.groups[slot].sleepers += 1;
                let (ticket, crowded) = (self.served[slot].ticket(), queue.clients() >= self.crowd);
                drop(queue);
                if !crowded || !is_served_soon(&self.served[slot], ticket) {
                    self.served[slot].wait(ticket);
                }
            } else {
                queue.groups[slot].timed_waiter = true;
                let ticket = self.lead[slot].ticket();
                let limit = Duration::from_nanos((2 * queue.write_ns).clamp(LINGER_NS.0, LINGER_NS.1));
                drop(queue);
                if !self.lead[slot].wait_for(ticket, limit) {
                    late = Some((slot, ticket));
                }
            }
        }
    }

    /// Number of the sealed group that contains the position `lsn`.
    fn group_of(&self, queue: &GroupQueue, lsn: u64) -> u64 {
        let mut number = queue.first;
        while queue.groups[GroupQueue::slot(number)].to < lsn {
            number += 1;
        }
        number
    }

    /// Seals and writes the gathering group, publishes what is durable then, and wakes the members served and the
    /// next leader.
    fn lead<'a>(&'a self, mut queue: MutexGuard<'a, GroupQueue>, writer: &impl GroupWriter) {
        if self.has_failed() {
            return;
        }
        let from = queue.sealed;
        // Sealed under the lock: a thread that waits later sees which group holds its position.
        let to = writer.seal();
        assert!(to > from, "the leader's own position was not sealed");
        let durable = self.durable();
        let slot = queue.seal(to);
        drop(queue);
        let start = nanoseconds();
        let ok = writer.write(from, to, durable);
        let took = nanoseconds().saturating_sub(start);
        let mut queue = self.queue.lock();
        queue.writing -= 1;
        if !ok {
            // Release pairs with the Acquire in `wait`.
            self.failed.store(true, Ordering::Release);
            drop(queue);
            self.open_all();
            return;
        }
        queue.write_ns =
            if queue.write_ns == 0 { took } else { queue.write_ns - queue.write_ns / 8 + took / 8 };
        queue.groups[slot].done = true;
        let mut finished = [Group::default(); SLOTS];
        while !queue.is_idle() && queue.groups[GroupQueue::slot(queue.first)].done {
            let slot = GroupQueue::slot(queue.first);
            let group = std::mem::take(&mut queue.groups[slot]);
            // Release pairs with the Acquire in `durable`.
            self.durable.store(group.to, Ordering::Release);
            queue.first += 1;
            queue.in_flight -= group.members;
            // Halved, because some of the earlier ones never return, or returned when they had been served already.
            queue.expected = queue.expected / 2 + group.members;
            finished[slot] = group;
            // Under the lock: tickets for the slot's next group must be taken after this.
            self.served[slot].advance();
            self.lead[slot].advance();
        }
        let next = GroupQueue::slot(queue.last + 1);
        let handed = queue.groups[next].timed_waiter && queue.is_due();
        if handed {
            queue.groups[next].timed_waiter = false;
            self.lead[next].advance();
        }
        drop(queue);
        // The next leader first, so that the disk is not idle while many threads are woken.
        if handed {
            self.lead[next].wake();
        }
        for (slot, group) in finished.iter().enumerate() {
            if group.sleepers > 0 {
                self.served[slot].wake();
            }
            if group.timed_waiter {
                self.lead[slot].wake();
            }
        }
    }
}

/// The number of clients that crowd this machine's processors.
pub(crate) fn crowd_here() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32 * CLIENTS_PER_PROCESSOR
}

/// Yields to other threads for a moment; true when there was an event meanwhile.
fn is_served_soon(served: &EventCount, ticket: u32) -> bool {
    for _ in 0..YIELDS_MAX {
        yield_now();
        if served.ticket() != ticket {
            return true;
        }
    }
    false
}
