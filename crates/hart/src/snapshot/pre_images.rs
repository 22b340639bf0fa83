//! Pre-images for live snapshots. The tree keeps no versions: a writer that finds live snapshots saves the state of
//! its key in the newest one before it changes it.
//!
//! Invariants:
//! 1. A snapshot is taken while no writer is in the gate. So the state of a key at a snapshot is the pre-image in
//!    that snapshot's overlay or, failing that, in the next newer overlay that has one; if none has, it is the live
//!    state.
//! 2. A reader reads the live state first and the overlays afterwards: what changed before the live read was saved
//!    before that.
//! 3. When a snapshot ends, its overlay is merged into the next older one, which relies on it. That happens under the
//!    registry's write lock; readers and writers that save hold the read lock.
//! 4. When the pre-images exceed their bound, all live snapshots expire before the change whose pre-image was not
//!    saved takes place.
//! 5. There may be millions of pre-images, so they are never freed under a lock that a writer needs. A writer that
//!    must discard them holds a node lock; it only queues them. Later writers free up to [`SWEEP_COUNT_MAX`] each,
//!    and dropping a snapshot frees the rest.
//! 6. The newest snapshot stays when its last user drops it, *idle*, as long as no key has changed since: the next user
//!    of that instant takes it over, and no writer has to wait for that. The first writer that finds it idle removes it
//!    before it changes its key, instead of saving a pre-image. Only the newest snapshot is ever idle.

use crate::bounds::{FETCH_BYTES_MAX, is_ordered};
use crate::index::Direction;
use mangrove_pool::Lsn;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Keys with their values, or none where the key was absent.
pub(crate) type PreImages = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Expired pre-images that one writer frees: some hundred microseconds of work.
const SWEEP_COUNT_MAX: usize = 1000;
/// DRAM that a pre-image takes beyond its bytes.
const PRE_IMAGE_OVERHEAD_BYTES: u64 = 96;

/// Pre-images, and the bytes of DRAM that they count for.
#[derive(Debug, Default)]
struct SavedStates {
    pre_images: PreImages,
    bytes: u64,
}

/// What a snapshot's lock guards.
#[derive(Debug, Default)]
struct OverlayState {
    saved: SavedStates,
    /// How many use the snapshot. 0: it is idle, or about to be removed.
    users: usize,
}

/// An instant: what was there, and how to know that it is durable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instant {
    /// Once the log is durable up to here, so is all that was there.
    pub(crate) lsn: Lsn,
    /// Records.
    pub(crate) records: u64,
}

/// What changed after one snapshot and before the next.
#[derive(Debug)]
pub(crate) struct Overlay {
    number: u64,
    pub(crate) instant: Instant,
    state: Mutex<OverlayState>,
    expired: AtomicBool,
}

/// The live snapshots, oldest first.
#[derive(Debug)]
pub(crate) struct SnapshotRegistry {
    list: RwLock<Vec<Arc<Overlay>>>,
    /// Snapshots in the list.
    live: AtomicUsize,
    /// Those of them that are not idle.
    used: AtomicUsize,
    next: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
    /// Pre-images of expired snapshots: no longer counted, still to be freed.
    garbage: Mutex<Vec<PreImages>>,
    /// True when there is garbage. Changed under the lock of `garbage`.
    has_garbage: AtomicBool,
}

/// The snapshot has expired.
#[derive(Debug)]
pub(crate) struct Expired;

fn pre_image_bytes(key: &[u8], value: Option<&Vec<u8>>) -> u64 {
    (key.len() + value.map_or(0, Vec::len)) as u64 + PRE_IMAGE_OVERHEAD_BYTES
}

