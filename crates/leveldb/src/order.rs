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

    /// A number that orders keys which share their first `skip` bytes, as far as it goes: where two differ, so
    /// do the keys. Of keys that are shorter it says nothing.
    #[inline]
    pub(crate) fn prefix(&self, key: &[u8], skip: usize) -> u64 {
        if self.0.is_some() {
            return 0;
        }
        let rest = key.get(skip..).unwrap_or_default();
        match rest.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut first = [0; 8];
                first[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(first)
            }
        }
    }

    /// How many first bytes of two keys are the same, as far as they say anything about the order.
    pub(crate) fn shared(&self, a: &[u8], b: &[u8]) -> usize {
        if self.0.is_some() {
            return 0;
        }
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }
}
