//! Group commit: many threads wait for positions of a log, one of them at a time writes for a group of them,
//! and up to [`WRITES_MAX`] such writes are under way.
//!
//! A write is issued when its group is worth it: when about half of the clients that are at work stand in it
//! (then the other half is in the write before, and the two take turns), or when no write is under way and
//! the rest has not come back in the time of about two writes. So a group waits only for clients that were
//! just served, and a client alone never waits.
//!
//! Invariants:
//! 1. Ranges are sealed in the order of positions, each written by the thread that sealed it, its leader.
//! 2. `durable` only grows, and only to the end of a write that returned `Ok` and before which every write
//!    returned `Ok`: a write that overtakes its predecessor counts when that one is done.
//! 3. Members of a group that is sealed sleep at the slot of its number, which opens when it is durable. Those
//!    of the group that gathers sleep there too, but one of them, the candidate, sleeps at the slot's other
//!    gate and for a limited time: it sees to it that the group is written.
//! 4. To be woken says nothing: whoever wakes looks at the state again, under the lock. So a thread that comes
//!    by may lead although the candidate was woken to do so.
//! 5. After a failure nothing is written any more, and everybody who waits, or ever will, gets the failure.

use crate::sync::{AtomicBool, AtomicU64, Gate, Mutex, MutexGuard, Ordering, nanoseconds, yield_now};
use std::time::Duration;

/// Writes under way at most. Two keep a disk with a queue busy while threads are being woken; more only make
/// the groups smaller.
const WRITES_MAX: u64 = 2;
/// Groups that may have sleepers: those under way, and the one that gathers.
const SLOTS: usize = WRITES_MAX as usize + 1;
/// How long a candidate waits for the rest of its group, in nanoseconds: the time of two writes (one may be
/// under way when it begins), but at least and at most this long.
const LINGER_NS: (u64, u64) = (20_000, 5_000_000);
/// After a vain wait, groups do not wait for a while; this many times as long after each more in a row.
const MISSES_MAX: u32 = 6;
/// Clients for each processor from which on they crowd it.
const CLIENTS_PER_PROCESSOR: u32 = 6;
/// Yields before sleeping, where clients crowd the processors.
const YIELDS_MAX: u32 = 8;

/// What the leader drives.
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
    /// Where it ends, once sealed.
    to: u64,
    /// Its write returned `Ok`.
    done: bool,
    /// Threads that wait for it.
    members: u32,
    /// Those that sleep at the slot's gate, or did: no system call where there is none.
    sleepers: u32,
    /// One sleeps at the slot's other gate.
    candidate: bool,
}

#[derive(Default)]
struct Role {
    groups: [Group; SLOTS],
    /// Number of the oldest group that is not durable; `sealed_count + 1` when all are.
    first: u64,
    /// Number of the group last sealed. The one that gathers is the next.
    last: u64,
    /// End of the group last sealed.
    sealed: u64,
    /// Threads whose groups are sealed and not durable.
    flying: u32,
    /// Threads that were served and are expected back.
    away: u32,
    /// Writes that have not returned.
    writing: u32,
    /// Vain waits for a group to fill, in a row.
    misses: u32,
    /// Groups yet to come that do not wait.
    hasty: u32,
    /// Duration of a write, in nanoseconds, smoothed.
    write_ns: u64,
}

impl Role {
    fn slot(number: u64) -> usize {
        (number % SLOTS as u64) as usize
    }

    /// Members of the group that gathers.
    fn gathered(&self) -> u32 {
        self.groups[Self::slot(self.last + 1)].members
    }

    /// Nothing is under way.
    fn is_idle(&self) -> bool {
        self.first > self.last
    }

    /// Clients at work.
    fn clients(&self) -> u32 {
        self.gathered() + self.flying + self.away
    }

    /// The group that gathers is worth a write now.
    fn is_due(&self) -> bool {
        let under_way = self.last + 1 - self.first;
        under_way < WRITES_MAX
            && (self.gathered() >= self.clients().div_ceil(WRITES_MAX as u32)
                || (under_way == 0 && self.hasty > 0))
    }

