//! Which executor and which protocol a heap gets: by its options, its medium, its persistence domain and the machine;
//! and which of them do not go together.

use super::error::{HeapError, HeapResult};
use crate::commit::Protocol;
use crate::executor::{HardwareLimits, RECORD_BITS_MAX, STRIPE_BITS, StmOptions, ThreadLimit};
use mangrove_shadow::{MediumKind, Order, Shadow};
use std::fmt;

/// What isolates the transactions of a heap.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Executor {
    /// Ownership records, unless this machine's RTM commits transactions, the heap lies on dax or emulated, the
    /// caches are persistent (eADR) and the protocol allows it: then RTM, with SPHT-eADR. With one of the protocols
    /// that need time stamps: RTM where it commits, else one lock.
    Automatic,
    /// Ownership records, and none while only one thread has transactions (solo mode). The default; on any machine,
    /// with dense numbers.
    Records(StmOptions),
    /// Intel RTM: attempts in hardware, and one lock for those that hardware does not take. Refused where RTM commits
    /// nothing.
    Rtm,
    /// A model of transactional hardware, for tests and for at most 64 threads. It takes the way of RTM on any machine,
    /// and is slow: its times tell nothing about RTM.
    HardwareModel(HardwareLimits),
    /// One lock, for one transaction at a time, also for those that only read.
    OneLock,
}

impl Default for Executor {
    /// Ownership records.
    fn default() -> Self {
        Self::Records(StmOptions::default())
    }
}

impl From<StmOptions> for Executor {
    fn from(options: StmOptions) -> Self {
        Self::Records(options)
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Automatic => "automatic",
            Self::Records(_) => "ownership records",
            Self::Rtm => "RTM",
            Self::HardwareModel(_) => "a model of hardware",
            Self::OneLock => "one lock",
        })
    }
}

/// What the choice depends on.
#[derive(Clone, Copy)]
pub(super) struct MachineFacts {
    pub(super) medium: MediumKind,
    /// The caches are persistent; of no meaning on the file medium.
    pub(super) eadr: bool,
    /// Why RTM commits nothing here.
    pub(super) without_rtm: fn() -> Option<String>,
    /// Why time stamps order nothing here.
    pub(super) without_stamps: fn() -> Option<String>,
}

impl MachineFacts {
    /// This machine.
    pub(super) fn here(medium: MediumKind, eadr: bool) -> Self {
        let without_rtm = || (!mangrove_sys::rtm().commits()).then(|| mangrove_sys::rtm().to_string());
        Self { medium, eadr, without_rtm, without_stamps: || mangrove_sys::tsc().unusable }
    }

    /// This machine, for a shadow that is open.
    pub(super) fn of(shadow: &Shadow) -> Self {
        let domain = shadow.stat().pool.and_then(|pool| pool.domain);
        let eadr = domain.is_some_and(|domain| domain.eadr) || shadow.order() == Order::Gaps;
        Self::here(shadow.medium(), eadr)
    }

    fn has_rtm(&self) -> bool {
        (self.without_rtm)().is_none()
    }

    fn has_stamps(&self) -> bool {
        self.medium != MediumKind::File && (self.without_stamps)().is_none()
    }
}

/// An executor and a protocol that go together, and how the shadow must be opened for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Not `Automatic`.
    pub(super) executor: Executor,
    /// `Automatic`: dense numbers, or the file medium's group commit.
    pub(super) protocol: Protocol,
    /// None: by the domain of the opened pool.
    pub(super) order: Option<Order>,
}

fn refused<T>(what: String) -> HeapResult<T> {
    Err(HeapError::Invalid { what })
}

impl Choice {
    /// For a heap opened read-only, which has no protocol.
    ///
    /// # Errors
    /// `Invalid` for options out of their range.
    pub(super) fn read_only(executor: Executor) -> HeapResult<Self> {
        let executor = if let Executor::Records(_) = executor { executor } else { Executor::default() };
        let choice = Self { executor, protocol: Protocol::Automatic, order: None };
        choice.refuse_options()?;
        Ok(choice)
    }

