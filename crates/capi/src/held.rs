//! Snapshots and walks that own what they borrow.
//!
//! The facade's `Snapshot<'map>` and `Range<'map>` borrow the map; a C handle has no lifetime. Here
//! each keeps its lender alive by reference count, and the borrow is stretched to `'static`.
//!
//! Invariants:
//! 1. A stretched borrow stands *above* its lender in the struct: fields drop in order, so the
//!    borrower goes first.
//! 2. The lender sits in an `Arc`: its address does not change when the handle moves.
//! 3. Nothing stretched leaves this file except behind `&self` or `&mut self`.

use mangrove::{Map, Range, Result, Snapshot};
use std::ops::Bound;
use std::sync::Arc;

/// Both ends of a range of keys, owned.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A snapshot and the map it is of.
pub(crate) struct HeldSnapshot {
    snapshot: Snapshot<'static>,
    /// Never read: keeps the map open and in place.
    _map: Arc<Map>,
}

const _: fn() = || {
    fn any_thread<T: Send + Sync>() {}
    any_thread::<HeldSnapshot>();
    fn one_thread_at_a_time<T: Send>() {}
    one_thread_at_a_time::<HeldWalk>();
};

impl HeldSnapshot {
    pub(crate) fn of(map: &Arc<Map>) -> Result<Arc<Self>> {
        let map = Arc::clone(map);
        let snapshot = map.snapshot()?;
        // SAFETY: the snapshot borrows `*map`, which stays in place and alive in the struct's own Arc until after
        // the snapshot is dropped (invariants 1 and 2).
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        Ok(Arc::new(Self { snapshot, _map: map }))
    }

    pub(crate) fn get(&self) -> &Snapshot<'_> {
        &self.snapshot
    }
}

/// A walk over a snapshot, and the snapshot.
pub(crate) struct HeldWalk {
    range: Range<'static>,
    /// Never read: keeps the snapshot alive and in place.
    _snapshot: Arc<HeldSnapshot>,
}

impl HeldWalk {
    pub(crate) fn over(snapshot: &Arc<HeldSnapshot>, bounds: Bounds) -> Result<Self> {
        let snapshot = Arc::clone(snapshot);
        let range = snapshot.get().range::<Vec<u8>>(bounds)?;
        // SAFETY: the range borrows `*snapshot`, which stays in place and alive in the struct's own Arc until after
        // the range is dropped (invariants 1 and 2).
        let range = unsafe { std::mem::transmute::<Range<'_>, Range<'static>>(range) };
        Ok(Self { range, _snapshot: snapshot })
    }

    pub(crate) fn range(&mut self) -> &mut Range<'static> {
        &mut self.range
    }
}
