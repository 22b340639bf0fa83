//! The durable map as an engine: byte order, keys up to 1,024 bytes.
//!
//! The map is opened in interval durability, in which neither writes nor reads wait, and a synced write waits for a
//! sync of its own. The map's readers would then return a synced write that may still be lost; `PendingSyncs` makes
//! them wait for it.

use crate::change_list::{Change, ChangeList};
use crate::engine::catalog::DirectoryLock;
use crate::engine::engine::{EngineRequest, Figures, ReadView, RecordCursor, StorageEngine};
use crate::order::Direction;
use crate::status::{Failure, Result, caught_uncancelled};
use mangrove::{Batch, Create, Durability, Error, Map, Range, Snapshot};
use mangrove_sys::{KEY_BUCKET_COUNT, key_bucket};
use self_cell::self_cell;
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A write without sync is durable after at most this long.
const INTERVAL: Duration = Duration::from_millis(5);
/// Snapshots here do not expire, as LevelDB's do not.
const SNAPSHOT_BYTES_MAX: u64 = u64::MAX;
/// Records of the first fetch of a walk; each further one takes twice as many.
const FETCH_COUNT_MIN: usize = 1;
/// The most records of one fetch.
const FETCH_COUNT_MAX: usize = 512;
/// A fetch ends after the record that passes this many bytes.
const FETCH_BYTES_MAX: usize = 256 << 10;
/// A thread's buffer for values is freed when it has grown beyond this.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// The map and the lock of its directory, as long as the database, a snapshot or an iterator lives.
struct MapStore {
    map: Map,
    pending_syncs: PendingSyncs,
    /// Released after the map is closed.
    _lock: DirectoryLock,
}

/// The engine `map`.
pub(crate) struct MapEngine(Arc<MapStore>);

impl MapEngine {
    /// Opens the map in the directory `pool`; `opening` says whether it may be missing.
    /// `memory_bytes_max` as in the map.
    pub(crate) fn open(
        pool: &Path,
        opening: EngineRequest,
        memory_bytes_max: Option<u64>,
        lock: DirectoryLock,
    ) -> Result<Self> {
        let mut options = Map::options()
            .create(if opening.creates() { Create::IfMissing } else { Create::Never })
            .durability(Durability::Interval(INTERVAL))
            .keeps_recent(opening.keeps_recent())
            .bulk_load(opening.is_bulk_load())
            .snapshot_bytes_max(SNAPSHOT_BYTES_MAX)
            // Opening a database asks whether it is empty, which waits for the whole map.
            .background_recovery(false);
        if let Some(bytes) = memory_bytes_max {
            options = options.memory_bytes_max(bytes);
        }
        let map = options.open(pool)?;
        Ok(Self(Arc::new(MapStore { map, pending_syncs: PendingSyncs::new(), _lock: lock })))
    }

    /// True when there are no records.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        Ok(self.0.map.is_empty()?)
    }
}

impl MapStore {
    /// Runs a synced write: readers of its keys wait until it is durable. When the medium fails first, they get an
    /// error from then on.
    fn synced<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        write: impl FnOnce() -> mangrove::Result<()>,
    ) -> Result<()> {
        if let Some(error) = self.map.refusal() {
            // The medium takes no writes any more: readers must not lose further keys.
            return Err(error.into());
        }
        let held = self.pending_syncs.hold(keys);
        let done = write().and_then(|()| self.map.sync());
        if let Err(Error::Poisoned { .. } | Error::Io { .. }) = done {
            held.keep_forever();
        }
        Ok(done?)
    }

    /// Waits until what was just read of `key` cannot be lost, if a synced write to it is pending.
    fn wait_durable(&self, key: &[u8]) -> Result<()> {
        if self.pending_syncs.is(key) { caught_uncancelled(|| Ok(self.map.sync()?)) } else { Ok(()) }
    }
}

