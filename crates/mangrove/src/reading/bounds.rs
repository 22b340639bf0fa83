//! Bounds of walks over keys, and the end of a prefix.

use std::ops::{Bound, RangeBounds};

/// The first key after all keys that begin with `prefix`; `None` when there is no such key. It is the excluded end of
/// a range over those keys, as [`crate::Map::prefix`] walks it.
///
/// ```
/// assert_eq!(mangrove::prefix_end(b"tide/").as_deref(), Some(&b"tide0"[..]));
/// assert_eq!(mangrove::prefix_end(b"\xff"), None);
/// ```
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The bounds of the keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(prefix.to_vec()), prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded))
}

pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

pub(crate) fn bounds<'a, K: AsRef<[u8]> + 'a>(range: &'a impl RangeBounds<K>) -> Bounds<'a> {
    (range.start_bound().map(K::as_ref), range.end_bound().map(K::as_ref))
}
