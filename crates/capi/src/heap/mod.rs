//! Durable transactions: the heap for C.

mod errors;
mod figures;
mod open;
mod options;

mod frame;
mod running;
mod steps;
mod transaction;

mod access;
mod blocks;
mod roots;

pub use access::*;
pub use blocks::*;
pub use figures::*;
pub use frame::*;
pub use open::*;
pub use options::*;
pub use roots::*;
pub use steps::*;
pub use transaction::*;
