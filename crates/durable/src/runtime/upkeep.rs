//! What a program asks of the runtime beside commands: bringing the data file up to date, and giving memory and space
//! back.

use crate::runtime::runtime::{Runtime, outside_commands};
use crate::silence::is_left_out;
use crate::{Error, Result};

impl Runtime {
    /// Applies everything committed so far to the data file and frees the log, so that the next opening has less to
    /// do. It ends a load without a log ([`Options::bulk_load`](crate::Options::bulk_load)); commands and reads wait
    /// until it has ended.
    ///
    /// # Errors
    /// The medium failed, now or before; `Nested` inside a command. At the end of a load also `Nested` inside a read,
    /// `Batch` while this thread has a batch open, and the error of a batch that was not committed: then nothing is
    /// left of the load.
    pub fn checkpoint(&self) -> Result<()> {
        outside_commands()?;
        self.refuse_child()?;
        let backing = self.executor.backing();
        let done = if backing.is_loading() {
            // A load is written from memory, which holds what a command has done so far, and what a failed batch did.
            self.alone(|| self.executor.refusal().map_or_else(|| backing.checkpoint(), Err))?
        } else {
            backing.checkpoint()
        };
        done.map_err(|error| self.executor.fail(error))
    }

    /// Gives memory back while a state is loaded without a log ([`Options::bulk_load`](crate::Options::bulk_load)):
    /// parts that have been written, and that the latest commands did not change, show the data file. Does nothing
    /// otherwise. Commands and reads wait meanwhile.
    ///
    /// # Errors
    /// The medium failed, now or before; `Nested` inside a command; `Batch` while this thread has a batch open.
    pub fn page_out_loaded(&self) -> Result<()> {
        outside_commands()?;
        let given = self.alone(|| {
            // Blocks that were freed outside commands have their list in themselves, and no flush knows of that. These
            // go; those that other threads free meanwhile get their list again.
            let freed = match self.executor.refusal() {
                // Memory holds what the failed batch did, and the data file does not.
                Some(error) => Err(error),
                // SAFETY: alone, and no batch is open.
                None if self.executor.has_deferred() => unsafe { self.executor.commit_batch(0) }.map(drop),
                None => Ok(()),
            };
            freed.and_then(|()| self.executor.backing().page_out_loaded())
        })?;
        given.map_err(|error| self.executor.fail(error))
    }

    /// Gives back the memory and the disk space of pages in which nothing is in use, and returns how many bytes that
    /// were. Blocks stay where they are, so a page that holds one of many small blocks stays. Commands and reads wait
    /// meanwhile, O(pages); the space comes back by a checkpoint, which this makes beside them. Closing does the same
    /// if an eighth of the state is free. On media other than files nothing is given back.
    ///
    /// # Errors
    /// The medium failed, now or before; `Nested` inside a command; `Batch` while this thread has a batch open.
    pub fn compact(&self) -> Result<u64> {
        outside_commands()?;
        // After a failure memory may have freed what is durably in use.
        let release =
            || self.executor.refusal().map_or_else(|| self.executor.backing().release_free_pages(), Err);
        // Durable-order: what freed the pages is committed before they are released (`image/free_space.rs`).
        let given = if is_left_out() { release() } else { self.alone(release)? };
        let bytes = given.map_err(|error| self.executor.fail(error))?;
        self.checkpoint()?;
        Ok(bytes)
    }

    /// Calls `call` while no command and no read runs.
    ///
    /// # Errors
    /// `Nested` inside a command or a read; `Batch` while this thread has a batch open, and in a forked child.
    fn alone<R>(&self, call: impl FnOnce() -> R) -> Result<R> {
        self.may_wait_for_batches()?;
        if self.combiner.reads_here() {
            return Err(Error::Nested);
        }
        Ok(self.combiner.exclusive(call))
    }
}
