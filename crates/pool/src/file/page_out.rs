//! Gives memory of the working copy back: a part of it shows the data file again, so that a region can be larger than
//! the machine's memory.
//!
//! Invariants:
//! 1. The log is empty, so the data file holds every flush: the caller lets no thread flush, and no checkpoint runs
//!    (its lock is held).
//! 2. Nothing that a crash may lose is lost here earlier, except stores that were never flushed.

use crate::file::medium::FileMedium;
use crate::sync::Ordering;
use crate::{ByteRange, MediumOps, Result};

impl FileMedium {
    /// See [`MediumOps::page_out`].
    pub(crate) fn page_out_range(&self, range: ByteRange) -> Result<bool> {
        self.refuse_child()?;
        let checkpointer = self.checkpointer();
        if let Some(error) = self.poisoned() {
            return Err(error);
        }
        let (Some(fd), true, None) =
            (checkpointer.files.image.fd(), self.is_settled(), checkpointer.interrupted)
        else {
            return Ok(false);
        };
        // The data file is that long.
        let len = range.len.min(self.grown().saturating_sub(range.offset));
        if len > 0 {
            self.shows_file.store(true, Ordering::Relaxed);
            let mapped =
                self.memory().replace_by_private(range.offset as usize, len as usize, fd, range.offset);
            mapped.map_err(|e| checkpointer.files.image.error("map", &e))?;
        }
        Ok(true)
    }
}
