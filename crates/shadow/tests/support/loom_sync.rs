//! What `src` finds as `crate::sync` in the models: loom's atomics and mutexes, an event count made of them, and faults
//! that a model injects.

#![allow(dead_code, reason = "each model uses a part of it")]

use loom::sync::MutexGuard as Guard;
use std::cell::Cell;

pub(crate) use std::sync::atomic::Ordering;

pub(crate) type MutexGuard<'a, T> = Guard<'a, T>;

std::thread_local! {
    /// The injected fault: an ordering that has no effect.
    pub(super) static WEAK: Cell<Option<Ordering>> = const { Cell::new(None) };
    /// The injected fault: notifying does nothing, and a thread that waits calls this instead.
    pub(super) static SILENT: Cell<Option<fn()>> = const { Cell::new(None) };
}

fn order(order: Ordering) -> Ordering {
    if WEAK.get() == Some(order) { Ordering::Relaxed } else { order }
}

pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, o: Ordering) -> u64 {
        self.0.load(order(o))
    }

    pub(crate) fn store(&self, value: u64, o: Ordering) {
        self.0.store(value, order(o));
    }

    pub(crate) fn fetch_max(&self, value: u64, o: Ordering) -> u64 {
        self.0.fetch_max(value, order(o))
    }

    pub(crate) fn fetch_add(&self, value: u64, o: Ordering) -> u64 {
        self.0.fetch_add(value, order(o))
    }
}

/// Not weakened.
pub(crate) type AtomicBool = loom::sync::atomic::AtomicBool;

/// A mutex with the interface of parking_lot.
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// Wakes those that wait with a ticket drawn before the notification. (If no thread wakes another one, loom finds none
/// that can run, and fails.)
pub(crate) struct EventCount {
    count: loom::sync::Mutex<u64>,
    changed: loom::sync::Condvar,
}

impl EventCount {
    pub(crate) fn new() -> Self {
        Self { count: loom::sync::Mutex::new(0), changed: loom::sync::Condvar::new() }
    }

    pub(crate) fn ticket(&self) -> u64 {
        *self.count.lock().unwrap()
    }

    pub(crate) fn wait(&self, ticket: u64) {
        if let Some(lost) = SILENT.get() {
            return lost();
        }
        let mut count = self.count.lock().unwrap();
        while *count == ticket {
            count = self.changed.wait(count).unwrap();
        }
    }

    pub(crate) fn notify_all(&self) {
        if SILENT.get().is_none() {
            *self.count.lock().unwrap() += 1;
            self.changed.notify_all();
        }
    }
}
