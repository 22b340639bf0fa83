//! What isolates transactions: ownership records with solo mode, Intel RTM, one lock, a model of hardware transactions.

mod backoff;
mod cold_code;
mod crowd;
mod entries;
mod gate;
mod hardware;
mod in_place;
mod model;
mod ownership;
mod policy;
mod retries;
mod rtm;
mod sgl;
mod solo;
mod stm;
mod stm_tx;
mod undo;
mod wakeup;

pub use crowd::ThreadLimit;
pub use in_place::InPlaceTx;
pub use model::{HardwareLimits, HardwareModel, HardwareThread, HardwareTx};
pub(crate) use ownership::{RECORD_BITS_MAX, STRIPE_BITS};
pub use retries::RetryBudget;
pub use rtm::{Htm, HtmThread};
pub use sgl::{Sgl, SglThread};
pub use stm::{StmOptions, StmThread};
pub use stm_tx::{Stm, StmTx};