impl SnapshotRegistry {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            list: RwLock::default(),
            live: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_max,
            garbage: Mutex::default(),
            has_garbage: AtomicBool::new(false),
        }
    }

    /// True when a writer must save pre-images. While the caller is in the gate this may only become false.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: the gate orders this load after the snapshot that matters.
        self.live.load(Ordering::Relaxed) != 0
    }

    /// Number of snapshots in use, and bytes of their pre-images.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed) as u64, self.bytes.load(Ordering::Relaxed))
    }

    /// The newest snapshot, for one more user, if no key has changed since: then it is an instant of now.
    pub(crate) fn share(&self) -> Option<Arc<Overlay>> {
        let list = self.list.read();
        let newest = list.last()?;
        let mut state = newest.state.lock();
        // Of a writer that changed a key, and has returned, this lock shows the pre-image or that the snapshot has
        // expired, or the registry's lock that the snapshot is gone. One that has not returned saves its pre-image
        // later.
        if !state.saved.pre_images.is_empty() || newest.expired.load(Ordering::Relaxed) {
            return None;
        }
        if state.users == 0 {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        state.users += 1;
        Some(Arc::clone(newest))
    }

    /// Registers a new snapshot. The caller has closed the gate.
    pub(crate) fn begin(&self, instant: Instant) -> Arc<Overlay> {
        let mut list = self.list.write();
        self.remove_idle(&mut list);
        let overlay = Arc::new(Overlay {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            instant,
            state: Mutex::new(OverlayState { users: 1, saved: SavedStates::default() }),
            expired: AtomicBool::new(false),
        });
        list.push(Arc::clone(&overlay));
        self.used.fetch_add(1, Ordering::Relaxed);
        self.live.store(list.len(), Ordering::Relaxed);
        overlay
    }

    /// Ends one use of a snapshot.
    pub(crate) fn end(&self, overlay: &Overlay) {
        // Freed without the lock: invariant 5.
        drop(self.leave(overlay));
        // Locked in any case: a sweep that puts back what it did not free looks for users afterwards.
        self.free_garbage();
    }

    /// Returns pre-images that no snapshot needs any more, for the caller to free.
    fn leave(&self, overlay: &Overlay) -> Option<PreImages> {
        {
            let list = self.list.read();
            let is_newest = list.last().is_some_and(|newest| newest.number == overlay.number);
            let mut state = overlay.state.lock();
            state.users -= 1;
            if state.users > 0 {
                return None;
            }
            self.used.fetch_sub(1, Ordering::SeqCst);
            let is_blank = state.saved.pre_images.is_empty() && !overlay.expired.load(Ordering::Relaxed);
            if is_newest && is_blank {
                return None;
            }
        }
        let mut list = self.list.write();
        // Meanwhile a writer may have removed it, or newer ones, so that it found a user.
        let is_this = |o: &Arc<Overlay>| o.number == overlay.number && o.state.lock().users == 0;
        list.iter().position(is_this).map(|place| self.remove(&mut list, place))
    }

    /// Removes a snapshot without users. Returns pre-images that no other snapshot needs, for the caller to free.
    fn remove(&self, list: &mut Vec<Arc<Overlay>>, place: usize) -> PreImages {
        let overlay = list.remove(place);
        self.live.store(list.len(), Ordering::Relaxed);
        let saved = std::mem::take(&mut overlay.state.lock().saved);
        let older = place.checked_sub(1).map(|i| &list[i]).filter(|o| !o.expired.load(Ordering::Relaxed));
        let (bytes, unused) = match older {
            Some(older) => (older.state.lock().saved.absorb(saved), PreImages::new()),
            None => (saved.bytes, saved.pre_images),
        };
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        unused
    }

    /// Removes the newest snapshot if it is idle. What no other snapshot needs is only queued: invariant 5.
    fn remove_idle(&self, list: &mut Vec<Arc<Overlay>>) {
        if list.last().is_none_or(|newest| newest.state.lock().users > 0) {
            return;
        }
        let unused = self.remove(list, list.len() - 1);
        if !unused.is_empty() {
            self.discard(unused);
        }
    }

    /// Queues pre-images to be freed.
    fn discard(&self, images: PreImages) {
        let mut garbage = self.garbage.lock();
        garbage.push(images);
        self.has_garbage.store(true, Ordering::Relaxed);
    }

    /// True when there is garbage to sweep.
    #[inline]
    pub(crate) fn has_garbage(&self) -> bool {
        self.has_garbage.load(Ordering::Relaxed)
    }

    /// Frees some of the garbage: a part of one snapshot's pre-images, which no other thread sweeps meanwhile. The
    /// caller holds no lock.
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
        self.discard(images);
        if self.used.load(Ordering::SeqCst) == 0 {
            // The last snapshot may have ended meanwhile, and no other writer may come.
            self.free_garbage();
        }
    }

    /// Frees all garbage. The caller holds no lock.
    fn free_garbage(&self) {
        let mut garbage = self.garbage.lock();
        self.has_garbage.store(false, Ordering::Relaxed);
        let all = std::mem::take(&mut *garbage);
        drop(garbage);
        drop(all);
    }

    /// Saves the state of `key` before it changes. This calls `state` when it needs the state, with the bytes that
    /// the state may take at most; `state` returns none when it is larger.
    pub(crate) fn save(&self, key: &[u8], state: impl FnOnce(u64) -> Option<Option<Vec<u8>>>) {
        let list = self.list.read();
        let Some(newest) = list.last() else { return };
        // Acquire: a reader that sees this thread's change, of which nothing is saved, sees all snapshots expired.
        if newest.expired.load(Ordering::Acquire) {
            return;
        }
        let mut overlay = newest.state.lock();
        if overlay.users == 0 {
            drop(overlay);
            drop(list);
            self.remove_idle(&mut self.list.write());
            return self.save(key, state);
        }
        let saved = &mut overlay.saved;
        if saved.pre_images.contains_key(key) {
            return;
        }
        let left =
            self.bytes_max.saturating_sub(self.bytes.load(Ordering::Relaxed) + pre_image_bytes(key, None));
        match state(left).filter(|_| left > 0) {
            Some(value) => {
                let bytes = pre_image_bytes(key, value.as_ref());
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                saved.bytes += bytes;
                saved.pre_images.insert(key.to_vec(), value);
            }
            None => {
                // The newest last: from then on other writers save nothing, and the older ones rely on what it has. It
                // expires under its lock: a thread that leaves it or would share it must see that. The publication
                // of the change releases these stores; partner is the Acquire in `is_blank`.
                list.iter().for_each(|overlay| overlay.expired.store(true, Ordering::SeqCst));
                drop(overlay);
                for overlay in list.iter() {
                    let saved = std::mem::take(&mut overlay.state.lock().saved);
                    self.bytes.fetch_sub(saved.bytes, Ordering::Relaxed);
                    self.discard(saved.pre_images);
                }
            }
        }
    }

    /// Calls `look` with the saved state of `key` at the snapshot, unless its live state, read before this call, is the
    /// state. `look` must not wait.
    pub(crate) fn state<T>(
        &self,
        of: &Overlay,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<Option<T>, Expired> {
        let list = self.list.read();
        let from = list.partition_point(|o| o.number < of.number);
        let mut look = Some(look);
        let saved = list[from..].iter().find_map(|overlay| {
            let state = overlay.state.lock();
            let value = state.saved.pre_images.get(key)?.as_deref();
            look.take().map(|look| look(value))
        });
        if of.expired.load(Ordering::SeqCst) { Err(Expired) } else { Ok(saved) }
    }

    /// True when no live snapshot has a pre-image and `of` has not expired: live states read before this call are
    /// then the states at the snapshot.
    #[inline]
    pub(crate) fn is_blank(&self, of: &Overlay) -> bool {
        // Acquire: a thread that read a changed leaf sees, by way of the change's publication, what was saved before.
        self.bytes.load(Ordering::Acquire) == 0 && !of.expired.load(Ordering::Acquire)
    }

    /// The saved states of keys between the bounds, for live states read before this call, in this direction. From
    /// each overlay it takes at most `count_max` (not 0), and none after the one that passes [`FETCH_BYTES_MAX`].
    /// When there are more, it also returns the last key up to which the result is complete.
    pub(crate) fn states(
        &self,
        of: &Overlay,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        direction: Direction,
        count_max: usize,
    ) -> Result<(PreImages, Option<Vec<u8>>), Expired> {
        let list = self.list.read();
        let from = list.partition_point(|o| o.number < of.number);
        let mut states = PreImages::new();
        let mut reached: Option<Vec<u8>> = None;
        for overlay in &list[from..] {
            let saved = &overlay.state.lock().saved;
            if saved.pre_images.is_empty() || !is_ordered(start, end) {
                continue;
            }
            // States after the key that an earlier overlay reached would be dropped anyway.
            let bounds = match (&reached, direction) {
                (None, _) => (start, end),
                (Some(key), Direction::Forward) => (start, Bound::Included(key.as_slice())),
                (Some(key), Direction::Backward) => (Bound::Included(key.as_slice()), end),
            };
            let mut range = saved.pre_images.range::<[u8], _>(bounds);
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

impl SavedStates {
    /// Merges `newer` into this overlay, which keeps its own state of a key. Returns the bytes of the states that
    /// were dropped.
    fn absorb(&mut self, mut newer: Self) -> u64 {
        let before = self.bytes + newer.bytes;
        // The smaller map moves into the larger. The older state of a key counts, in whichever map it lies.
        let swapped = self.pre_images.len() < newer.pre_images.len();
        if swapped {
            std::mem::swap(self, &mut newer);
        }
        for (key, value) in newer.pre_images {
            let bytes = pre_image_bytes(&key, value.as_ref());
            match self.pre_images.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(value);
                    self.bytes += bytes;
                }
                Entry::Occupied(mut place) if swapped => {
                    let replaced = place.insert(value);
                    self.bytes = self.bytes + bytes - pre_image_bytes(place.key(), replaced.as_ref());
                }
                Entry::Occupied(_) => {}
            }
        }
        before - self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{FETCH_BYTES_MAX, Instant, SWEEP_COUNT_MAX, SnapshotRegistry};
    use crate::bounds::as_slices;
    use crate::index::Direction;
    use std::collections::VecDeque;
    use std::ops::Bound;
    use std::sync::atomic::Ordering;
    use std::time;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// Saves states whose value identifies their snapshot.
    fn save(registry: &SnapshotRegistry, keys: impl Iterator<Item = u32>, value: u8) {
        keys.for_each(|number| registry.save(&key(number), |_| Some(Some(vec![value]))));
    }

    fn owned(state: Option<&[u8]>) -> Option<Vec<u8>> {
        state.map(<[u8]>::to_vec)
    }

    fn bytes(registry: &SnapshotRegistry) -> u64 {
        registry.figures().1
    }

    #[test]
    fn a_snapshot_that_ends_leaves_to_the_older_one_what_that_lacks() {
        for (older_count, newer_count) in [(10, 100), (100, 10)] {
            let registry = SnapshotRegistry::new(1 << 30);
            let older = registry.begin(Instant::default());
            save(&registry, 0..older_count, 1);
            let newer = registry.begin(Instant::default());
            save(&registry, 5..5 + newer_count, 2);
            let each = bytes(&registry) / u64::from(older_count + newer_count);
            registry.end(&newer);
            let keys = older_count.max(5 + newer_count);
            for number in 0..keys {
                let wanted = if number < older_count { 1 } else { 2 };
                let state = registry.state(&older, &key(number), owned).unwrap();
                assert_eq!(state, Some(Some(vec![wanted])), "{number}");
            }
            assert_eq!(bytes(&registry), each * u64::from(keys));
            registry.end(&older);
            assert_eq!(registry.figures(), (0, 0));
        }
    }

    #[test]
    fn an_instant_is_shared_until_a_key_changes() {
        let registry = SnapshotRegistry::new(1 << 30);
        assert!(registry.share().is_none());
        let first = registry.begin(Instant { lsn: 7, records: 3 });
        let second = registry.share().expect("nothing has changed");
        registry.end(&first);
        assert_eq!(registry.figures().0, 1, "the second user");
        registry.end(&second);
        assert_eq!(registry.figures().0, 0);
        assert!(registry.any(), "a writer must look");
        let third = registry.share().expect("still nothing has changed");
        assert_eq!((third.number, third.instant.lsn, third.instant.records), (0, 7, 3));
        save(&registry, 0..1, 1);
        assert_eq!(registry.state(&third, &key(0), owned).unwrap(), Some(Some(vec![1])));
        assert!(registry.share().is_none(), "a key has changed");
        registry.end(&third);
        assert!(
            !registry.any() && registry.figures() == (0, 0),
            "its last user removes a snapshot that has pre-images"
        );
    }

    #[test]
    fn a_writer_removes_an_idle_snapshot_and_saves_nothing_in_it() {
        let registry = SnapshotRegistry::new(1 << 30);
        let older = registry.begin(Instant::default());
        let idle = registry.begin(Instant::default());
        registry.end(&idle);
        assert_eq!(registry.figures().0, 1);
        // What changes now is saved for the older one alone.
        save(&registry, 0..1, 1);
        assert!(registry.share().is_none());
        assert_eq!(registry.state(&older, &key(0), owned).unwrap(), Some(Some(vec![1])));
        registry.end(&older);
        assert!(!registry.any() && bytes(&registry) == 0);

        registry.end(&registry.begin(Instant::default()));
        registry.save(&key(0), |_| panic!("no snapshot needs the state"));
        assert!(!registry.any() && registry.share().is_none());
    }

    #[test]
    fn only_the_newest_snapshot_becomes_idle() {
        let registry = SnapshotRegistry::new(1 << 30);
        let older = registry.begin(Instant::default());
        let newer = registry.begin(Instant::default());
        registry.end(&older);
        assert_eq!(registry.list.read().len(), 1, "the older one is gone");
        registry.end(&newer);
        let newest = registry.begin(Instant::default());
        assert_eq!(registry.list.read().len(), 1, "a new one takes the place of the idle one");
        registry.end(&newest);
    }

    #[test]
    fn a_fetch_of_states_is_bounded_and_complete_up_to_where_it_says() {
        let registry = SnapshotRegistry::new(1 << 30);
        let oldest = registry.begin(Instant::default());
        save(&registry, (0..6000).step_by(2), 1);
        let newest = registry.begin(Instant::default());
        save(&registry, (0..6000).step_by(3), 2);
        let wanted: Vec<u32> = (0..6000).filter(|n| n % 2 == 0 || n % 3 == 0).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (mut lower, mut upper): (Bound<Vec<u8>>, _) = (Bound::Unbounded, Bound::Unbounded);
            let mut seen = VecDeque::new();
            loop {
                let (start, end) = (as_slices(&lower), as_slices(&upper));
                let (states, reached) = registry.states(&oldest, start, end, direction, 100).unwrap();
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
        registry.end(&oldest);
        registry.end(&newest);
    }

    #[test]
    fn a_fetch_of_long_states_ends_early() {
        const LEN: usize = 10_000;
        let registry = SnapshotRegistry::new(1 << 30);
        let held = [registry.begin(Instant::default()), registry.begin(Instant::default())];
        (0..600).for_each(|number| registry.save(&key(number), |_| Some(Some(vec![1; LEN]))));
        for direction in [Direction::Forward, Direction::Backward] {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let (states, reached) = registry.states(&held[0], all.0, all.1, direction, 512).unwrap();
            assert_eq!(states.len(), FETCH_BYTES_MAX / LEN + 1);
            let last = match direction {
                Direction::Forward => states.keys().next_back(),
                Direction::Backward => states.keys().next(),
            };
            assert_eq!(reached.as_ref(), last);
        }
        held.iter().for_each(|snapshot| registry.end(snapshot));
    }

    #[test]
    fn all_snapshots_expire_before_other_writers_save_nothing() {
        let registry = SnapshotRegistry::new(1000);
        let snapshots = [(); 3].map(|()| registry.begin(Instant::default()));
        std::thread::scope(|scope| {
            // As a reader does: so the writer cannot take the oldest one's pre-images.
            let read = snapshots[0].state.lock();
            scope.spawn(|| registry.save(&key(0), |_| None));
            while !snapshots[2].expired.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(snapshots.iter().all(|snapshot| snapshot.expired.load(Ordering::SeqCst)));
            drop(read);
        });
        snapshots.iter().for_each(|snapshot| registry.end(snapshot));
    }

    #[test]
    fn what_expired_is_counted_no_more_and_freed_in_parts_by_those_who_write_afterwards() {
        let registry = SnapshotRegistry::new(1_000_000);
        let snapshot = registry.begin(Instant::default());
        save(&registry, 0..20_000, 1);
        assert!(registry.state(&snapshot, &key(0), owned).is_err());
        assert_eq!(bytes(&registry), 0);
        let left = || registry.garbage.lock().iter().map(|images| images.len()).sum::<usize>();
        // Expiry itself, under a node lock, freed nothing.
        let mut before = left();
        assert!(registry.has_garbage() && before > 5 * SWEEP_COUNT_MAX);
        while registry.has_garbage() {
            registry.sweep();
            assert_eq!(left(), before.saturating_sub(SWEEP_COUNT_MAX));
            before = left();
        }
        assert_eq!(before, 0);
        registry.end(&snapshot);
    }

    #[test]
    fn the_end_of_a_snapshot_frees_all_that_expired() {
        let registry = SnapshotRegistry::new(1_000_000);
        let snapshot = registry.begin(Instant::default());
        save(&registry, 0..20_000, 1);
        registry.sweep();
        registry.end(&snapshot);
        assert!(!registry.has_garbage() && registry.garbage.lock().is_empty());
    }

    #[test]
    fn the_end_of_a_snapshot_that_becomes_idle_frees_all_that_expired() {
        let registry = SnapshotRegistry::new(1_000_000);
        let expired = registry.begin(Instant::default());
        save(&registry, 0..20_000, 1);
        let idle = registry.begin(Instant::default());
        registry.end(&expired);
        save(&registry, 0..20_000, 1);
        registry.end(&registry.begin(Instant::default()));
        registry.end(&idle);
        assert!(registry.garbage.lock().is_empty());

        let expired = registry.begin(Instant::default());
        save(&registry, 0..20_000, 1);
        let other = registry.begin(Instant::default());
        assert!(registry.has_garbage());
        registry.end(&other);
        assert!(registry.garbage.lock().is_empty() && registry.any(), "the other one is idle");
        registry.end(&expired);
    }

    #[test]
    fn nobody_waits_until_a_snapshot_is_freed() {
        // Several tries: the system may take the processor away between the two measurements.
        let is_free = (0..50).any(|_| {
            let registry = SnapshotRegistry::new(1 << 40);
            let old = registry.begin(Instant::default());
            save(&registry, 0..300_000, 1);
            std::thread::scope(|scope| {
                let ending = scope.spawn(|| {
                    registry.end(&old);
                    time::Instant::now()
                });
                while registry.any() {
                    std::hint::spin_loop();
                }
                let start = time::Instant::now();
                let new = registry.begin(Instant::default());
                let waited = start.elapsed();
                registry.end(&new);
                waited * 2 < ending.join().expect("no panic").saturating_duration_since(start)
            })
        });
        assert!(is_free, "a new snapshot waited for the old one's end");
    }
}