impl StorageEngine for MapEngine {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let store = &*self.0;
        let put = || store.map.put(key, value);
        if sync { store.synced(std::iter::once(key), put) } else { Ok(put()?) }
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        let store = &*self.0;
        let delete = || store.map.delete(key).map(drop);
        if sync { store.synced(std::iter::once(key), delete) } else { Ok(delete()?) }
    }

    fn write(&self, batch: ChangeList<'_>, sync: bool) -> Result<()> {
        let store = &*self.0;
        let keys = batch.changes().map(|change| match change {
            Change::Put(key, _) | Change::Delete(key) => key,
        });
        let write = || {
            let mut changes = batch.changes();
            match (batch.len(), changes.next()) {
                (0, _) => Ok(()),
                (1, Some(Change::Put(key, value))) => store.map.put(key, value),
                (1, Some(Change::Delete(key))) => store.map.delete(key).map(drop),
                _ => store.map.write(as_map_batch(batch)),
            }
        };
        if sync { store.synced(keys, write) } else { Ok(write()?) }
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        with_buffer(|value| {
            if self.0.map.get_into(key, value)? {
                self.0.wait_durable(key)?;
                found(value);
                return Ok(());
            }
            self.0.wait_durable(key)
        })
    }

    fn view(&self) -> Result<Arc<dyn ReadView>> {
        let snapshot = HeldSnapshot::try_new(Arc::clone(&self.0), |store| store.map.snapshot())?;
        if self.0.pending_syncs.any() {
            caught_uncancelled(|| Ok(self.0.map.sync()?))?;
        }
        Ok(Arc::new(MapView(snapshot)))
    }

    fn compact(&self) -> Result<()> {
        self.0.map.compact()?;
        Ok(())
    }

    fn end_load(&self) -> Result<()> {
        self.0.map.checkpoint()?;
        Ok(())
    }

    fn check(&self) -> Result<Vec<String>> {
        Ok(self.0.map.check()?.problems)
    }

    fn figures(&self) -> Figures {
        let stat = self.0.map.stat();
        Figures {
            records: stat.records,
            record_bytes: stat.durable_bytes,
            memory_bytes: stat.index_bytes + stat.allocator_bytes + stat.snapshot_bytes + stat.durable_bytes,
            durable_bytes: stat.durable_bytes,
            log_bytes_used: stat.log_bytes_used,
            commits: stat.group_commits,
            views: stat.snapshots,
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

fn as_map_batch(batch: ChangeList<'_>) -> Batch {
    let mut out = Batch::new();
    for change in batch.changes() {
        match change {
            Change::Put(key, value) => out.put(key, value),
            Change::Delete(key) => out.delete(key),
        };
    }
    out
}

/// Runs `work` with this thread's buffer for values, so that a read allocates nothing.
fn with_buffer<R>(work: impl FnOnce(&mut Vec<u8>) -> Result<R>) -> Result<R> {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let mut work = Some(work);
    let lent = BUFFER.try_with(|cell| {
        let mut buffer = cell.try_borrow_mut().ok()?;
        let answer = work.take()?(&mut buffer);
        if buffer.capacity() > BUFFER_BYTES_MAX {
            *buffer = Vec::new();
        }
        Some(answer)
    });
    match (lent, work) {
        (Ok(Some(answer)), _) => answer,
        // A thread that is ending has no buffer any more.
        (_, Some(work)) => work(&mut Vec::new()),
        (_, None) => Err(Failure::corruption("a read ended without an answer")),
    }
}

/// Synced writes that took effect or are about to, and are not known to be durable, by buckets of keys. Two keys may
/// share a bucket, and then wait for each other's writes.
struct PendingSyncs {
    any: AtomicU32,
    buckets: Box<[AtomicU32]>,
}

/// Counts a write as pending until it is dropped.
struct SyncHold<'a, K: Iterator<Item = &'a [u8]>> {
    pending_syncs: &'a PendingSyncs,
    keys: K,
}

impl PendingSyncs {
    fn new() -> Self {
        let buckets = (0..KEY_BUCKET_COUNT).map(|_| AtomicU32::new(0)).collect();
        Self { any: AtomicU32::new(0), buckets }
    }

    fn bucket(&self, key: &[u8]) -> &AtomicU32 {
        &self.buckets[key_bucket(key)]
    }

    fn hold<'a, 'k: 'a>(
        &'a self,
        keys: impl Iterator<Item = &'k [u8]> + Clone + 'a,
    ) -> SyncHold<'a, impl Iterator<Item = &'a [u8]> + Clone> {
        // SeqCst: partners are the loads below. A reader that sees the write in the map sees that it is pending.
        self.any.fetch_add(1, Ordering::SeqCst);
        let keys = keys.map(|key| -> &'a [u8] { key });
        for key in keys.clone() {
            self.bucket(key).fetch_add(1, Ordering::SeqCst);
        }
        SyncHold { pending_syncs: self, keys }
    }

    #[inline]
    fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst) != 0
    }

    #[inline]
    fn is(&self, key: &[u8]) -> bool {
        self.any() && self.bucket(key).load(Ordering::SeqCst) != 0
    }
}

impl<'a, K: Iterator<Item = &'a [u8]>> SyncHold<'a, K> {
    /// The write is not durable and never will be.
    #[cold]
    fn keep_forever(self) {
        // The write stays pending from now on.
        std::mem::forget(self);
    }
}

