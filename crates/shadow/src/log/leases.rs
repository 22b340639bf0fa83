//! Who owns which log writer. A thread leases one for as long as it likes, or locks one for a single commit.
//!
//! Invariants:
//! 1. A writer is in its slot, locked by one commit, or with one lease.
//! 2. A thread that has put a writer back then notifies those that wait for one.

use crate::sync::{EventCount, Mutex, MutexGuard};

/// A slot for each writer; a leased one is empty.
pub(crate) struct Leases<T> {
    slots: Box<[Mutex<Option<T>>]>,
    returned: EventCount,
}

impl<T> Leases<T> {
    pub(crate) fn new(writers: impl Iterator<Item = T>) -> Self {
        Self { slots: writers.map(|writer| Mutex::new(Some(writer))).collect(), returned: EventCount::new() }
    }

    /// Locks a writer for a single commit; waits while it is leased.
    #[inline]
    pub(crate) fn lock(&self, slot: usize) -> LockedWriter<'_, T> {
        let guard = self.slots[slot].lock();
        if guard.is_some() { LockedWriter(guard) } else { self.wait_for(slot, guard) }
    }

    #[cold]
    fn wait_for<'a>(&'a self, slot: usize, mut guard: MutexGuard<'a, Option<T>>) -> LockedWriter<'a, T> {
        while guard.is_none() {
            let ticket = self.returned.ticket();
            drop(guard);
            guard = self.slots[slot].lock();
            if guard.is_none() {
                drop(guard);
                self.returned.wait(ticket);
                guard = self.slots[slot].lock();
            }
        }
        LockedWriter(guard)
    }

    /// Takes a writer that is free, if there is one: one that is `near` while there are some.
    pub(crate) fn try_take(&self, near: impl Fn(usize) -> bool) -> Option<T> {
        let some = |is_near| {
            let mut slots = self.slots.iter().enumerate().filter(|(slot, _)| near(*slot) == is_near);
            slots.find_map(|(_, slot)| slot.try_lock()?.take())
        };
        some(true).or_else(|| some(false))
    }

    /// As `try_take`; waits while all are leased.
    pub(crate) fn take(&self, near: impl Fn(usize) -> bool) -> T {
        loop {
            let ticket = self.returned.ticket();
            if let Some(writer) = self.try_take(&near) {
                return writer;
            }
            // Some slots may have been locked for a commit: those hold a writer.
            if let Some(writer) = self.slots.iter().find_map(|slot| slot.lock().take()) {
                return writer;
            }
            self.returned.wait(ticket);
        }
    }

    /// True when no writer is leased.
    pub(crate) fn are_all_back(&self) -> bool {
        self.slots.iter().all(|slot| slot.lock().is_some())
    }

    /// Puts the writer of `slot` back.
    pub(crate) fn put_back(&self, slot: usize, writer: T) {
        let before = self.slots[slot].lock().replace(writer);
        debug_assert!(before.is_none(), "two writers of one log");
        self.returned.notify_all();
    }
}

/// A writer that is locked for one commit.
pub(crate) struct LockedWriter<'a, T>(MutexGuard<'a, Option<T>>);

impl<T> std::ops::Deref for LockedWriter<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("the slot was full when it was locked")
    }
}

impl<T> std::ops::DerefMut for LockedWriter<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the slot was full when it was locked")
    }
}
