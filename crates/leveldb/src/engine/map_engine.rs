//! The durable map as an engine: byte order, keys up to 1,024 bytes.
//!
//! The map is opened in interval durability, in which neither writes nor reads wait, and a synced write
//! waits for a sync of its own. What readers then lack, that no answer rests on a synced write that may
//! still be lost, `Unsettled` adds.

use crate::batch::{Change, leveldb_writebatch_t};
use crate::buckets::{BUCKET_COUNT, bucket_of};
use crate::catalog::Lock;
use crate::engine::{Cursor, Engine, Figures, View};
use crate::status::{Failure, Result};
use mangrove::{Batch, Durability, Error, Map, Range, Snapshot};
use self_cell::self_cell;
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A write that nobody waits for is durable after at most this long.
const INTERVAL: Duration = Duration::from_millis(5);
/// Snapshots here do not expire: LevelDB's do not.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 50;
/// Records of the first fetch of a walk; each further one takes twice as many.
const FETCH_COUNT_MIN: usize = 1;
/// The most records of one fetch.
const FETCH_COUNT_MAX: usize = 512;
/// A fetch ends behind the record that passes this many bytes.
const FETCH_BYTES_MAX: usize = 256 << 10;
/// A thread's buffer for values is given back when it grew beyond this.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// The map and the lock of its folder, as long as the database, a snapshot or an iterator lives.
struct Store {
    map: Map,
    unsettled: Unsettled,
    /// Released after the map is closed.
    _lock: Lock,
}

/// The engine.
pub(crate) struct HartEngine(Arc<Store>);

impl HartEngine {
    /// Opens the map in the folder `pool`, and makes it when there is none.
    pub(crate) fn open(pool: &Path, create: bool, lock: Lock) -> Result<Self> {
        let map = Map::options()
            .create(create)
            .durability(Durability::Interval(INTERVAL))
            .snapshot_bytes_max(SNAPSHOT_BYTES_MAX)
            .open(pool)?;
        Ok(Self(Arc::new(Store { map, unsettled: Unsettled::new(), _lock: lock })))
    }

    /// True when there are no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.map.is_empty()
    }
}

impl Store {
    /// Runs a synced write: readers of its keys wait for it until it is durable. When the medium failed first they hear
    /// so for ever.
    fn synced<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        write: impl FnOnce() -> mangrove::Result<()>,
    ) -> Result<()> {
        if let Some(error) = self.map.refusal() {
            // Nothing is written any more: no more keys shall be lost to readers.
            return Err(error.into());
        }
        let held = self.unsettled.hold(keys);
        let done = write().and_then(|()| self.map.sync());
        if let Err(Error::Poisoned { .. } | Error::Io { .. }) = done {
            held.for_ever();
        }
        Ok(done?)
    }

    /// Waits until what was read of `key` just now cannot be lost, if somebody was promised that.
    fn settle(&self, key: &[u8]) -> Result<()> {
        if self.unsettled.is(key) { Ok(self.map.sync()?) } else { Ok(()) }
    }
}

impl Engine for HartEngine {
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

    fn write(&self, batch: &leveldb_writebatch_t, sync: bool) -> Result<()> {
        let store = &*self.0;
        let keys = batch.changes().map(|change| match change {
            Change::Put(key, _) | Change::Delete(key) => key,
        });
        let write = || {
            let mut changes = batch.changes();
            match (changes.len(), changes.next()) {
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
                self.0.settle(key)?;
                found(value);
                return Ok(());
            }
            self.0.settle(key)
        })
    }

    fn view(&self) -> Result<Arc<dyn View>> {
        let snapshot = HeldSnapshot::try_new(Arc::clone(&self.0), |store| store.map.snapshot())?;
        if self.0.unsettled.any() {
            self.0.map.sync()?;
        }
        Ok(Arc::new(HartView(snapshot)))
    }

    fn compact(&self) -> Result<()> {
        Ok(self.0.map.checkpoint()?)
    }

    fn check(&self) -> Result<Vec<String>> {
        Ok(self.0.map.check()?.problems)
    }

    fn figures(&self) -> Figures {
        let stat = self.0.map.stat();
        Figures {
            records: stat.records,
            memory_bytes: stat.index_bytes + stat.allocator_bytes + stat.snapshot_bytes + stat.durable_bytes,
            durable_bytes: stat.durable_bytes,
            log_bytes_used: stat.log_bytes_used,
            group_commits: stat.group_commits,
            views: stat.snapshots,
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

fn as_map_batch(batch: &leveldb_writebatch_t) -> Batch {
    let mut out = Batch::new();
    for change in batch.changes() {
        match change {
            Change::Put(key, value) => out.put(key, value),
            Change::Delete(key) => out.delete(key),
        };
    }
    out
}

/// Lends this thread's buffer for values, so that a read allocates nothing.
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
        // A thread that is being torn down has none.
        (_, Some(work)) => work(&mut Vec::new()),
        (_, None) => Err(Failure::corruption("a read ended without an answer")),
    }
}

