//! Parts of an open database belong to the process that opened it.
//!
//! A child of fork has a copy of them: locks held by threads that the child does not have and, on persistent memory,
//! the very bytes that its parent continues to write. So a child neither uses nor drops them.

use crate::status::{Failure, FailureKind, Result};
use mangrove_sys::LeftInChild;

/// A part of an open database, which only the process that created it may use.
pub(crate) struct OwnedByProcess<T>(LeftInChild<T>);

impl<T> OwnedByProcess<T> {
    pub(crate) fn new(part: T) -> Self {
        Self(LeftInChild::new(part))
    }

    #[inline]
    fn refuse_child(&self) -> Result<()> {
        if self.0.is_here() { Ok(()) } else { Err(in_a_child()) }
    }

    #[inline]
    pub(crate) fn get(&self) -> Result<&T> {
        self.refuse_child()?;
        Ok(&self.0)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        self.refuse_child()?;
        Ok(&mut self.0)
    }
}

#[cold]
fn in_a_child() -> Failure {
    Failure::new(
        FailureKind::IoError,
        "the database was opened before this process was forked; use it in the parent, or close it there and open \
         it in a process that was started anew",
    )
}
