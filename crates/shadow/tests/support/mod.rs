//! What the tests of the rings and of the leases share.

mod random;
mod scratch;

pub(crate) use random::Random;
pub(crate) use scratch::{bytes, folder};