/// Synced writes that took effect or are about to, and are not known to be durable, by buckets: two keys may share
/// one, and then wait for each other's writes.
struct Unsettled {
    any: AtomicU32,
    buckets: Box<[AtomicU32]>,
}

/// Counts a write in, until dropped.
struct Hold<'a, K: Iterator<Item = &'a [u8]>> {
    unsettled: &'a Unsettled,
    keys: K,
}

impl Unsettled {
    fn new() -> Self {
        let buckets = (0..BUCKET_COUNT).map(|_| AtomicU32::new(0)).collect();
        Self { any: AtomicU32::new(0), buckets }
    }

    fn bucket(&self, key: &[u8]) -> &AtomicU32 {
        &self.buckets[bucket_of(key)]
    }

    fn hold<'a, 'k: 'a>(
        &'a self,
        keys: impl Iterator<Item = &'k [u8]> + Clone + 'a,
    ) -> Hold<'a, impl Iterator<Item = &'a [u8]> + Clone> {
        // SeqCst, with the loads below: whoever sees the write in the map sees that it is held.
        self.any.fetch_add(1, Ordering::SeqCst);
        let keys = keys.map(|key| -> &'a [u8] { key });
        for key in keys.clone() {
            self.bucket(key).fetch_add(1, Ordering::SeqCst);
        }
        Hold { unsettled: self, keys }
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

impl<'a, K: Iterator<Item = &'a [u8]>> Hold<'a, K> {
    /// The write is not durable and never will be.
    #[cold]
    fn for_ever(self) {
        // Counted in from now on.
        std::mem::forget(self);
    }
}

impl<'a, K: Iterator<Item = &'a [u8]>> Drop for Hold<'a, K> {
    fn drop(&mut self) {
        // Release, with the loads of readers: whoever sees that nothing is held may rely on the sync.
        for key in &mut self.keys {
            self.unsettled.bucket(key).fetch_sub(1, Ordering::Release);
        }
        self.unsettled.any.fetch_sub(1, Ordering::Release);
    }
}

self_cell!(
    /// A snapshot and the store that it is of.
    struct HeldSnapshot {
        owner: Arc<Store>,
        #[not_covariant]
        dependent: Snapshot,
    }
);

struct HartView(HeldSnapshot);

impl View for HartView {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(value) = self.0.with_dependent(|_, snapshot| snapshot.get(key))? {
            found(&value);
        }
        Ok(())
    }

    fn cursor(self: Arc<Self>) -> Box<dyn Cursor> {
        Box::new(HartCursor { view: self, walk: None, page: Page::default() })
    }
}

self_cell!(
    /// A walk over a view, and the view.
    struct HeldWalk {
        owner: Arc<HartView>,
        #[not_covariant]
        dependent: WalkRange,
    }
);

/// The walk itself.
struct WalkRange<'a>(Range<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Records that were fetched together, in the direction of their walk.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    /// Beginnings of key and value, and the end of the value.
    records: Vec<[usize; 3]>,
    /// The record that the cursor stands on; nowhere when it is beyond the last.
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

/// A walk in one direction, made anew when the cursor seeks or turns round.
struct Walk {
    held: HeldWalk,
    direction: Direction,
    fetch_count: usize,
}

struct HartCursor {
    view: Arc<HartView>,
    walk: Option<Walk>,
    page: Page,
}

impl HartCursor {
    /// Starts a walk between the bounds and stands on its first record.
    fn start(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.walk = None;
        self.page.clear();
        let held = HeldWalk::try_new(Arc::clone(&self.view), |view| {
            view.0.with_dependent(|_, snapshot| snapshot.range::<&[u8]>((from, to))).map(WalkRange)
        })?;
        self.walk = Some(Walk { held, direction, fetch_count: FETCH_COUNT_MIN });
        self.fetch()
    }

    /// Fetches the next records of the walk.
    fn fetch(&mut self) -> Result<()> {
        let page = &mut self.page;
        page.clear();
        let Some(walk) = &mut self.walk else { return Ok(()) };
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
        if done.is_err() || page.records.is_empty() {
            self.walk = None;
            page.clear();
        }
        Ok(done?)
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

impl Cursor for HartCursor {
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
