//! What a runtime and its state report about themselves.

use crate::Error;
use mangrove_arena::ArenaStat;
use mangrove_shadow::Ticket;

/// Counters since the opening, and the present condition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// Batches whose commands all ended.
    pub batches: u64,
    /// Write commands in them.
    pub commands: u64,
    /// The newest committed batch.
    pub committed: Ticket,
    /// The newest durable one.
    pub durable: Ticket,
    /// The tracker: `recompiler`, `compiler` or `explicit`.
    pub tracker: &'static str,
    /// Why writes fail from now on, if they do.
    pub failure: Option<Error>,
}

/// Counters of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageStat {
    /// What the arena holds.
    pub arena: ArenaStat,
    /// Pages of the program's variables of which something is part of the state.
    pub variable_pages: u64,
    /// Persistent blocks that were freed outside commands, in this run.
    pub freed_outside: u64,
}
