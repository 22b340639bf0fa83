//! What rings keep whose callers number the atomic groups by time stamps.

use crate::order::Order;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::OnceLock;

/// Tells up to which number every atomic group is complete.
pub(crate) type Watermark = Box<dyn Fn() -> u64 + Send + Sync>;

/// Of rings whose callers number the atomic groups.
pub(crate) struct Stamps {
    pub(crate) order: Order,
    /// The last number of the openings before.
    pub(crate) covered: u64,
    /// The callers' function, with `Order::Gaps`.
    pub(crate) watermark: OnceLock<Watermark>,
    /// The marker; its lock is held from the comparison to the fence.
    pub(crate) marker: Mutex<u64>,
}

impl Stamps {
    pub(crate) fn new(order: Order, covered: u64) -> Self {
        Self { order, covered, watermark: OnceLock::new(), marker: Mutex::new(covered) }
    }
}

/// Why a shadow with time stamps draws no number.
#[cold]
pub(crate) fn refused<T>() -> Result<T> {
    Err(Error::Unsupported { what: "this shadow's callers give the numbers; use LogLease::number_as".into() })
}
