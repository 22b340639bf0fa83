//! Snapshots and walks that own their map, for threads, async tasks and languages without lifetimes.
//!
//! The engine's snapshots and walks borrow the engine. Here the borrow is stretched to `'static`, and an `Arc` of the
//! map goes with it.
//!
//! Invariants:
//! 1. [`Snapshot`] and [`Range`] hold the borrower *above* its owner: fields drop in order, so the borrower goes first.
//! 2. The map lies in an `Arc`: its address does not change, and nothing moves out of it while the `Arc` is shared.
//! 3. What is stretched stays inside the two types. They return copies, and slices for the time of a call.

#![expect(unsafe_code, reason = "the borrow of an Arc's contents is stretched to 'static")]

use crate::{Map, Range, Result, Snapshot};
use std::ops::RangeBounds;
use std::sync::Arc;

impl Map {
    /// As [`Map::snapshot`], but the snapshot owns a share of the map, so that it can go to another thread or outlive
    /// the variable that holds the map. Its ranges own a share, too.
    ///
    /// The map is closed when its last share is dropped.
    ///
    /// ```
    /// # fn main() -> mangrove::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("mangrove-doc-owned-{}", std::process::id()));
    /// use mangrove::Map;
    /// use std::sync::Arc;
    ///
    /// let map = Arc::new(Map::open(&dir)?);
    /// map.put("tide", "low")?;
    /// let before = map.snapshot_owned()?;
    /// let reader = std::thread::spawn(move || before.get("tide"));
    /// map.put("tide", "high")?;
    /// assert_eq!(reader.join().unwrap()?.as_deref(), Some(&b"low"[..]));
    /// # drop(map);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Map::snapshot`].
    pub fn snapshot_owned(self: &Arc<Self>) -> Result<Snapshot<'static>> {
        // SAFETY: the snapshot borrows `**self`, and an Arc of it goes into the snapshot, below the borrower
        // (invariants 1 to 3).
        let map: &'static Map = unsafe { &*Arc::as_ptr(self) };
        Ok(map.snapshot()?.owning(Arc::<Self>::clone(self)))
    }

    /// As [`Map::range`], but the walk owns a share of the map. See [`Map::snapshot_owned`].
    ///
    /// # Errors
    /// As [`Map::range`].
    pub fn range_owned<K: AsRef<[u8]>>(
        self: &Arc<Self>,
        range: impl RangeBounds<K>,
    ) -> Result<Range<'static>> {
        // SAFETY: as above.
        let map: &'static Map = unsafe { &*Arc::as_ptr(self) };
        Ok(map.range(range)?.owning(Some(Arc::<Self>::clone(self))))
    }
}
