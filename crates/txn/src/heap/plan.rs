//! What a heap uses to isolate transactions and to make them durable, on this machine.

use super::error::HeapResult;
use super::options::HeapOptions;
use crate::commit::HeapLog;
use crate::executor::StmOptions;
use mangrove_pool::PersistenceDomain;
use mangrove_shadow::{MediumKind, Order};
use std::fmt;

/// How a heap isolates transactions, and makes them durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// What isolates transactions.
    pub executor: &'static str,
    /// How a commit becomes durable.
    pub protocol: &'static str,
    /// Which commits survive a crash.
    pub order: Order,
}

impl Plan {
    pub(super) fn new(options: &StmOptions, protocol: &'static str, order: Order) -> Self {
        let executor = match (options.measures, options.one_writer, options.solo_after) {
            (true, ..) => "software, ownership records or one writer, whichever is faster",
            (_, true, _) => "software, one writer at a time",
            (_, _, Some(_)) => "software, ownership records, none while one thread has transactions",
            (_, _, None) => "software, ownership records",
        };
        Self { executor, protocol, order }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.executor, self.protocol)
    }
}

impl HeapOptions {
    /// What a heap on this medium would use, on this machine and with these options.
    ///
    /// # Errors
    /// When an environment variable names a persistence domain that is none.
    pub fn plan(&self, medium: MediumKind) -> HeapResult<Plan> {
        let eadr = medium != MediumKind::File && PersistenceDomain::resolve(self.config.domain, None)?.eadr;
        let order = self.order.unwrap_or(if eadr { Order::Gaps } else { Order::Dense });
        Ok(Plan::new(&self.executor, HeapLog::protocol_of(medium, order), order))
    }
}
