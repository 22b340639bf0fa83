//! The fuzz targets: each takes bytes, and returns a finding or nothing. The programs in `fuzz/` and the ordinary
//! tests call the same functions.

mod log;
mod operations;
mod pool;
mod victims;

pub use log::{log_parsing, log_seeds};
pub use operations::{operations, operations_seeds};
pub use pool::{pool_opening, pool_seeds};
