//! Pre-images for live snapshots. There are no versions in the tree: a writer that finds live snapshots saves
//! the state of its key in the newest one before it changes it.
//!
//! Invariants:
//! 1. Snapshots are taken while no writer is in the gate; so a key's state at a snapshot is its live state, or
//!    the first pre-image saved in that snapshot's overlay or a newer one's, the oldest such overlay counting.
//! 2. A reader reads the live state first and the overlays afterwards: what changed before the live read was
//!    saved before that.
//! 3. When a snapshot ends, its overlay moves into the next older one (which relies on it), under the registry's
//!    write lock; readers and savers hold the read lock.
//! 4. Too many bytes: all live snapshots expire, before the change that was not saved takes place.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Key to its value, or to nothing where it was absent.
pub(crate) type Images = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// DRAM that a pre-image takes beyond its bytes.
const IMAGE_OVERHEAD_BYTES: u64 = 96;

/// What changed since one snapshot and before the next.
#[derive(Debug)]
pub(crate) struct Overlay {
    number: u64,
    images: Mutex<Images>,
    expired: AtomicBool,
}

/// The live snapshots, oldest first.
#[derive(Debug)]
pub(crate) struct Overlays {
    list: RwLock<Vec<Arc<Overlay>>>,
    live: AtomicUsize,
    next: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
}

/// The snapshot expired.
#[derive(Debug)]
pub(crate) struct Expired;

fn image_bytes(key: &[u8], value: Option<&Vec<u8>>) -> u64 {
    (key.len() + value.map_or(0, Vec::len)) as u64 + IMAGE_OVERHEAD_BYTES
}

impl Overlays {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            list: RwLock::default(),
            live: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_max,
        }
    }

    /// True when a writer must save pre-images. Stable while the caller is in the gate, except that it may
    /// become false.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: the gate orders it after the snapshot that matters.
        self.live.load(Ordering::Relaxed) != 0
    }

    /// Live snapshots and bytes of their pre-images.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.live.load(Ordering::Relaxed) as u64, self.bytes.load(Ordering::Relaxed))
    }

    /// A new snapshot. Only while the caller has closed the gate.
    pub(crate) fn begin(&self) -> Arc<Overlay> {
        let mut list = self.list.write();
        let overlay = Arc::new(Overlay {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            images: Mutex::default(),
            expired: AtomicBool::new(false),
        });
        list.push(Arc::clone(&overlay));
        self.live.store(list.len(), Ordering::Relaxed);
        overlay
    }

    /// Ends a snapshot.
    pub(crate) fn end(&self, overlay: &Overlay) {
        let mut list = self.list.write();
        let Some(place) = list.iter().position(|o| o.number == overlay.number) else { return };
        list.remove(place);
        self.live.store(list.len(), Ordering::Relaxed);
        let images = std::mem::take(&mut *overlay.images.lock());
        let older = place.checked_sub(1).map(|i| &list[i]).filter(|o| !o.expired.load(Ordering::Relaxed));
        let mut target = older.map(|o| o.images.lock());
        for (key, value) in images {
            let bytes = image_bytes(&key, value.as_ref());
            match &mut target {
                Some(target) if !target.contains_key(&key) => {
                    target.insert(key, value);
                }
                _ => {
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
            }
        }
    }

    /// Saves the state of `key` before it changes. `state` is called when it is needed, with the bytes that it
    /// may take at most; it answers nothing when the state is larger.
    pub(crate) fn save(&self, key: &[u8], state: impl FnOnce(u64) -> Option<Option<Vec<u8>>>) {
        let list = self.list.read();
        let Some(newest) = list.last() else { return };
        if newest.expired.load(Ordering::Relaxed) {
            return;
        }
        let mut images = newest.images.lock();
        if images.contains_key(key) {
            return;
        }
        let left = self.bytes_max.saturating_sub(self.bytes.load(Ordering::Relaxed) + image_bytes(key, None));
        match state(left).filter(|_| left > 0) {
            Some(value) => {
                self.bytes.fetch_add(image_bytes(key, value.as_ref()), Ordering::Relaxed);
                images.insert(key.to_vec(), value);
            }
            None => {
                drop(images);
                for overlay in list.iter() {
                    // Release by way of the change's publication, with the Acquire in `check`.
                    overlay.expired.store(true, Ordering::SeqCst);
                    let images = std::mem::take(&mut *overlay.images.lock());
                    let bytes: u64 = images.iter().map(|(k, v)| image_bytes(k, v.as_ref())).sum();
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
            }
        }
    }

    /// The state of `key` at the snapshot: as saved, or nothing when the live state, read before this call, is
    /// the state.
    pub(crate) fn state(&self, of: &Overlay, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, Expired> {
        let list = self.list.read();
        let from = list.partition_point(|o| o.number < of.number);
        let saved = list[from..].iter().find_map(|overlay| overlay.images.lock().get(key).cloned());
        if of.expired.load(Ordering::SeqCst) { Err(Expired) } else { Ok(saved) }
    }

    /// True when no live snapshot has a pre-image, so that live states read before this call are the states at the
    /// snapshot `of`, which has not expired.
    #[inline]
    pub(crate) fn is_blank(&self, of: &Overlay) -> bool {
        // Acquire: who read a leaf as changed sees, by way of the change's publication, what was saved before it.
        self.bytes.load(Ordering::Acquire) == 0 && !of.expired.load(Ordering::Acquire)
    }

    /// The saved states of all keys between the bounds, for live states read before this call.
    pub(crate) fn states(
        &self,
        of: &Overlay,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Images, Expired> {
        let list = self.list.read();
        let from = list.partition_point(|o| o.number < of.number);
        let mut states = Images::new();
        for overlay in &list[from..] {
            let images = overlay.images.lock();
            if images.is_empty() || !is_ordered(start, end) {
                continue;
            }
            for (key, value) in images.range::<[u8], _>((start, end)) {
                states.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        if of.expired.load(Ordering::SeqCst) { Err(Expired) } else { Ok(states) }
    }
}

/// True when a `BTreeMap` would accept the bounds.
pub(crate) fn is_ordered(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Excluded(a), Bound::Excluded(b)) => a < b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a <= b,
        _ => true,
    }
}
