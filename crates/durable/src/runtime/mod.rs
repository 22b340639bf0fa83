//! The runtime: clients, flat combining, batches and their commit.

pub(super) mod backing;
pub(super) mod batch;
#[cfg(test)]
mod batch_tests;
pub(super) mod combiner;
pub(super) mod fake;
pub(super) mod notifier;
pub(super) mod open_batch;
pub(super) mod runtime;
#[cfg(test)]
pub(super) mod runtime_tests;
pub(super) mod slots;
#[cfg(test)]
pub(super) mod slots_tests;
pub(super) mod sync;
mod upkeep;
