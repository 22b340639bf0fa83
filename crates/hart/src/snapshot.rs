//! An instant to read from while writers go on.

use crate::{Range, Result};
use std::marker::PhantomData;
use std::ops::Bound;

/// The map as it was at one instant.
#[derive(Debug)]
pub struct Snapshot<'a> {
    _map: PhantomData<&'a ()>,
}

impl Snapshot<'_> {
    /// The value that `key` had.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// The records between the bounds.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub fn range(&self, _start: Bound<&[u8]>, _end: Bound<&[u8]>) -> Result<Range<'_>> {
        Ok(Range { _map: PhantomData })
    }
}
