//! Parts of an open database belong to the process that opened it.
//!
//! A child of fork has a copy of them: locks held by threads that the child does not have and, on persistent memory,
//! the very bytes that its parent continues to write. So a child neither uses nor drops them.

use crate::status::{Failure, FailureKind, Result};
use mangrove_sys::ProcessMark;
use std::mem::ManuallyDrop;

/// A part of an open database, which only the process that created it may use.
pub(crate) struct OwnedByProcess<T> {
    process: ProcessMark,
    part: ManuallyDrop<T>,
}

impl<T> OwnedByProcess<T> {
    pub(crate) fn new(part: T) -> Self {
        Self { process: ProcessMark::here(), part: ManuallyDrop::new(part) }
    }

    #[inline]
    fn refuse_child(&self) -> Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(in_a_child()) }
    }

    #[inline]
    pub(crate) fn get(&self) -> Result<&T> {
        self.refuse_child()?;
        Ok(&self.part)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        self.refuse_child()?;
        Ok(&mut self.part)
    }
}

impl<T> Drop for OwnedByProcess<T> {
    fn drop(&mut self) {
        if self.process.is_here() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.part) };
        }
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
