//! Addresses and the memory behind them.

pub(crate) mod mapping;
pub(crate) mod mirror;
pub(crate) mod page_map;
pub(crate) mod parked;