    /// What these wishes come to on `machine`.
    ///
    /// # Errors
    /// `Invalid`, with what would work, for a pair that does not go together or not here.
    pub(super) fn new(
        executor: Executor,
        protocol: Protocol,
        order: Option<Order>,
        machine: &MachineFacts,
    ) -> HeapResult<Self> {
        let protocol = Self::protocol(executor, protocol, order, machine);
        let executor = match executor {
            Executor::Automatic if !protocol.is_stamped() => Executor::default(),
            Executor::Automatic if machine.has_rtm() => Executor::Rtm,
            Executor::Automatic => Executor::OneLock,
            executor => executor,
        };
        let executor = match executor {
            // There a commit waits for the device, not for a processor: more threads share one write.
            Executor::Records(options)
                if machine.medium == MediumKind::File && options.threads == ThreadLimit::Found =>
            {
                Executor::Records(StmOptions { threads: ThreadLimit::Unlimited, ..options })
            }
            executor => executor,
        };
        let choice = Self { executor, protocol, order: protocol.order().or(order) };
        choice.refuse(order, machine)?;
        Ok(choice)
    }

    /// The protocol that is meant: the stamped ones are the automatic choice for hardware, whose transactions would
    /// otherwise all store to the line of one counter.
    fn protocol(
        executor: Executor,
        protocol: Protocol,
        order: Option<Order>,
        machine: &MachineFacts,
    ) -> Protocol {
        let Protocol::Automatic = protocol else { return protocol };
        let order = order.unwrap_or(if machine.eadr { Order::Gaps } else { Order::Marker });
        match (executor, order) {
            (Executor::Rtm | Executor::HardwareModel(_), Order::Gaps) if machine.has_stamps() => {
                Protocol::SphtEadr
            }
            (Executor::Rtm | Executor::HardwareModel(_), Order::Marker) if machine.has_stamps() => {
                Protocol::Spht
            }
            // Not on ADR: the records were faster there at up to four writes, and solo mode always.
            (Executor::Automatic, Order::Gaps)
                if machine.eadr && machine.has_rtm() && machine.has_stamps() =>
            {
                Protocol::SphtEadr
            }
            _ => Protocol::Automatic,
        }
    }

