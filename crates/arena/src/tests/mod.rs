//! Tests of the whole arena.

mod damage_tests;
pub(crate) mod example_tests;
mod layout_tests;
mod model_tests;
mod open_tests;
mod shard_tests;
mod sparse_tests;
mod toy_transactions;
