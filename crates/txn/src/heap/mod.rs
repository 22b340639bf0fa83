//! The durable heap: transactions on memory that comes back at its address.

mod backup;
mod check;
mod choice;
mod error;
mod executors;
mod free_space;
mod heap;
mod info;
mod layout;
mod memory_limit;
mod options;
mod plan;
mod pointer;
mod roots;
mod space;
mod stop;
mod thread;
mod ticket;
mod tx;
mod words;

pub use backup::{BackupProgress, HeapBackup};
pub use choice::Executor;
pub use error::{HeapError, HeapResult};
pub use heap::{Heap, HeapStat};
pub use info::HeapInfo;
pub use layout::{ROOT_COUNT_MAX, ROOT_NAME_BYTES_MAX};
pub use options::{HeapOptions, KIND, MEMORY_BYTES_MIN};
pub use plan::Plan;
pub use pointer::Ptr;
pub use roots::Root;
pub use stop::{Cancel, Stop};
pub use ticket::TxTicket;
pub use tx::Tx;
