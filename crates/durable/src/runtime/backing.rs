//! The one door from the runtime to the durable bytes, so that tests can replace them.

use crate::stat::{ImageStat, StateCounts};
use crate::{Error, Result};
use mangrove_arena::ArenaStat;
use mangrove_shadow::Ticket;
use mangrove_tracker::WriteSet;

/// What [`Backing::enter`] reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EnterReport {
    /// How many libraries this process ever unloaded: other code may lie where theirs lay. 0 where no tracker keeps
    /// code.
    pub(crate) unloaded: u64,
}

/// What the runtime needs of the memory that it makes durable.
pub(crate) trait Backing: Send + Sync {
    /// The calling thread is about to run write commands that report to `writes`. What it allocates until
    /// [`Backing::leave`] is persistent. Never nested, one thread at a time.
    ///
    /// # Errors
    /// The state cannot record what changed in the process; no thread is inside then.
    ///
    /// # Safety
    /// `writes` stays valid until `leave`, and only this thread uses it.
    unsafe fn enter(&self, writes: *mut WriteSet) -> Result<EnterReport>;

    /// Whether the state has variables of libraries that are not loaded yet: then each read begins with
    /// [`Backing::look_for_libraries`].
    fn awaits_libraries(&self) -> bool {
        false
    }

    /// Puts the variables of awaited libraries that have come in place. Several reads may call it at a time, no command
    /// runs. Returns whether libraries are still awaited.
    ///
    /// # Errors
    /// Another build of such a library has come.
    fn look_for_libraries(&self) -> Result<bool> {
        Ok(false)
    }

    /// Ends what [`Backing::enter`] began.
    fn leave(&self);

    /// Whether [`Backing::enter`] would free blocks that were freed outside commands. Cheap.
    fn has_deferred(&self) -> bool {
        false
    }

    /// Takes the present bytes of everything persistent in `writes` into the log as one atomic group, and clears
    /// `writes`. Does not wait for durability. One caller at a time.
    ///
    /// # Errors
    /// After `NoSpace` the log has nothing of the batch, but memory has changed, so the caller treats it as any
    /// other error. An error of the medium poisons the pool.
    fn commit(&self, writes: &mut WriteSet) -> Result<Ticket>;

    /// Waits until the atomic group and all before it are durable; returns at once where durability is by interval.
    ///
    /// # Errors
    /// The medium failed first: nothing may be acknowledged.
    fn wait(&self, ticket: Ticket) -> Result<()>;

    /// Everything up to this ticket is durable. One load.
    fn durable(&self) -> Ticket;

    /// Waits until everything committed is durable, in every durability mode.
    ///
    /// # Errors
    /// As `wait`.
    fn sync(&self) -> Result<()>;

    /// Waits until the atomic group and all before it are durable, in every durability mode.
    ///
    /// # Errors
    /// As `wait`.
    fn sync_to(&self, ticket: Ticket) -> Result<()>;

    /// Applies everything committed to the data file and frees the log.
    ///
    /// # Errors
    /// The first error of the medium, which poisons the pool.
    fn checkpoint(&self) -> Result<()>;

    /// Whether a load without a log is under way: a checkpoint then ends it, and writes the memory as it is.
    fn is_loading(&self) -> bool {
        false
    }

    /// Gives back the memory of what a load without a log has written. No command runs.
    ///
    /// # Errors
    /// As `checkpoint`.
    fn page_out_loaded(&self) -> Result<()> {
        Ok(())
    }

    /// Gives back memory and space of what holds nothing in use; returns how many bytes that were. The space comes back
    /// with the next checkpoint. No command runs, and every batch is committed.
    ///
    /// # Errors
    /// As `checkpoint`.
    fn release_free_pages(&self) -> Result<u64> {
        Ok(0)
    }

    /// From now on nothing is committed: memory may hold what no atomic group took, and what is free there may be in
    /// use durably.
    fn note_failure(&self) {}

    /// The error that poisoned the pool, if any: nothing is committed any more. Cheap, since each batch asks.
    fn poisoned(&self) -> Option<Error> {
        None
    }

    /// Counts everything, and lists the faults of the state's own structures. No command runs.
    fn examine(&self) -> (ImageStat, Vec<String>) {
        (ImageStat::default(), Vec::new())
    }

    /// Outside commands the memory is read-only from now on, where a write fence is wanted.
    fn raise_fence(&self) {}

    /// Counts what the arena holds. No command runs.
    fn arena(&self) -> ArenaStat {
        ArenaStat::default()
    }

    /// Cheap counters of the state. Any thread.
    fn counts(&self) -> StateCounts {
        StateCounts::default()
    }

    /// Checkpoints and marks the pool closed. No command runs any more.
    ///
    /// # Errors
    /// As `checkpoint`; the pool then opens by recovery.
    fn close(self: Box<Self>) -> Result<()>;

    /// Ends as by a crash, but leaves the memory where it is: something of the process may point there.
    fn give_up(self: Box<Self>) {}
}
