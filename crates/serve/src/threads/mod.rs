//! The threads of a server: one accepts, some serve their clients, one waits until answers are durable.

pub(crate) mod accept;
pub(crate) mod syncer;
pub(crate) mod worker;
