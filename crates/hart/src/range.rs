//! Ordered iteration from both ends.

use crate::Result;
use std::marker::PhantomData;

/// Records in key order, as they were when the range was made.
#[derive(Debug)]
pub struct Range<'a> {
    pub(crate) _map: PhantomData<&'a ()>,
}

impl Range<'_> {
    /// Calls `visit` for each record left, in order, without allocating, until it answers false.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub fn for_each_ref(&mut self, _visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(())
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        None
    }
}
