//! Which crashes to try, and how to replay one.

pub(super) mod campaign;
pub(super) mod chain;
pub(super) mod sweep;
pub(super) mod token;
