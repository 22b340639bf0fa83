//! Bounds of an ordered walk over keys: which keys lie between them, and how much one fetch may take.

use std::ops::Bound;

/// A fetch ends after the record that passes this many bytes.
pub(crate) const FETCH_BYTES_MAX: usize = 256 << 10;

/// True when `key` lies after an upper bound.
#[inline]
pub(crate) fn is_beyond(key: &[u8], end: Bound<&[u8]>) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(end) => key > end,
        Bound::Excluded(end) => key >= end,
    }
}

/// True when `key` lies before a lower bound.
#[inline]
pub(crate) fn is_before(key: &[u8], start: Bound<&[u8]>) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(start) => key < start,
        Bound::Excluded(start) => key <= start,
    }
}

/// True when a `BTreeMap` would accept the bounds.
pub(crate) fn is_ordered(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Excluded(a), Bound::Excluded(b)) => a < b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a <= b,
        _ => true,
    }
}

pub(crate) fn as_slices(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