    /// The candidate waited in vain for the rest: those who are away do not come, and the next groups need
    /// not wait for them either.
    fn give_up(&mut self) {
        self.away = 0;
        self.misses = (self.misses + 1).min(MISSES_MAX);
        self.hasty = (1 << self.misses) - 1;
    }

    /// Seals the group that gathers, up to `to`; returns its slot.
    fn seal(&mut self, to: u64) -> usize {
        self.last += 1;
        self.sealed = to;
        self.writing += 1;
        if self.hasty > 0 {
            self.hasty -= 1;
        } else {
            self.misses = 0;
        }
        let slot = Self::slot(self.last);
        self.groups[slot].to = to;
        self.flying += self.groups[slot].members;
        slot
    }
}

/// Leader election, hand-over and wake-up.
pub(crate) struct GroupCommit {
    durable: AtomicU64,
    failed: AtomicBool,
    role: Mutex<Role>,
    /// Where the members of a group sleep, but for the candidate.
    served: [Gate; SLOTS],
    /// Where its candidate sleeps.
    lead: [Gate; SLOTS],
    /// Clients from which on a thread that would sleep yields first: then others are ready to run, and it is
    /// often served by the time its turn comes, without a sleep and a wake-up.
    crowd: u32,
}

impl GroupCommit {
    /// Everything before `durable` is durable already; for `crowd` see the field.
    pub(crate) fn new(durable: u64, crowd: u32) -> Self {
        Self {
            durable: AtomicU64::new(durable),
            failed: AtomicBool::new(false),
            role: Mutex::new(Role { sealed: durable, first: 1, ..Role::default() }),
            served: std::array::from_fn(|_| Gate::new()),
            lead: std::array::from_fn(|_| Gate::new()),
            crowd,
        }
    }

    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        // Acquire pairs with the Release in `lead`: who sees the position may rely on the write.
        self.durable.load(Ordering::Acquire)
    }

    /// Relaxed: the flag alone is asked for; the error itself is published by its own cell.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Makes every wait fail, now and from now on.
    pub(crate) fn fail(&self) {
        // Release pairs with the Acquire in `wait`.
        self.failed.store(true, Ordering::Release);
        // Who went to sleep without seeing the flag took its ticket under the lock, before this.
        drop(self.role.lock());
        self.open_all();
    }

    /// First half of `fail`, for who holds a lock that is inner to this one's: no write begins any more.
    pub(crate) fn refuse(&self) {
        // Release pairs with the Acquire in `wait`.
        self.failed.store(true, Ordering::Release);
    }

    fn open_all(&self) {
        self.served.iter().chain(&self.lead).for_each(Gate::open);
    }

    /// After `fail`: true when no write is under way any more, and none will be.
    pub(crate) fn is_quiet(&self) -> bool {
        self.role.lock().writing == 0
    }

    /// Returns when everything before `lsn`, which has been appended, is durable.
    pub(crate) fn wait(&self, lsn: u64, writer: &impl GroupWriter) -> Result<(), Failed> {
        let mut counted = false;
        // The slot where this thread was the candidate and slept too long, and its ticket there.
        let mut late: Option<(usize, u32)> = None;
        loop {
            // Acquire pairs with the Release in `fail` and `lead`.
            if self.failed.load(Ordering::Acquire) {
                return Err(Failed);
            }
            if self.durable() >= lsn {
                return Ok(());
            }
            let mut role = self.role.lock();
            if self.failed.load(Ordering::Acquire) || self.durable() >= lsn {
                continue;
            }
            if let Some((slot, ticket)) = late.take()
                && self.lead[slot].ticket() == ticket
            {
                // Nobody relieved us: the slot is still our group's.
                role.groups[slot].candidate = false;
                if role.is_idle() {
                    role.give_up();
                }
            }
            let number = if lsn > role.sealed { role.last + 1 } else { self.group_of(&role, lsn) };
            let slot = Role::slot(number);
            if !counted {
                counted = true;
                role.away = role.away.saturating_sub(1);
                role.groups[slot].members += 1;
                if number <= role.last {
                    role.flying += 1;
                }
            }
            if number > role.last && role.is_due() {
                // Also when there is a candidate: it sleeps, and we are here.
                self.lead(role, writer);
            } else if number <= role.last || role.groups[slot].candidate {
                role.groups[slot].sleepers += 1;
                let (ticket, crowded) = (self.served[slot].ticket(), role.clients() >= self.crowd);
                drop(role);
                if !crowded || !is_opened_soon(&self.served[slot], ticket) {
                    self.served[slot].wait(ticket);
                }
            } else {
                role.groups[slot].candidate = true;
                let ticket = self.lead[slot].ticket();
                let limit = Duration::from_nanos((2 * role.write_ns).clamp(LINGER_NS.0, LINGER_NS.1));
                drop(role);
                if !self.lead[slot].wait_for(ticket, limit) {
                    late = Some((slot, ticket));
                }
            }
        }
    }

    /// Number of the sealed group that holds what ends at `lsn`.
    fn group_of(&self, role: &Role, lsn: u64) -> u64 {
        let mut number = role.first;
        while role.groups[Role::slot(number)].to < lsn {
            number += 1;
        }
        number
    }

    /// Seals and writes what has gathered, publishes what is durable then, and wakes whom it concerns.
    fn lead<'a>(&'a self, mut role: MutexGuard<'a, Role>, writer: &impl GroupWriter) {
        if self.has_failed() {
            return;
        }
        let from = role.sealed;
        // Sealing under the lock: who comes to wait later sees which group holds its position.
        let to = writer.seal();
        assert!(to > from, "the leader's own position was not sealed");
        let durable = self.durable();
        let slot = role.seal(to);
        drop(role);
        let start = nanoseconds();
        let ok = writer.write(from, to, durable);
        let took = nanoseconds().saturating_sub(start);
        let mut role = self.role.lock();
        role.writing -= 1;
        if !ok {
            // Release pairs with the Acquire in `wait`.
            self.failed.store(true, Ordering::Release);
            drop(role);
            self.open_all();
            return;
        }
        role.write_ns = if role.write_ns == 0 { took } else { role.write_ns - role.write_ns / 8 + took / 8 };
        role.groups[slot].done = true;
        let mut finished = [Group::default(); SLOTS];
        while !role.is_idle() && role.groups[Role::slot(role.first)].done {
            let slot = Role::slot(role.first);
            let group = std::mem::take(&mut role.groups[slot]);
            // Release pairs with the Acquire in `durable`.
            self.durable.store(group.to, Ordering::Release);
            role.first += 1;
            role.flying -= group.members;
            // Halved: some of the others never came back, or came and found themselves served.
            role.away = role.away / 2 + group.members;
            finished[slot] = group;
            // Under the lock: tickets for the slot's next group must be taken after this.
            self.served[slot].advance();
            self.lead[slot].advance();
        }
        let next = Role::slot(role.last + 1);
        let handed = role.groups[next].candidate && role.is_due();
        if handed {
            role.groups[next].candidate = false;
            self.lead[next].advance();
        }
        drop(role);
        // First of all: the disk should not idle while many are woken.
        if handed {
            self.lead[next].wake();
        }
        for (slot, group) in finished.iter().enumerate() {
            if group.sleepers > 0 {
                self.served[slot].wake();
            }
            if group.candidate {
                self.lead[slot].wake();
            }
        }
    }
}

/// As many clients crowd this machine's processors.
pub(crate) fn crowd_here() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32 * CLIENTS_PER_PROCESSOR
}

/// Lets other threads run for a moment; true when the gate was opened meanwhile.
fn is_opened_soon(gate: &Gate, ticket: u32) -> bool {
    for _ in 0..YIELDS_MAX {
        yield_now();
        if gate.ticket() != ticket {
            return true;
        }
    }
    false
}
