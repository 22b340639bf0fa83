//! The batch numbers at which snapshots and iterators read.

use crate::tree::tree::Readers;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Each number that is read at, with its count of readers.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<BTreeMap<u64, usize>>);

impl Pins {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, usize>> {
        // The map is whole even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reader at `number`. Called while no batch runs, so that no batch misses the reader.
    pub(crate) fn take(&self, number: u64) {
        *self.lock().entry(number).or_default() += 1;
    }

    /// Removes a reader at `number`.
    pub(crate) fn release(&self, number: u64) {
        let mut pins = self.lock();
        if let Some(count) = pins.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&number);
            }
        }
    }

    /// Readers alive.
    pub(crate) fn count(&self) -> u64 {
        self.lock().values().sum::<usize>() as u64
    }

    /// The numbers that are read at.
    pub(crate) fn readers(&self) -> Readers {
        Readers::at(self.lock().keys().copied())
    }
}
