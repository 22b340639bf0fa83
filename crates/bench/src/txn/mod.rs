//! `mangrove bench txn`: transactions on shared words, beside libraries of persistent transactions.

mod args;
mod backup;
mod beside;
mod child;
mod collection;
mod context;
mod crowd;
mod endurance;
mod figures;
mod floors;
mod goals;
mod heap_words;
mod in_place;
mod load;
mod measure;
mod mix;
mod mixes;
mod opening;
mod peer;
mod place;
mod recovery;
mod run;
mod subject;
mod swaps;
mod tickets;
mod ways;
mod words;

pub use args::TxnArgs;
pub use load::{OneTransaction, TxnWork, WordAccess, WorkDone, drive};
pub use measure::verified_rate;
pub use peer::{TxnDomain, TxnHeap, TxnKind};
pub use run::run;
