//! What belongs to the process that opened a database.
//!
//! A child of fork has a copy of it: locks that are held by threads which it does not have, and on persistent memory the
//! very bytes that its parent goes on writing. So nothing of it is used in a child, and nothing dropped.

use crate::status::{Failure, Kind, Result};
use mangrove_sys::ProcessMark;
use std::mem::ManuallyDrop;

/// A part of an open database, for the process that made it.
pub(crate) struct Ours<T> {
    process: ProcessMark,
    part: ManuallyDrop<T>,
}

impl<T> Ours<T> {
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

impl<T> Drop for Ours<T> {
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
        Kind::IoError,
        "the database was opened before this process was forked; use it in the parent, or close it there and open it in a \
         process that was started anew",
    )
}
