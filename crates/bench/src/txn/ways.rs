//! Executor and protocol: each pair that a machine can run is one line here.

use super::place::Place;
use mangrove_txn::{HeapLog, Htm, Isolation, Sgl, Stm, StmOptions, TxCounts};
use std::sync::Arc;

/// What is done with an executor, whichever it is.
pub(super) trait Job {
    type Answer;

    fn run<E: Isolation>(&self, executor: &E) -> anyhow::Result<Self::Answer>;
}

/// An executor. The protocol is the pool's: one fence and dense numbers on ADR, no fence and gaps on eADR.
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
}

impl Paths {
    /// Names and counts.
    pub(super) fn each(&self) -> [(&'static str, u64); 6] {
        [
            ("commits in hardware", self.hardware),
            ("commits beside others in software", self.software),
            ("commits under a lock, or alone after conflicts", self.lock),
            ("commits in solo mode", self.solo),
            ("attempts undone by conflicts", self.conflicts),
            ("attempts undone for capacity", self.capacity),
        ]
    }
}

impl Way {
    pub(super) const ALL: [Self; 5] =
        [Self::Records, Self::RecordsOnly, Self::OneWriter, Self::OneLock, Self::Rtm];

    /// On the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Records => "default",
            Self::RecordsOnly => "records",
            Self::OneWriter => "one-writer",
            Self::OneLock => "lock",
            Self::Rtm => "rtm",
        }
    }

    /// In the report.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Records => crate::report::report::OURS,
            Self::RecordsOnly => "no solo mode",
            Self::OneWriter => "one writer",
            Self::OneLock => "one lock",
            Self::Rtm => "RTM",
        }
    }

    /// # Errors
    /// When there is no executor of this name.
    pub(super) fn parse(name: &str) -> anyhow::Result<Self> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|way| way.name() == name.trim())
            .ok_or_else(|| anyhow::anyhow!("there is no executor '{name}'; there are {}", names()))
    }

    /// Whether this machine can run it.
    pub(super) fn runs_here(self) -> bool {
        self != Self::Rtm || mangrove_sys::rtm().commits()
    }

    /// Runs `job` on the words of `place`.
    pub(super) fn run<J: Job>(self, place: &Place, job: &J) -> anyhow::Result<J::Answer> {
        let (memory, log) = (place.memory(), HeapLog::new(Arc::clone(place.shadow())));
        let options = StmOptions::default();
        match self {
            Self::Records => job.run(&Stm::new(memory, log, options)),
            Self::RecordsOnly => job.run(&Stm::new(memory, log, StmOptions { solo_after: None, ..options })),
            Self::OneWriter => job.run(&Stm::new(memory, log, StmOptions { one_writer: true, ..options })),
            Self::OneLock => job.run(&Sgl::new(memory, log)),
            Self::Rtm => job.run(&Htm::new(memory, log)),
        }
    }

    /// What the counts of all threads together say.
    pub(super) fn paths(self, counts: &[TxCounts]) -> Paths {
        let mut paths = Paths::default();
        for count in counts {
            let beside = count.commits - count.serial - count.solo;
            // The executor with one lock counts each commit as one that ran alone.
            *(if self == Self::Rtm { &mut paths.hardware } else { &mut paths.software }) += beside;
            paths.lock += count.serial;
            paths.solo += count.solo;
            paths.conflicts += count.conflicts - count.capacity;
            paths.capacity += count.capacity;
        }
        paths
    }
}
