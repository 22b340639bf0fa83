//! What is measured: a library of transactions, and a heap of words that it has opened.

use super::load::{TxnWork, WorkDone};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TxnDomain {
    /// Memory; caches are lost unless they were flushed.
    Adr,
    /// Caches too: nothing is flushed.
    Eadr,
}

impl TxnDomain {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Adr => "ADR",
            Self::Eadr => "eADR",
        }
    }
}

/// A library of transactions.
pub trait TxnKind {
    /// As printed.
    fn name(&self) -> &'static str;

    /// Variables that must stand in the environment when the process begins; it is measured in a child process.
    fn environment(&self, domain: TxnDomain) -> Vec<(&'static str, &'static str)>;

    /// Whether it can do this work. There is an ordered map only where the library has one.
    fn can(&self, work: TxnWork) -> bool {
        !matches!(work, TxnWork::Ordered { .. })
    }

    /// Makes a heap for this work in the folder `dir` that holds these words, or the pairs of keys and values that they
    /// are, for a machine with this domain.
    ///
    /// # Errors
    /// Those of the library.
    fn open(
        &self,
        dir: &Path,
        domain: TxnDomain,
        work: TxnWork,
        words: &[u64],
    ) -> anyhow::Result<Box<dyn TxnHeap>>;
}

/// A heap of words, for several threads.
pub trait TxnHeap: Sync {
    /// Runs transactions on the calling thread until `stop`.
    ///
    /// # Errors
    /// Those of the library.
    fn work(&self, work: TxnWork, seed: u64, stop: &AtomicBool) -> anyhow::Result<WorkDone>;

    /// All words, or pairs of keys and values in any order, while no thread works.
    fn words(&mut self) -> Vec<u64>;
}