    /// Refuses options of the executor that are out of their range.
    fn refuse_options(&self) -> HeapResult<()> {
        match self.executor {
            Executor::Records(options) if !options.are_in_range() => refused(format!(
                "record_bits is 0 to {RECORD_BITS_MAX}, and stripe_bits {} to {}; they are {} and {}",
                STRIPE_BITS.start(),
                STRIPE_BITS.end(),
                options.record_bits,
                options.stripe_bits
            )),
            Executor::HardwareModel(limits) if limits.write_sets == 0 => {
                refused("the model of hardware needs at least one cache set (write_sets)".into())
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, order: Option<Order>, machine: &MachineFacts) -> HeapResult<()> {
        self.refuse_options()?;
        let Self { executor, protocol, .. } = self;
        if let Protocol::HtmSgl = protocol {
            return refused(format!(
                "the protocol {protocol} works in place, without the working copy of a heap; use InPlaceMemory, or another protocol"
            ));
        }
        if let Executor::Rtm = executor
            && let Some(why) = (machine.without_rtm)()
        {
            return refused(format!(
                "this machine runs no transactions in hardware ({why}); use the executor with ownership records, or the automatic one"
            ));
        }
        if machine.medium == MediumKind::File && *protocol != Protocol::Automatic {
            return refused(format!(
                "the protocol {protocol} is for the media dax and emulated; on the file medium use the automatic one"
            ));
        }
        if order == Some(Order::Marker) && *protocol != Protocol::Spht {
            return refused(
                "Order::Marker belongs to the protocol SPHT; choose that protocol, or Order::Dense or Order::Gaps"
                    .into(),
            );
        }
        if let (Some(asked), Some(needed)) = (order, protocol.order())
            && asked != needed
        {
            return refused(format!(
                "the protocol {protocol} needs Order::{needed:?}, not Order::{asked:?}; leave the order to the protocol"
            ));
        }
        if !protocol.is_stamped() {
            return Ok(());
        }
        if let Executor::Records(_) = executor {
            return refused(format!(
                "the protocol {protocol} orders commits by time stamps, and ownership records need dense numbers; \
                 use the executor with one lock or RTM, or the protocol one fence (dense numbers)"
            ));
        }
        if protocol.order() == Some(Order::Gaps) && !machine.eadr {
            return refused(format!(
                "the protocol {protocol} is right only where the caches are persistent (eADR), and this heap has ADR; \
                 use the protocol SPHT, or one fence (dense numbers)"
            ));
        }
        if let Some(why) = (machine.without_stamps)() {
            return refused(format!(
                "the protocol {protocol} orders commits by the time stamp counter, which cannot be used here: {why}; \
                 use the protocol one fence (dense numbers)"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: fn() -> Option<String> = || None;
    const NOWHERE: fn() -> Option<String> = || Some("there is none".into());

    fn machine(medium: MediumKind, eadr: bool, rtm: bool, stamps: bool) -> MachineFacts {
        let here = |yes| if yes { HERE } else { NOWHERE };
        MachineFacts { medium, eadr, without_rtm: here(rtm), without_stamps: here(stamps) }
    }

    fn chosen(executor: Executor, protocol: Protocol, machine: &MachineFacts) -> Result<String, String> {
        Choice::new(executor, protocol, None, machine)
            .map(|choice| format!("{}, {}", choice.executor, choice.protocol))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_out_of_range_are_refused_before_anything_is_made() {
        let here = machine(MediumKind::Emulated, false, false, true);
        let records = |record_bits, stripe_bits| {
            Executor::Records(StmOptions { record_bits, stripe_bits, ..StmOptions::default() })
        };
        for executor in [
            records(29, 5),
            records(18, 2),
            records(18, 13),
            Executor::HardwareModel(HardwareLimits { write_sets: 0, ..HardwareLimits::default() }),
        ] {
            chosen(executor, Protocol::Automatic, &here).unwrap_err();
        }
        let refused = chosen(Executor::OneLock, Protocol::HtmSgl, &here).unwrap_err();
        assert!(refused.contains("in place"), "{refused}");
        chosen(records(0, 12), Protocol::Automatic, &here).unwrap();
        for executor in [records(29, 5), records(18, 2), records(18, 13)] {
            Choice::read_only(executor).unwrap_err();
        }
        Choice::read_only(records(0, 12)).unwrap();
    }

    #[test]
    fn threads_that_wait_for_the_device_are_not_limited() {
        for (medium, expected) in
            [(MediumKind::File, ThreadLimit::Unlimited), (MediumKind::Emulated, ThreadLimit::Found)]
        {
            let here = machine(medium, false, false, true);
            let choice = Choice::new(Executor::default(), Protocol::Automatic, None, &here).unwrap();
            let Executor::Records(options) = choice.executor else { panic!("{}", choice.executor) };
            assert_eq!(options.threads, expected);
        }
    }

    #[test]
    fn the_automatic_executor_follows_medium_domain_and_machine() {
        let records = Ok("ownership records, automatic".to_owned());
        let rtm = Ok("RTM, SPHT-eADR".to_owned());
        for (medium, eadr, has_rtm, stamps, expected) in [
            (MediumKind::Dax, true, true, true, &rtm),
            (MediumKind::Emulated, true, true, true, &rtm),
            (MediumKind::Dax, true, false, true, &records),
            (MediumKind::Dax, true, true, false, &records),
            (MediumKind::Dax, false, true, true, &records),
            (MediumKind::File, true, true, true, &records),
        ] {
            let machine = machine(medium, eadr, has_rtm, stamps);
            assert_eq!(&chosen(Executor::Automatic, Protocol::Automatic, &machine), expected, "{medium}");
            assert_eq!(chosen(Executor::default(), Protocol::Automatic, &machine), records, "{medium}");
        }
        let all = machine(MediumKind::Dax, true, true, true);
        let choice = Choice::new(Executor::Automatic, Protocol::Automatic, Some(Order::Dense), &all).unwrap();
        assert!(matches!((choice.executor, choice.order), (Executor::Records(_), Some(Order::Dense))));
        for (has_rtm, expected) in [(true, "RTM, SPHT"), (false, "one lock, SPHT")] {
            let adr = machine(MediumKind::Dax, false, has_rtm, true);
            assert_eq!(chosen(Executor::Automatic, Protocol::Spht, &adr).as_deref(), Ok(expected));
            assert_eq!(
                chosen(Executor::Automatic, Protocol::OneFence, &adr).as_deref(),
                Ok("ownership records, one fence")
            );
        }
    }

    #[test]
    fn hardware_gets_time_stamps_where_there_are_any() {
        let model = Executor::HardwareModel(HardwareLimits::default());
        for (eadr, medium, stamps, expected) in [
            (true, MediumKind::Emulated, true, "SPHT-eADR"),
            (false, MediumKind::Emulated, true, "SPHT"),
            (true, MediumKind::Emulated, false, "automatic"),
            (true, MediumKind::File, true, "automatic"),
        ] {
            let machine = machine(medium, eadr, true, stamps);
            let rtm = chosen(Executor::Rtm, Protocol::Automatic, &machine);
            assert_eq!(rtm, Ok(format!("RTM, {expected}")));
            let model = chosen(model, Protocol::Automatic, &machine);
            assert_eq!(model, Ok(format!("a model of hardware, {expected}")));
            let lock = chosen(Executor::OneLock, Protocol::Automatic, &machine);
            assert_eq!(lock.as_deref(), Ok("one lock, automatic"));
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_by_name() {
        let adr = machine(MediumKind::Dax, false, true, true);
        let eadr = machine(MediumKind::Dax, true, true, true);
        let file = machine(MediumKind::File, false, true, true);
        let without_rtm = machine(MediumKind::Dax, true, false, true);
        let without_stamps = machine(MediumKind::Dax, true, true, false);
        let records = Executor::default();
        for (executor, protocol, machine, words) in [
            (Executor::Rtm, Protocol::Automatic, &without_rtm, ["there is none", "with ownership records"]),
            (records, Protocol::Spht, &eadr, ["protocol SPHT ", "the executor with one lock"]),
            (Executor::OneLock, Protocol::SphtEadr, &adr, ["SPHT-eADR is", "use the protocol SPHT,"]),
            (Executor::OneLock, Protocol::SphtEadrFlush, &adr, ["with flushes is", "or one fence"]),
            (Executor::OneLock, Protocol::Spht, &file, ["the protocol SPHT is for", "the automatic one"]),
            (Executor::OneLock, Protocol::OneFence, &file, ["one fence is for", "the automatic one"]),
            (Executor::OneLock, Protocol::Spht, &without_stamps, ["there is none", "the protocol one fence"]),
        ] {
            let refused = chosen(executor, protocol, machine).unwrap_err();
            assert!(words.iter().all(|word| refused.contains(word)), "{executor} {protocol}: {refused}");
            assert!(!refused.contains("::"), "programs in C read it, too: {refused}");
        }
        for (protocol, order, word) in [
            (Protocol::SphtEadr, Order::Marker, "the protocol SPHT;"),
            (Protocol::OneFence, Order::Marker, "the protocol SPHT;"),
            (Protocol::Spht, Order::Gaps, "needs Order::Marker"),
            (Protocol::SphtEadr, Order::Dense, "needs Order::Gaps"),
        ] {
            let refused = Choice::new(Executor::OneLock, protocol, Some(order), &eadr).unwrap_err();
            assert!(refused.to_string().contains(word), "{protocol} {order}: {refused}");
        }
    }
}
