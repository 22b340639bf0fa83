//! Group commit: many threads wait for positions of a log, one at a time writes for all of them.
//!
//! Invariants:
//! 1. At most one thread leads, and only the leader writes; so one write is under way at most.
//! 2. `durable` only grows, and only to a position whose write returned `Ok`.
//! 3. Whoever sleeps, sleeps on a gate that the present or the next leader opens: the slot of the
//!    group under way, the slot of the next group (only while a candidate for leading it exists),
//!    or the leader's gate (the candidate itself).
//! 4. The candidate is made leader before the followers are woken, so the disk does not idle while
//!    threads are being woken.
//! 5. After a failure everybody who waits, or ever will, gets the failure.

use crate::sync::{AtomicBool, AtomicU64, Gate, Mutex, MutexGuard, Ordering};

/// What the leader drives.
pub(crate) trait GroupWriter {
    /// Closes what was appended so far, so that a write up to the returned position makes it durable.
    fn seal(&self) -> u64;

    /// Writes `from..to`; true when it is durable.
    fn write(&self, from: u64, to: u64) -> bool;
}

/// The write failed, now or earlier.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed;

#[derive(Default)]
struct Role {
    /// Somebody leads.
    leading: bool,
    /// Somebody waits at the leader's gate to lead next.
    candidate: bool,
    /// Number of the group last sealed; its parity is its slot.
    group: u64,
    /// End of the group last sealed.
    sealed: u64,
    /// Sleepers of each slot: no system call where there is none.
    sleepers: [u32; 2],
}

/// Leader election, hand-off and wake-up.
pub(crate) struct GroupCommit {
    durable: AtomicU64,
    failed: AtomicBool,
    role: Mutex<Role>,
    slots: [Gate; 2],
    next_leader: Gate,
}

impl GroupCommit {
    /// Everything before `durable` is durable already.
    pub(crate) fn new(durable: u64) -> Self {
        Self {
            durable: AtomicU64::new(durable),
            failed: AtomicBool::new(false),
            role: Mutex::new(Role { sealed: durable, ..Role::default() }),
            slots: [Gate::new(), Gate::new()],
            next_leader: Gate::new(),
        }
    }

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
        let mut role = self.role.lock();
        role.sleepers = [0, 0];
        drop(role);
        // The candidate, if any, is woken by the leader, who finishes in any case.
        self.slots[0].open();
        self.slots[1].open();
    }

    /// After `fail`: true when no write is under way any more, and none will be.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.role.lock().leading
    }

    /// Returns when everything before `lsn`, which has been appended, is durable.
    pub(crate) fn wait(&self, lsn: u64, writer: &impl GroupWriter) -> Result<(), Failed> {
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
            if !role.leading {
                role.leading = true;
                self.lead(role, writer);
            } else if lsn > role.sealed && !role.candidate {
                role.candidate = true;
                let ticket = self.next_leader.ticket();
                drop(role);
                self.next_leader.wait(ticket);
                // `leading` stayed true: it is ours now.
                let role = self.role.lock();
                self.lead(role, writer);
            } else {
                let group = if lsn > role.sealed { role.group + 1 } else { role.group };
                let slot = (group & 1) as usize;
                role.sleepers[slot] += 1;
                let ticket = self.slots[slot].ticket();
                drop(role);
                self.slots[slot].wait(ticket);
            }
        }
    }

    /// Writes what is there, publishes it, hands leadership on, wakes those who are served.
    fn lead<'a>(&'a self, mut role: MutexGuard<'a, Role>, writer: &impl GroupWriter) {
        let from = self.durable();
        // Sealing under the lock: who comes to wait later sees whether this group holds its position.
        let to = if self.has_failed() { from } else { writer.seal() };
        let mut ok = true;
        if to > from {
            role.group += 1;
            role.sealed = to;
            drop(role);
            ok = writer.write(from, to);
            role = self.role.lock();
            if ok {
                // Release pairs with the Acquire in `durable`.
                self.durable.store(to, Ordering::Release);
            } else {
                // Release pairs with the Acquire in `wait`.
                self.failed.store(true, Ordering::Release);
            }
        }
        let slot = (role.group & 1) as usize;
        let served = std::mem::take(&mut role.sleepers[slot]);
        let handed = std::mem::take(&mut role.candidate);
        if handed {
            // Under the lock: the next candidate's ticket must be taken after this, or two would lead.
            self.next_leader.advance();
        } else {
            role.leading = false;
        }
        drop(role);
        if handed {
            self.next_leader.wake();
        }
        if served > 0 {
            self.slots[slot].open();
        }
        if !ok {
            self.slots[slot ^ 1].open();
        }
    }
}
