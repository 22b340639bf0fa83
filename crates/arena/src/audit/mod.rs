//! What an arena holds, and whether it is sound.

pub(crate) mod check;
pub(crate) mod free_bytes;
pub(crate) mod freed_pages;
pub(crate) mod live;