impl<'a, K: Iterator<Item = &'a [u8]>> Drop for SyncHold<'a, K> {
    fn drop(&mut self) {
        // Release: partners are the loads of readers. A reader that sees no pending write may rely on the sync.
        for key in &mut self.keys {
            self.pending_syncs.bucket(key).fetch_sub(1, Ordering::Release);
        }
        self.pending_syncs.any.fetch_sub(1, Ordering::Release);
    }
}

self_cell!(
    /// A snapshot, and the store that it belongs to.
    struct HeldSnapshot {
        owner: Arc<MapStore>,
        #[not_covariant]
        dependent: Snapshot,
    }
);

struct MapView(HeldSnapshot);

impl ReadView for MapView {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(value) = self.0.with_dependent(|_, snapshot| snapshot.get(key))? {
            found(&value);
        }
        Ok(())
    }

    fn cursor(self: Arc<Self>) -> Box<dyn RecordCursor> {
        Box::new(MapCursor { view: self, walk: None, page: Page::default() })
    }
}

self_cell!(
    /// A walk over a view, and the view.
    struct HeldWalk {
        owner: Arc<MapView>,
        #[not_covariant]
        dependent: WalkRange,
    }
);

/// The walk itself.
struct WalkRange<'a>(Range<'a>);

/// Records that were fetched together, in the direction of their walk.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    /// Starts of key and value, and the end of the value.
    records: Vec<[usize; 3]>,
    /// The current record; none when it is beyond the last.
    at: usize,
}

impl Page {
    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.at = 0;
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.records.push([start, start + key.len(), self.bytes.len()]);
    }

    #[inline]
    fn record(&self) -> Option<(&[u8], &[u8])> {
        let [key, value, end] = *self.records.get(self.at)?;
        Some((&self.bytes[key..value], &self.bytes[value..end]))
    }
}

/// A walk in one direction; a seek, or a step in the other direction, begins a new one.
struct MapWalk {
    held: HeldWalk,
    direction: Direction,
    fetch_count: usize,
    /// Why no record can be read after those in the page.
    broken: Option<Failure>,
}

struct MapCursor {
    view: Arc<MapView>,
    walk: Option<MapWalk>,
    page: Page,
}

impl MapCursor {
    /// Starts a walk between the bounds and goes to its first record.
    fn start(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.walk = None;
        self.page.clear();
        let held = HeldWalk::try_new(Arc::clone(&self.view), |view| {
            view.0.with_dependent(|_, snapshot| snapshot.range::<&[u8]>((from, to))).map(WalkRange)
        })?;
        self.walk = Some(MapWalk { held, direction, fetch_count: FETCH_COUNT_MIN, broken: None });
        self.fetch()
    }

    /// Fetches the next records of the walk. A record that cannot be read ends it, behind those before.
    fn fetch(&mut self) -> Result<()> {
        let page = &mut self.page;
        page.clear();
        let Some(walk) = &mut self.walk else { return Ok(()) };
        if let Some(failure) = walk.broken.take() {
            self.walk = None;
            return Err(failure);
        }
        let count = walk.fetch_count;
        walk.fetch_count = (count * 2).min(FETCH_COUNT_MAX);
        let take = |key: &[u8], value: &[u8]| {
            page.push(key, value);
            if page.records.len() < count && page.bytes.len() < FETCH_BYTES_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let direction = walk.direction;
        let done = walk.held.with_dependent_mut(|_, range| match direction {
            Direction::Forward => range.0.visit(take),
            Direction::Backward => range.0.visit_back(take),
        });
        if page.records.is_empty() {
            self.walk = None;
            return Ok(done?);
        }
        walk.broken = done.err().map(Failure::from);
        Ok(())
    }

    fn step(&mut self, direction: Direction) -> Result<()> {
        let Some(walk) = &self.walk else { return Ok(()) };
        if walk.direction == direction {
            self.page.at += 1;
            return if self.page.at < self.page.records.len() { Ok(()) } else { self.fetch() };
        }
        let Some((key, _)) = self.page.record() else { return Ok(()) };
        let here = key.to_vec();
        match direction {
            Direction::Forward => self.start(Bound::Excluded(&here), Bound::Unbounded, direction),
            Direction::Backward => self.start(Bound::Unbounded, Bound::Excluded(&here), direction),
        }
    }
}

impl RecordCursor for MapCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.start(Bound::Unbounded, Bound::Unbounded, Direction::Forward)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start(Bound::Unbounded, Bound::Unbounded, Direction::Backward)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(Bound::Included(key), Bound::Unbounded, Direction::Forward)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    #[inline]
    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.page.record()
    }
}
