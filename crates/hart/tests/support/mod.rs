//! Media and data for the tests of the map.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses a part of this")]

mod counting;
mod faulty_pool;
mod random;

pub use counting::{Cost, Counting};
pub use faulty_pool::{faulty_pool, faulty_pool_with};
pub use random::Random;
