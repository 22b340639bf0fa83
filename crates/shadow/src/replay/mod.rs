//! From the logs into the durable copy, by one thread or several.

pub(crate) mod apply;
pub(crate) mod crew;
pub(crate) mod handover;
pub(crate) mod lines;
pub(crate) mod merge;
pub(crate) mod part;
pub(crate) mod replay;
pub(crate) mod rounds;
pub(crate) mod shares;
pub(crate) mod stripes;
