//! What a runtime says about itself.

use crate::Error;
use mangrove_shadow::Ticket;

/// Counters since the opening, and the present state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// Batches that ran to their end.
    pub batches: u64,
    /// Write commands in them.
    pub commands: u64,
    /// The newest committed batch.
    pub committed: Ticket,
    /// The newest durable one.
    pub durable: Ticket,
    /// The tracker: `recompiler`, `compiler` or `explicit`.
    pub tracker: &'static str,
    /// Why nothing is written any more, if so.
    pub failure: Option<Error>,
}
