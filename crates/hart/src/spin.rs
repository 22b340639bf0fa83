//! A lock for a few instructions, that costs one atomic operation and a store where a mutex costs two.
//!
//! For data that one thread uses at a time almost always: the allocator's shards.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Data behind a spin lock.
#[derive(Debug, Default)]
pub(crate) struct Spin<T> {
    locked: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Spin<T> {}

/// The right to the data.
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a Spin<T>,
}

impl<T> Spin<T> {
    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        let mut tries = 0u32;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            tries += 1;
            if tries < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    /// The lock, if nobody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire, with the Release of `drop`: we see what the last owner did.
        (!self.locked.swap(true, Ordering::Acquire)).then(|| SpinGuard { lock: self })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release, with the Acquire of `try_lock`.
        self.lock.locked.store(false, Ordering::Release);
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.lock.data.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let lock = Spin::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *lock.lock() += 1));
            }
        });
        let held = lock.lock();
        assert_eq!(*held, 80_000);
        assert!(lock.try_lock().is_none());
    }
}
