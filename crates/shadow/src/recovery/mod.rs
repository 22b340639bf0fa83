//! What a crash has left in the logs.

pub(crate) mod recover;
pub(crate) mod scan;
pub(crate) mod search;
pub(crate) mod threads;
pub(crate) mod verifier;
