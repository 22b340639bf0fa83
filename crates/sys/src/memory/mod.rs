//! Addresses, the memory behind them, and the node that it lies on.

pub(crate) mod allowed;
pub(crate) mod freed;
pub(crate) mod mapping;
pub(crate) mod mirror;
pub(crate) mod node;
pub(crate) mod page_map;
pub(crate) mod parked;
pub(crate) mod zero_pages;
