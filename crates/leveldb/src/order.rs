//! The order of keys: byte by byte, or by a comparator of the program's.

use crate::objects::Comparator;
use std::cmp::Ordering;

/// An order, and how far a number says it.
pub(crate) struct KeyOrder(Option<Comparator>);

impl KeyOrder {
    /// By the comparator, if there is one.
    pub(crate) fn new(comparator: Option<Comparator>) -> Self {
        Self(comparator)
    }

    #[inline]
    pub(crate) fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.0 {
            None => a.cmp(b),
            Some(comparator) => comparator.compare(a, b),
        }
    }

    /// A number that orders keys as far as it goes: where two differ, so do the keys.
    #[inline]
    pub(crate) fn prefix(&self, key: &[u8]) -> u64 {
        if self.0.is_some() {
            return 0;
        }
        match key.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut first = [0; 8];
                first[..key.len()].copy_from_slice(key);
                u64::from_be_bytes(first)
            }
        }
    }
}
