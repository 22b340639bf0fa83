//! `mangrove bench txn`: transactions on shared words, beside libraries of persistent transactions.

mod args;
mod child;
mod floors;
mod load;
mod measure;
mod peer;
mod run;
mod subject;

pub use args::TxnArgs;
pub use load::{OneTransaction, TxnWork, WordAccess, WorkDone, drive};
pub use measure::verified_rate;
pub use peer::{TxnDomain, TxnHeap, TxnKind};
pub use run::run;
