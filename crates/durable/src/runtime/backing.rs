//! The one door from the runtime to the durable bytes, so that tests can stand in for them.

use crate::image::ImageStat;
use crate::{Error, Result};
use mangrove_shadow::Ticket;
use mangrove_tracker::WriteSet;

/// What [`Backing::enter`] has to tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entered {
    /// How many libraries were ever unloaded in this process: other code may be where theirs was. 0 where no
    /// tracker learns of code.
    pub(crate) unloaded: u64,
}

/// What the runtime needs of the memory that it makes durable.
pub(crate) trait Backing: Send + Sync {
    /// The calling thread is about to run write commands that report to `writes`: what it allocates
    /// until [`Backing::leave`] is persistent. Never nested, one thread at a time.
    ///
    /// # Errors
    /// The state cannot take in what has changed around it; nobody is inside.
    ///
    /// # Safety
    /// `writes` stays valid until `leave`, and nobody but this thread uses it.
    unsafe fn enter(&self, writes: *mut WriteSet) -> Result<Entered>;

    /// Ends what [`Backing::enter`] began.
    fn leave(&self);

    /// Takes the present bytes of everything persistent in `writes` into the log as one unit, does not
    /// wait for durability, and clears `writes`. One caller at a time.
    ///
    /// # Errors
    /// `NoSpace` says that nothing was taken, but memory has changed: the caller treats it as any
    /// other error. Errors of the medium latch.
    fn commit(&self, writes: &mut WriteSet) -> Result<Ticket>;

    /// Waits until the unit and all before it are durable; at once where durability is by interval.
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

    /// Waits until the unit and all before it are durable, in every durability mode.
    ///
    /// # Errors
    /// As `wait`.
    fn sync_to(&self, ticket: Ticket) -> Result<()>;

    /// Applies everything committed to the image and frees the log.
    ///
    /// # Errors
    /// The first error of the medium, which latches.
    fn checkpoint(&self) -> Result<()>;

    /// The error of the medium that latched, if any: nothing is committed any more. Cheap: each batch asks.
    fn poisoned(&self) -> Option<Error> {
        None
    }

    /// Counts everything, and says what is wrong with the state's own structures. No command runs.
    fn examine(&self) -> (ImageStat, Vec<String>) {
        (ImageStat::default(), Vec::new())
    }

    /// Checkpoints and marks the pool closed. No command runs any more.
    ///
    /// # Errors
    /// As `checkpoint`; the pool then opens by recovery.
    fn close(self: Box<Self>) -> Result<()>;

    /// Ends as by a crash, but leaves the memory where it is: something of the process may point there.
    fn give_up(self: Box<Self>) {}
}
