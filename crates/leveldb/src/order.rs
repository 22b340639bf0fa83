//! The order of keys: byte by byte, or by a comparator of the program.

use crate::objects::Comparator;
use std::cell::Cell;
use std::cmp::Ordering;

thread_local! {
    /// A comparison on this thread had no answer.
    static NO_ANSWER: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the comparator which this thread calls now has no answer: it threw an exception, which ends before it
/// reaches Rust. The comparator's caller gets a number all the same, which means nothing.
pub(crate) fn note_no_answer() {
    NO_ANSWER.set(true);
}

/// The name that LevelDB stores for its own order: unsigned, byte by byte.
pub(crate) const BYTEWISE: &[u8] = b"leveldb.BytewiseComparator";

/// The order that the options ask for: its name, and its function unless it is LevelDB's own order.
#[derive(Clone)]
pub(crate) struct NamedOrder {
    pub(crate) name: Vec<u8>,
    pub(crate) comparator: Option<Comparator>,
}

impl NamedOrder {
    /// Byte by byte.
    pub(crate) fn bytewise() -> Self {
        Self { name: BYTEWISE.to_vec(), comparator: None }
    }
}

/// Which way a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// An order of keys, with numbers that decide it for most pairs of keys.
pub(crate) struct KeyOrder(Option<Comparator>);

impl KeyOrder {
    /// The comparator's order, or byte by byte.
    pub(crate) fn new(comparator: Option<Comparator>) -> Self {
        Self(comparator)
    }

    /// Byte by byte, without numbers: of what was written under a comparator of the program.
    pub(crate) fn bytewise_by_calls() -> Self {
        Self(Some(Comparator::bytewise()))
    }

    /// The order is byte by byte, with numbers.
    pub(crate) fn is_bytewise(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(crate) fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.0 {
            None => a.cmp(b),
            Some(comparator) => comparator.compare(a, b),
        }
    }

    /// True when all comparisons on this thread since the last call had an answer.
    #[inline]
    pub(crate) fn answered(&self) -> bool {
        self.0.is_none() || !NO_ANSWER.replace(false)
    }

    /// A number for keys that share their first `skip` bytes: where two numbers differ, the keys are ordered as the
    /// numbers are. For shorter keys it means nothing.
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

    /// How many first bytes the two keys share; 0 where the bytes do not determine the order.
    pub(crate) fn shared(&self, a: &[u8], b: &[u8]) -> usize {
        if self.0.is_some() {
            return 0;
        }
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }
}
