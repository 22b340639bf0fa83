//! Ordered walks.

use crate::Result;
use std::marker::PhantomData;

/// An ordered walk over the records that were there when it was made: writes during the walk do
/// not show. Holds a snapshot until dropped. From both ends.
///
/// Each step costs a few tens of nanoseconds plus the copy of key and value.
pub struct Range<'map> {
    pub(crate) inner: crate::temporary::Walk,
    pub(crate) _map: PhantomData<&'map ()>,
}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl Iterator for Range<'_> {
    /// A record, or why there can be no more: [`crate::Error::Corrupt`] or
    /// [`crate::Error::SnapshotExpired`]. After an error the walk is over.
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next().map(Ok)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.inner.next_back().map(Ok)
    }
}
