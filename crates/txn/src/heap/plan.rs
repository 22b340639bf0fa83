//! What a heap uses to isolate transactions and to make them durable, on this machine.

use super::choice::{Choice, Executor, MachineFacts};
use super::error::HeapResult;
use super::options::HeapOptions;
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
    pub(super) fn new(executor: Executor, protocol: &'static str, order: Order) -> Self {
        let executor = match executor {
            Executor::Records(options) => match (options.measures, options.one_writer, options.solo_after) {
                (true, ..) => "software, ownership records or one writer, whichever is faster",
                (_, true, _) => "software, one writer at a time",
                (_, _, Some(_)) => "software, ownership records, none while one thread has transactions",
                (_, _, None) => "software, ownership records",
            },
            Executor::Rtm => "RTM, and one lock for what hardware does not take",
            Executor::HardwareModel(_) => "a model of transactional hardware, for tests",
            Executor::OneLock => "one lock",
            Executor::Automatic => "automatic",
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
    /// The executor and the protocol on this medium, on this machine.
    pub(super) fn choice(&self, medium: MediumKind) -> HeapResult<Choice> {
        let eadr = medium != MediumKind::File && PersistenceDomain::resolve(self.config.domain, None)?.eadr;
        Choice::new(self.executor, self.protocol, self.order, &MachineFacts::here(medium, eadr))
    }

    /// What a heap on this medium would use, on this machine and with these options.
    ///
    /// # Errors
    /// `Invalid` for an executor and a protocol that do not go together, or not here; when an environment variable
    /// names a persistence domain that is none.
    pub fn plan(&self, medium: MediumKind) -> HeapResult<Plan> {
        let eadr = medium != MediumKind::File && PersistenceDomain::resolve(self.config.domain, None)?.eadr;
        let choice = self.choice(medium)?;
        let order = choice.order.unwrap_or(if eadr { Order::Gaps } else { Order::Dense });
        Ok(Plan::new(choice.executor, choice.protocol.tells(medium, order), order))
    }
}
