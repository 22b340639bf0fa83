//! What a runtime and its state report about themselves.

use crate::Error;
use mangrove_arena::ArenaStat;
use mangrove_shadow::Ticket;
use std::time::Duration;

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
    /// Those of the state and its log.
    pub state: StateCounts,
}

/// Cheap counters of a state and its log, since the opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateCounts {
    /// Ranges of bytes that were committed.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of it in use.
    pub log_used: u64,
    /// Time since the last checkpoint, or the opening; zero where the log is applied all the time (persistent
    /// memory).
    pub checkpoint_age: Duration,
    /// Persistent blocks that were freed outside commands and wait for the next batch.
    pub waiting_frees: u64,
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
