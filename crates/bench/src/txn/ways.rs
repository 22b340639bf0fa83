//! Executor and protocol: each pair that a machine can run is one line here.

use super::peer::TxnDomain;
use super::place::WordPool;
use mangrove_txn::{
    HardwareLimits, HardwareModel, Htm, Isolation, Protocol, RetryBudget, Sgl, Stm, StmOptions, TxCounts,
};

/// How often the papers' protocols are tried in hardware, as the dissertation has it. The executor "rtm" finds its own
/// number.
pub(super) const RETRIES: RetryBudget = RetryBudget::Fixed(10);

/// What is done with an executor, whichever it is.
pub(super) trait ExecutorJob {
    type Answer;

    fn run<E: Isolation>(&self, executor: &E) -> anyhow::Result<Self::Answer>;
}

/// An executor and a protocol. Without time stamps the pool decides: one fence and dense numbers on ADR, no fence and
/// gaps on eADR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Ownership records, and solo mode: the default.
    Records,
    /// Ownership records only.
    RecordsOnly,
    /// One transaction writes at a time.
    OneWriter,
    /// One lock.
    OneLock,
    /// Intel RTM, and one lock.
    Rtm,
    /// One with time stamps, and so with an executor whose commits have their order.
    Stamped(Stamped, Protocol),
    /// HTM+SGL, in memory of its own (`in_place.rs`) and on eADR only.
    InPlace(Stamped),
}

/// An executor for time stamps, and for stores in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamped {
    OneLock,
    Rtm,
    Model,
}

/// Commits by the path that they took, and attempts that came to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    pub(super) hardware: u64,
    pub(super) software: u64,
    pub(super) lock: u64,
    pub(super) solo: u64,
    pub(super) conflicts: u64,
    pub(super) capacity: u64,
    pub(super) explicit: u64,
    pub(super) without_reason: u64,
}

impl Paths {
    /// Names and counts.
    pub(super) fn each(&self) -> [(&'static str, u64); 8] {
        [
            ("commits in hardware", self.hardware),
            ("commits beside others in software", self.software),
            ("commits under a lock, or alone after conflicts", self.lock),
            ("commits in solo mode", self.solo),
            ("attempts undone by conflicts", self.conflicts),
            ("attempts undone for capacity", self.capacity),
            ("attempts undone by the lock", self.explicit),
            ("attempts undone without a reason", self.without_reason),
        ]
    }
}

impl Way {
    const SPHT: [Protocol; 3] = [Protocol::Spht, Protocol::SphtEadr, Protocol::SphtEadrFlush];

    /// With the names on the command line and in the report.
    fn all() -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        let plain = [
            (Self::Records, "default", crate::report::report::OURS),
            (Self::RecordsOnly, "records", "no solo mode"),
            (Self::OneWriter, "one-writer", "one writer"),
            (Self::OneLock, "lock", "one lock"),
            (Self::Rtm, "rtm", "RTM"),
        ];
        let [lock, rtm, model] = [Stamped::OneLock, Stamped::Rtm, Stamped::Model]
            .map(|executor| Self::SPHT.map(|protocol| Self::Stamped(executor, protocol)));
        let stamped = [
            (lock[0], "lock:spht", "one lock, SPHT"),
            (lock[1], "lock:spht-eadr", "one lock, SPHT-eADR"),
            (lock[2], "lock:spht-eadr-flush", "one lock, SPHT-eADR-Flush"),
            (rtm[0], "rtm:spht", "RTM, SPHT"),
            (rtm[1], "rtm:spht-eadr", "RTM, SPHT-eADR"),
            (rtm[2], "rtm:spht-eadr-flush", "RTM, SPHT-eADR-Flush"),
            (model[0], "model:spht", "model, SPHT"),
            (model[1], "model:spht-eadr", "model, SPHT-eADR"),
            (model[2], "model:spht-eadr-flush", "model, SPHT-eADR-Flush"),
        ];
        let in_place = [
            (Self::InPlace(Stamped::OneLock), "lock:htm-sgl", "one lock, HTM+SGL"),
            (Self::InPlace(Stamped::Rtm), "rtm:htm-sgl", "RTM, HTM+SGL"),
            (Self::InPlace(Stamped::Model), "model:htm-sgl", "model, HTM+SGL"),
        ];
        plain.into_iter().chain(stamped).chain(in_place)
    }

