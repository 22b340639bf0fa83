//! The fuzz targets: each takes bytes, and returns a finding or nothing. The programs in `fuzz/` and the ordinary
//! tests call the same functions.

mod damage;
mod log;
mod object;
mod operations;
mod pool;
mod unclosed;
mod victims;

pub use damage::{DamageTally, damage_search, damage_seeds, damaged_pool};
pub use log::{log_parsing, log_seeds};
pub use operations::{operations, operations_seeds};
pub use pool::{pool_opening, pool_seeds};

pub use mangrove_pool::{DamageCheck, leave_out};
