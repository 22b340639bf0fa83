//! What the simulator needs from an engine: the one trait that every durable structure implements.

use crate::rng::Rng;
use mangrove_pool::Region;
use std::fmt::Debug;

/// What an operation promised when it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promised {
    /// Nothing (a buffered write).
    Nothing,
    /// Everything up to and including this operation is durable.
    All,
    /// The first `n` operations of the history are durable (a read that showed their effects).
    First(u32),
}

/// An engine under test, with its reference model and its workload.
///
/// The engine works on a [`Region`]; the simulator chooses the medium under it.
pub trait Subject: Sized {
    /// One operation.
    type Op: Clone + Debug;
    /// The reference: what the structure holds after some operations.
    type Model: Clone + Default;

    /// The name in tokens and reports.
    const NAME: &'static str;

    /// Bytes of the simulated region.
    const REGION_BYTES: u64;

    /// Bytes that the region of a pool on disks may grow to.
    const DISK_BYTES: u64 = Self::REGION_BYTES;

    /// Where a pool on disks keeps its region, in every process; `None`: anywhere.
    const ADDRESS: Option<u64> = None;

    /// Pools on disks are opened by mapping the data file copy on write.
    const COPY_ON_WRITE: bool = false;

    /// Creates a structure, which is durable when this returns.
    ///
    /// # Errors
    /// Any error fails the run.
    fn create(region: Region) -> Result<Self, String>;

    /// True when a crash may have left `region` before the structure in it was complete. From its commit record on, a
    /// structure must be recovered, even if its creation did not return.
    fn is_unfinished(_region: &Region) -> bool {
        true
    }

    /// Recovers the structure that a crash left in `region`.
    ///
    /// # Errors
    /// A violation, unless the crash came before creation returned and the structure is unfinished.
    fn recover(region: Region) -> Result<Self, String>;

    /// Whether `recover` found the structure, and did not make it anew.
    fn was_there(&self) -> bool {
        true
    }

    /// Runs an operation, checks its answer against the model before it, and returns what it promised. `index` is
    /// its place in the history.
    ///
    /// # Errors
    /// A wrong answer or an unexpected error of the engine, as a message.
    fn apply(&mut self, index: u32, op: &Self::Op, before: &Self::Model) -> Result<Promised, String>;

    /// Applies an operation to the model. `index` is its place in the history.
    fn advance(model: &mut Self::Model, index: u32, op: &Self::Op);

    /// For an operation that runs another one inside itself: the states between the one before it and the one after
    /// it. If the inner one has returned (`inner`): every state that is still allowed.
    fn between(_before: &Self::Model, _index: u32, _op: &Self::Op, _inner: bool) -> Vec<Self::Model> {
        Vec::new()
    }

    /// For an operation that runs another one inside itself, and was acknowledged while that one still runs: every
    /// state that is still allowed. Empty where no acknowledgement is told (`during`).
    fn after_outer(_before: &Self::Model, _index: u32, _op: &Self::Op) -> Vec<Self::Model> {
        Vec::new()
    }

    /// Forgets positions in a history that is over: the next operation has index 0.
    fn rebase(model: &mut Self::Model);

    /// Compares everything that the structure holds with the model. `Ok(false)` means that it holds another state, or
    /// that its answers contradict each other; an error means that the structure is damaged, whatever the model.
    ///
    /// # Errors
    /// The engine's own check failed.
    fn holds(&self, model: &Self::Model) -> Result<bool, String>;

    /// A message on how the structure differs from the model.
    fn difference(&self, model: &Self::Model) -> String;

    /// The engine's own consistency check.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), String>;

    /// How many scenarios there are; [`Subject::workload`] takes a number below.
    fn scenario_count() -> u32;

    /// The name of a scenario.
    fn scenario_name(scenario: u32) -> &'static str;

    /// The operations of one run.
    fn workload(scenario: u32, rng: &mut Rng) -> Vec<Self::Op>;

    /// A few operations to continue with after a recovery.
    fn follow_up(rng: &mut Rng, recovered: &Self::Model) -> Vec<Self::Op>;
}
