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
//! 5. Pre-images can be millions: they are freed under no lock that a writer may wait for. A writer, which has a node
//!    locked where it finds that they must go, leaves them to the writers after it, each of which frees some
//!    ([`Overlays::sweep`]), and to the end of a snapshot.

use crate::index::Direction;
use crate::range::FETCH_BYTES_MAX;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Key to its value, or to nothing where it was absent.
pub(crate) type Images = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The pre-images that one writer frees of those that expired: some hundred microseconds.
const SWEEP_COUNT_MAX: usize = 1000;
/// DRAM that a pre-image takes beyond its bytes.
const IMAGE_OVERHEAD_BYTES: u64 = 96;

/// Pre-images, and the DRAM that they are counted with.
#[derive(Debug, Default)]
struct Saved {
    images: Images,
    bytes: u64,
}

/// What changed since one snapshot and before the next.
#[derive(Debug)]
pub(crate) struct Overlay {
    number: u64,
    saved: Mutex<Saved>,
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
    /// Of snapshots that expired; counted no more, to be freed.
    garbage: Mutex<Vec<Images>>,
    /// There is some. Changed under its lock.
    has_garbage: AtomicBool,
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
            garbage: Mutex::default(),
            has_garbage: AtomicBool::new(false),
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
            saved: Mutex::default(),
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
        let saved = std::mem::take(&mut *overlay.saved.lock());
        let older = place.checked_sub(1).map(|i| &list[i]).filter(|o| !o.expired.load(Ordering::Relaxed));
        let (bytes, unused) = match older {
            Some(older) => (older.saved.lock().absorb(saved), None),
            None => (saved.bytes, Some(saved.images)),
        };
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        drop(list);
        // Only now: invariant 5.
        drop(unused);
        self.free_garbage();
    }

    /// True when there is something to sweep.
    #[inline]
    pub(crate) fn has_garbage(&self) -> bool {
        self.has_garbage.load(Ordering::Relaxed)
    }

    /// Frees some of what expired, in one thread at a time. The caller has no lock.
    #[cold]
    pub(crate) fn sweep(&self) {
        let images = {
            let mut garbage = self.garbage.lock();
            let images = garbage.pop();
            self.has_garbage.store(!garbage.is_empty(), Ordering::Relaxed);
            images
        };
        let Some(mut images) = images else { return };
        std::iter::from_fn(|| images.pop_first()).take(SWEEP_COUNT_MAX).for_each(drop);
        if images.is_empty() {
            return;
        }
        {
            let mut garbage = self.garbage.lock();
            garbage.push(images);
            self.has_garbage.store(true, Ordering::Relaxed);
        }
        if !self.any() {
            // The last snapshot may have ended meanwhile, and there may be no other writer.
            self.free_garbage();
        }
    }

    /// Frees all that expired. The caller has no lock.
    fn free_garbage(&self) {
        let mut garbage = self.garbage.lock();
        self.has_garbage.store(false, Ordering::Relaxed);
        let all = std::mem::take(&mut *garbage);
        drop(garbage);
        drop(all);
    }

    /// Saves the state of `key` before it changes. `state` is called when it is needed, with the bytes that it
    /// may take at most; it answers nothing when the state is larger.
    pub(crate) fn save(&self, key: &[u8], state: impl FnOnce(u64) -> Option<Option<Vec<u8>>>) {
        let list = self.list.read();
        let Some(newest) = list.last() else { return };
        if newest.expired.load(Ordering::Relaxed) {
            return;
        }
        let mut saved = newest.saved.lock();
        if saved.images.contains_key(key) {
            return;
        }
        let left = self.bytes_max.saturating_sub(self.bytes.load(Ordering::Relaxed) + image_bytes(key, None));
        match state(left).filter(|_| left > 0) {
            Some(value) => {
                let bytes = image_bytes(key, value.as_ref());
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                saved.bytes += bytes;
                saved.images.insert(key.to_vec(), value);
            }
            None => {
                drop(saved);
                for overlay in list.iter() {
                    // Release by way of the change's publication, with the Acquire in `check`.
                    overlay.expired.store(true, Ordering::SeqCst);
                    let saved = std::mem::take(&mut *overlay.saved.lock());
                    self.bytes.fetch_sub(saved.bytes, Ordering::Relaxed);
                    let mut garbage = self.garbage.lock();
                    garbage.push(saved.images);
                    self.has_garbage.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// The state of `key` at the snapshot: as saved, or nothing when the live state, read before this call, is
    /// the state.
    pub(crate) fn state(&self, of: &Overlay, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, Expired> {
        let list = self.list.read();
        let from = list.partition_point(|o| o.number < of.number);
        let saved = list[from..].iter().find_map(|overlay| overlay.saved.lock().images.get(key).cloned());
        if of.expired.load(Ordering::SeqCst) { Err(Expired) } else { Ok(saved) }
    }

    /// True when no live snapshot has a pre-image, so that live states read before this call are the states at the
    /// snapshot `of`, which has not expired.
    #[inline]
    pub(crate) fn is_blank(&self, of: &Overlay) -> bool {
        // Acquire: who read a leaf as changed sees, by way of the change's publication, what was saved before it.
        self.bytes.load(Ordering::Acquire) == 0 && !of.expired.load(Ordering::Acquire)
    }

    /// The saved states of keys between the bounds, for live states read before this call: the first ones in this
    /// direction, of each overlay at most `count_max` (not 0), and no more behind the one that passes [`FETCH_BYTES_MAX`].
    /// When there are more, also the last key up to which they are all.
    pub(crate) fn states(
        &self,
        of: &Overlay,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        direction: Direction,
        count_max: usize,
    ) -> Result<(Images, Option<Vec<u8>>), Expired> {
        let list = self.list.read();
        let from = list.partition_point(|o| o.number < of.number);
        let mut states = Images::new();
        let mut reached: Option<Vec<u8>> = None;
        for overlay in &list[from..] {
            let saved = overlay.saved.lock();
            if saved.images.is_empty() || !is_ordered(start, end) {
                continue;
            }
            // What lies behind the key that others reach is of no use.
            let bounds = match (&reached, direction) {
                (None, _) => (start, end),
                (Some(key), Direction::Forward) => (start, Bound::Included(key.as_slice())),
                (Some(key), Direction::Backward) => (Bound::Included(key.as_slice()), end),
            };
            let mut range = saved.images.range::<[u8], _>(bounds);
            let mut next = || match direction {
                Direction::Forward => range.next(),
                Direction::Backward => range.next_back(),
            };
            let (mut last, mut bytes) = (None, 0);
            for (key, value) in std::iter::from_fn(&mut next).take(count_max) {
                states.entry(key.clone()).or_insert_with(|| value.clone());
                last = Some(key);
                bytes += key.len() + value.as_ref().map_or(0, Vec::len);
                if bytes > FETCH_BYTES_MAX {
                    break;
                }
            }
            if let (Some(last), Some(_)) = (last, next()) {
                reached = Some(last.clone());
            }
        }
        if let Some(reached) = &reached {
            states.retain(|key, _| !direction.is_before(reached, key));
        }
        if of.expired.load(Ordering::SeqCst) { Err(Expired) } else { Ok((states, reached)) }
    }
}

impl Saved {
    /// Takes over what `newer` has of other keys. Says the bytes of the rest, which is gone.
    fn absorb(&mut self, mut newer: Self) -> u64 {
        let before = self.bytes + newer.bytes;
        // The fewer ones are moved. Of one key the older state counts, wherever it lies.
        let swapped = self.images.len() < newer.images.len();
        if swapped {
            std::mem::swap(self, &mut newer);
        }
        for (key, value) in newer.images {
            let bytes = image_bytes(&key, value.as_ref());
            match self.images.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(value);
                    self.bytes += bytes;
                }
                Entry::Occupied(mut place) if swapped => {
                    let replaced = place.insert(value);
                    self.bytes = self.bytes + bytes - image_bytes(place.key(), replaced.as_ref());
                }
                Entry::Occupied(_) => {}
            }
        }
        before - self.bytes
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

#[cfg(test)]
mod tests {
    use super::{FETCH_BYTES_MAX, Overlays, SWEEP_COUNT_MAX};
    use crate::index::Direction;
    use crate::range::as_slices;
    use std::collections::VecDeque;
    use std::ops::Bound;
    use std::time::Instant;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// Saves a state that tells the snapshot that it is of.
    fn save(overlays: &Overlays, keys: impl Iterator<Item = u32>, value: u8) {
        keys.for_each(|number| overlays.save(&key(number), |_| Some(Some(vec![value]))));
    }

    fn bytes(overlays: &Overlays) -> u64 {
        overlays.figures().1
    }

    #[test]
    fn a_snapshot_that_ends_leaves_to_the_older_one_what_that_lacks() {
        for (older_count, newer_count) in [(10, 100), (100, 10)] {
            let overlays = Overlays::new(1 << 30);
            let older = overlays.begin();
            save(&overlays, 0..older_count, 1);
            let newer = overlays.begin();
            save(&overlays, 5..5 + newer_count, 2);
            let each = bytes(&overlays) / u64::from(older_count + newer_count);
            overlays.end(&newer);
            let keys = older_count.max(5 + newer_count);
            for number in 0..keys {
                let wanted = if number < older_count { 1 } else { 2 };
                let state = overlays.state(&older, &key(number)).unwrap();
                assert_eq!(state, Some(Some(vec![wanted])), "{number}");
            }
            assert_eq!(bytes(&overlays), each * u64::from(keys));
            overlays.end(&older);
            assert_eq!(overlays.figures(), (0, 0));
        }
    }

    #[test]
    fn a_fetch_of_states_is_bounded_and_complete_up_to_where_it_says() {
        let overlays = Overlays::new(1 << 30);
        let oldest = overlays.begin();
        save(&overlays, (0..6000).step_by(2), 1);
        let newest = overlays.begin();
        save(&overlays, (0..6000).step_by(3), 2);
        let wanted: Vec<u32> = (0..6000).filter(|n| n % 2 == 0 || n % 3 == 0).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (mut lower, mut upper): (Bound<Vec<u8>>, _) = (Bound::Unbounded, Bound::Unbounded);
            let mut seen = VecDeque::new();
            loop {
                let (start, end) = (as_slices(&lower), as_slices(&upper));
                let (states, reached) = overlays.states(&oldest, start, end, direction, 100).unwrap();
                assert!(states.len() <= 200);
                let numbers = states.iter().map(|(k, v)| {
                    let number = u32::from_be_bytes(k.as_slice().try_into().unwrap());
                    assert_eq!(*v, Some(vec![if number % 2 == 0 { 1 } else { 2 }]));
                    number
                });
                match direction {
                    Direction::Forward => seen.extend(numbers),
                    Direction::Backward => numbers.rev().for_each(|number| seen.push_front(number)),
                }
                let Some(reached) = reached else { break };
                match direction {
                    Direction::Forward => lower = Bound::Excluded(reached),
                    Direction::Backward => upper = Bound::Excluded(reached),
                }
            }
            assert_eq!(seen, wanted);
        }
        overlays.end(&oldest);
        overlays.end(&newest);
    }

    #[test]
    fn a_fetch_of_long_states_ends_early() {
        const LEN: usize = 10_000;
        let overlays = Overlays::new(1 << 30);
        let snapshots = [overlays.begin(), overlays.begin()];
        (0..600).for_each(|number| overlays.save(&key(number), |_| Some(Some(vec![1; LEN]))));
        for direction in [Direction::Forward, Direction::Backward] {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let (states, reached) = overlays.states(&snapshots[0], all.0, all.1, direction, 512).unwrap();
            assert_eq!(states.len(), FETCH_BYTES_MAX / LEN + 1);
            let last = match direction {
                Direction::Forward => states.keys().next_back(),
                Direction::Backward => states.keys().next(),
            };
            assert_eq!(reached.as_ref(), last);
        }
        snapshots.iter().for_each(|snapshot| overlays.end(snapshot));
    }

    #[test]
    fn what_expired_is_counted_no_more_and_freed_in_parts_by_those_who_write_afterwards() {
        let overlays = Overlays::new(1_000_000);
        let snapshot = overlays.begin();
        save(&overlays, 0..20_000, 1);
        assert!(overlays.state(&snapshot, &key(0)).is_err());
        assert_eq!(bytes(&overlays), 0);
        let left = || overlays.garbage.lock().iter().map(|images| images.len()).sum::<usize>();
        // A writer that has a node locked frees nothing.
        let mut before = left();
        assert!(overlays.has_garbage() && before > 5 * SWEEP_COUNT_MAX);
        while overlays.has_garbage() {
            overlays.sweep();
            assert_eq!(left(), before.saturating_sub(SWEEP_COUNT_MAX));
            before = left();
        }
        assert_eq!(before, 0);
        overlays.end(&snapshot);
    }

    #[test]
    fn the_end_of_a_snapshot_frees_all_that_expired() {
        let overlays = Overlays::new(1_000_000);
        let snapshot = overlays.begin();
        save(&overlays, 0..20_000, 1);
        overlays.sweep();
        overlays.end(&snapshot);
        assert!(!overlays.has_garbage() && overlays.garbage.lock().is_empty());
    }

    #[test]
    fn nobody_waits_until_a_snapshot_is_freed() {
        // Unless the system takes the processor away just there.
        let is_free = (0..5).any(|_| {
            let overlays = Overlays::new(1 << 40);
            let old = overlays.begin();
            save(&overlays, 0..300_000, 1);
            std::thread::scope(|scope| {
                let ending = scope.spawn(|| {
                    overlays.end(&old);
                    Instant::now()
                });
                while overlays.figures().0 != 0 {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                let new = overlays.begin();
                let waited = start.elapsed();
                overlays.end(&new);
                waited * 2 < ending.join().expect("no panic").saturating_duration_since(start)
            })
        });
        assert!(is_free, "a new snapshot waited for the old one's end");
    }
}