    /// In the report.
    pub(super) fn subject(self) -> &'static str {
        Self::all().find(|(way, ..)| *way == self).map_or("?", |(_, _, subject)| subject)
    }

    /// How a pool must be opened for it.
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::Stamped(_, protocol) => protocol,
            Self::InPlace(_) => Protocol::HtmSgl,
            _ => Protocol::Automatic,
        }
    }

    /// Whether it is right in this domain.
    pub(super) fn fits(self, domain: TxnDomain) -> bool {
        domain == TxnDomain::Eadr || matches!(self.protocol(), Protocol::Automatic | Protocol::Spht)
    }

    /// # Errors
    /// When there is no executor of this name.
    pub(super) fn parse(name: &str) -> anyhow::Result<Self> {
        let names = || Self::all().map(|(_, name, _)| name).collect::<Vec<_>>().join(", ");
        Self::all()
            .find(|(_, known, _)| *known == name.trim())
            .map(|(way, ..)| way)
            .ok_or_else(|| anyhow::anyhow!("there is no executor '{name}'; there are {}", names()))
    }

    /// Whether this machine can run it.
    pub(super) fn runs_here(self) -> bool {
        let needs_rtm =
            matches!(self, Self::Rtm | Self::Stamped(Stamped::Rtm, _) | Self::InPlace(Stamped::Rtm));
        let needs_stamps = self.protocol().is_stamped();
        (!needs_rtm || mangrove_sys::rtm().commits())
            && (!needs_stamps || mangrove_sys::tsc().unusable.is_none())
    }

    /// Runs `job` on the words of `place`.
    pub(super) fn run<J: ExecutorJob>(self, place: &WordPool, job: &J) -> anyhow::Result<J::Answer> {
        let (memory, log) = (place.memory(), place.log()?);
        let options = StmOptions::default();
        match self {
            Self::Records => job.run(&Stm::new(memory, log, options)),
            Self::RecordsOnly => job.run(&Stm::new(memory, log, StmOptions { solo_after: None, ..options })),
            Self::OneWriter => job.run(&Stm::new(memory, log, StmOptions { one_writer: true, ..options })),
            Self::OneLock => job.run(&Sgl::new(memory, log)),
            Self::Rtm => job.run(&Htm::new(memory, log)),
            Self::Stamped(Stamped::Rtm, _) => job.run(&Htm::new(memory, log).with_retries(RETRIES)),
            Self::Stamped(Stamped::OneLock, _) => job.run(&Sgl::new(memory, log)),
            Self::Stamped(Stamped::Model, _) => {
                job.run(&HardwareModel::new(memory, log, HardwareLimits::default()).with_retries(RETRIES))
            }
            Self::InPlace(_) => anyhow::bail!("HTM+SGL runs in memory of its own, and in the mixes only"),
        }
    }

    /// What the counts of all threads together say.
    pub(super) fn paths(self, counts: &[TxCounts]) -> Paths {
        let mut paths = Paths::default();
        for count in counts {
            paths.hardware += count.hardware;
            // The executor with one lock counts each commit as one that ran alone.
            paths.software += count.commits - count.serial - count.solo - count.hardware;
            paths.lock += count.serial;
            paths.solo += count.solo;
            paths.conflicts += count.conflicts - count.capacity - count.explicit - count.without_reason;
            paths.capacity += count.capacity;
            paths.explicit += count.explicit;
            paths.without_reason += count.without_reason;
        }
        paths
    }
}
