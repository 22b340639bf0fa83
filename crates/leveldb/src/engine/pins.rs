//! Who reads at which number: snapshots and iterators that are alive.

use crate::tree::Readers;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Numbers that are read at, each with how many readers.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<BTreeMap<u64, usize>>);

impl Pins {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, usize>> {
        // The map is whole, whoever panicked while he held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more reader at `number`. Called where no batch runs, so that none misses it.
    pub(crate) fn take(&self, number: u64) {
        *self.lock().entry(number).or_default() += 1;
    }

    /// One less.
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

    /// Between which numbers they read.
    pub(crate) fn readers(&self) -> Readers {
        let pins = self.lock();
        Readers { span: pins.first_key_value().zip(pins.last_key_value()).map(|(a, b)| (*a.0, *b.0)) }
    }
}
