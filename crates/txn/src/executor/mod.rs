//! How isolation is got. Ownership records with solo mode, Intel RTM, one lock, and a model of transactional hardware.

mod backoff;
mod entries;
mod gate;
mod hardware;
mod model;
mod ownership;
mod policy;
mod rtm;
mod sgl;
mod solo;
mod stm;
mod stm_tx;
mod undo;
mod wakeup;

pub use model::{HardwareLimits, HardwareModel, HardwareThread, HardwareTx};
pub use rtm::{Htm, HtmThread, HtmTx};
pub use sgl::{Sgl, SglThread, SglTx};
pub use stm::{StmOptions, StmThread};
pub use stm_tx::{Stm, StmTx};
