//! The verdict on what recovery found: models and linearizability.

pub mod history;
pub(super) mod judge;
pub mod linear;
