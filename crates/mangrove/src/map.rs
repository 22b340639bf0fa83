//! The durable ordered map.

use crate::convert::engine;
use crate::opening::background_recovery::{BackgroundRecovery, Outcome};
use crate::opening::engine::Engine;
use crate::reading::bounds::{bounds, prefix_bounds};
use crate::{
    Batch, CheckReport, CompactReport, Durability, Error, MapOptions, Medium, PoolInfo, Range,
    RecoveryReport, Result, Snapshot, Stat,
};
use mangrove_hart::{ClosedMap, WriteMode};
use std::mem::MaybeUninit;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The longest key, in bytes. The empty key is a key.
pub const KEY_BYTES_MAX: usize = mangrove_hart::KEY_BYTES_MAX;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = mangrove_hart::VALUE_BYTES_MAX;

/// A durable ordered map from byte strings to byte strings.
///
/// Any number of threads share it by reference. Keys are ordered byte by byte, a prefix before the keys that it
/// begins. Readers take no lock and never see a write that a crash could still undo (in [`crate::Durability::Sync`]).
///
/// One process at a time writes: it locks the pool. Dropping a map closes it in order and ignores errors;
/// [`Map::close`] returns them.
///
/// ```
/// # fn main() -> mangrove::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("mangrove-doc-map-{}", std::process::id()));
/// use mangrove::Map;
///
/// let map = Map::open(&dir)?;
/// assert!(map.insert_new("lock", "me")?); // only when it is absent
/// assert!(!map.compare_and_set("lock", Some(b"you"), None)?); // it is not "you": nothing is removed
/// assert!(map.compare_and_set("lock", Some(b"me"), Some(b"you"))?);
///
/// map.put_nowait("tide/1", "low")?; // returns before it is durable,
/// map.put_nowait("tide/2", "high")?;
/// map.sync()?; // which it is now
///
/// let tides = map.get_many(&["tide/2", "tide/3"])?; // one call for many keys
/// assert_eq!(tides, [Some(b"high".to_vec()), None]);
/// let longest = map.get_with("tide/2", |value| value.len())?; // reads without a copy
/// assert_eq!(longest, Some(4));
///
/// std::thread::scope(|threads| {
///     threads.spawn(|| map.put("from", "another thread")); // shared by reference
/// });
/// assert_eq!(map.delete_range("tide/".."tide0")?, 2); // all or nothing
/// assert_eq!(map.prefix("tide/")?.count(), 0);
/// # drop(map);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Map {
    // Dropped first: it makes the engine.
    recovering: Option<BackgroundRecovery>,
    engine: Outcome,
    /// What the pool stated when it was opened.
    info: mangrove_pool::PoolInfo,
    path: PathBuf,
    durability: Durability,
    medium_asked: Medium,
    read_only: bool,
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}

impl Map {
    /// Opens the pool at `path`, and creates it when it is not there.
    ///
    /// # Errors
    /// As [`MapOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Options to open a map with.
    #[must_use]
    pub fn options() -> MapOptions {
        MapOptions::new()
    }

    pub(crate) fn open_with(path: &Path, options: &MapOptions) -> Result<Self> {
        options.validate()?;
        let start = Instant::now();
        let options = options.memory_limited();
        let mut opening = options.pool().begin(path)?;
        let info = opening.info();
        let closed = match options.recovers_in_background_from() {
            Some(bytes) => opening.closed_pool(bytes).and_then(ClosedMap::open),
            None => None,
        };
        let (path, config) = (path.to_owned(), options.config.clone());
        let (recovering, engine) = match closed {
            Some(closed) => {
                let (recovery, outcome) =
                    BackgroundRecovery::start(closed, opening, path.clone(), options, start);
                (Some(recovery), outcome)
            }
            None => {
                let engine = Engine::open(opening, &path, &options, start, None)?;
                (None, Outcome::new(OnceLock::from(Ok(engine))))
            }
        };
        Ok(Self {
            recovering,
            engine,
            info,
            path,
            durability: config.durability,
            medium_asked: config.medium,
            read_only: config.read_only,
        })
    }

    /// The recovered map.
    #[inline]
    fn engine(&self) -> Result<&Engine> {
        match self.engine.get() {
            Some(Ok(engine)) => Ok(engine),
            _ => self.recovered(),
        }
    }

    /// Waits for the thread that recovers the map.
    #[cold]
    fn recovered(&self) -> Result<&Engine> {
        let outcome = self.recovering.as_ref().map_or_else(|| self.engine.get(), BackgroundRecovery::wait);
        match outcome {
            Some(Ok(engine)) => Ok(engine),
            Some(Err(error)) => Err(error.clone()),
            None => Err(mangrove_pool::Error::forked(&self.path).into()),
        }
    }

    /// The engine, for calls that take locks, which a child of fork may have got from its parent's threads.
    fn engine_here(&self) -> Result<&Engine> {
        let engine = self.engine()?;
        if engine.hart.is_here() { Ok(engine) } else { Err(mangrove_pool::Error::forked(&self.path).into()) }
    }

    /// The value of `key`, if the map is not recovered yet and its files tell it.
    #[inline]
    fn early(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.engine.get().is_some() { None } else { self.recovering.as_ref()?.get(key) }
    }

    fn failed(&self, error: mangrove_hart::Error) -> Error {
        let mut error = engine(&self.path, error);
        if let Error::Full { capacity, .. } = &mut error {
            // The map only knows its region.
            *capacity = self.info.capacity;
        }
        error
    }

    /// The value of `key`, or `None`. Time: the length of the key, plus the copy of the value.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`]; [`Error::Corrupt`] when the value is not what was written;
    /// [`Error::Poisoned`] when what is there was never made durable; [`Error::NoMemory`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        if let Some(value) = self.early(key) {
            return Ok(Some(value));
        }
        self.engine()?.hart.get(key).map_err(|e| self.failed(e))
    }

    /// Replaces the contents of `value` by the value of `key` and returns whether there is one; an absent key leaves
    /// `value` empty. Allocates only when `value` is too small.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        if let Some(found) = self.early(key) {
            *value = found;
            return Ok(true);
        }
        self.engine()?.hart.get_into(key, value).map_err(|e| self.failed(e))
    }

    /// Copies the value of `key` into `buffer` and returns its length; `None` when there is no value. Allocates nothing
    /// for a value that fits. When the length is more than the buffer's, or after an error, the buffer may hold
    /// anything.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_to(&self, key: impl AsRef<[u8]>, buffer: &mut [MaybeUninit<u8>]) -> Result<Option<usize>> {
        let key = key.as_ref();
        if let Some(found) = self.early(key) {
            for (to, byte) in buffer.iter_mut().zip(&found) {
                to.write(*byte);
            }
            return Ok(Some(found.len()));
        }
        self.engine()?.hart.get_to(key, buffer).map_err(|e| self.failed(e))
    }

    /// Calls `read` with the value of `key`, once, and returns its result; `None` when there is no value.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = key.as_ref();
        if let Some(found) = self.early(key) {
            return Ok(Some(read(&found)));
        }
        self.engine()?.hart.get_with(key, read).map_err(|e| self.failed(e))
    }

    /// The values of many keys, in their order, `None` where there is none. Several times as fast as [`Map::get`] on
    /// each where the map is larger than the processor's caches: the lookups wait for memory together.
    ///
    /// Each value is what [`Map::get`] would return at some moment during the call. For values of one moment use
    /// [`Map::snapshot`].
    ///
    /// # Errors
    /// As [`Map::get`], at the first key that fails.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let mut wanted = None;
        let copy = |value: &[u8], wanted: &mut Option<u64>| {
            let mut copy = Vec::new();
            match copy.try_reserve_exact(value.len()) {
                Ok(()) => copy.extend_from_slice(value),
                Err(_) => *wanted = Some(value.len() as u64),
            }
            copy
        };
        self.get_many_with(keys, |_, value| values.push(value.map(|value| copy(value, &mut wanted))))?;
        wanted.map_or(Ok(values), |wanted| Err(Error::NoMemory { wanted }))
    }

    /// As [`Map::get_many`], without a list: calls `read` for each key, in their order, with its index in `keys` and
    /// its value.
    ///
    /// # Errors
    /// As [`Map::get`], at the first key that fails; `read` may have been called for those before it.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        // Those that the files tell, up to the first that they do not tell.
        let mut done = 0;
        while let Some(value) = keys.get(done).and_then(|key| self.early(key.as_ref())) {
            read(done, Some(&value));
            done += 1;
        }
        if done == keys.len() {
            return Ok(());
        }
        let rest = |number, value: Option<&[u8]>| read(done + number, value);
        self.engine()?.hart.get_many(&keys[done..], rest).map_err(|e| self.failed(e))
    }

    /// True when `key` is there.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        Ok(self.early(key).is_some() || self.engine()?.hart.contains(key).map_err(|e| self.failed(e))?)
    }

    /// Sets `key` to `value`. `Ok` acknowledges the write.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::ReadOnly`], [`Error::NoSpace`], [`Error::Full`],
    /// [`Error::FileLimit`] and [`Error::MemoryLimit`]: nothing changed. [`Error::Poisoned`] and [`Error::Io`]: not
    /// acknowledged; whether the write survives a restart is open.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.engine()?.hart.put(key.as_ref(), value.as_ref(), WriteMode::Durable).map_err(|e| self.failed(e))
    }

    /// As [`Map::put`], but returns before the write is durable, whatever the durability. It becomes durable within
    /// about 100 ms ([`MapOptions::nowait_within`]), with [`Durability::Interval`] within about the interval, or when
    /// the process ends by a return from `main` or by [`std::process::exit`], and [`Map::sync`] waits for it. A crash
    /// before that keeps a prefix of such writes; so do `_exit`, `exec` and a signal that ends the process.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn put_nowait(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.engine()?.hart.put(key.as_ref(), value.as_ref(), WriteMode::Buffered).map_err(|e| self.failed(e))
    }

    /// Sets `key` to `value` when `key` is absent. Returns whether it did.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn insert_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.engine()?
            .hart
            .insert_new(key.as_ref(), value.as_ref(), WriteMode::Durable)
            .map_err(|e| self.failed(e))
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.engine()?.hart.delete(key.as_ref(), WriteMode::Durable).map_err(|e| self.failed(e))
    }

    /// As [`Map::delete`], but returns before it is durable. See [`Map::put_nowait`].
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn delete_nowait(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.engine()?.hart.delete(key.as_ref(), WriteMode::Buffered).map_err(|e| self.failed(e))
    }

    /// Changes `key` from `expected` to `new`, where `None` means absent. Returns whether `expected` was right. No
    /// other write happens in between.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.engine()?
            .hart
            .compare_and_set(key.as_ref(), expected, new, WriteMode::Durable)
            .map_err(|e| self.failed(e))
    }

    /// Applies a batch: after a crash all of it is there or nothing, and no reader sees a part.
    ///
    /// # Errors
    /// As [`Map::put`], and [`Error::Mismatch`] when a record is not as the batch expects; on the errors that change
    /// nothing, nothing of the batch happened.
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.engine()?.hart.write(batch.inner, WriteMode::Durable).map_err(|e| self.failed(e))
    }

    /// Removes every key between the bounds, all or nothing; returns how many there were. Like [`Map::delete`] and a
    /// batch of deletes it needs no space: a full pool can always be emptied.
    ///
    /// # Errors
    /// As [`Map::write`].
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let (start, end) = bounds(&range);
        self.engine()?.hart.delete_range(start, end, WriteMode::Durable).map_err(|e| self.failed(e))
    }

    /// The records between the bounds, in order and from both ends, as they are at this instant.
    ///
    /// # Errors
    /// As [`Map::wait_recovered`]. What of the records cannot be read, the walk reports.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Range<'_>> {
        let (start, end) = bounds(&range);
        let walk = self.engine_here()?.hart.range(start, end).map_err(|e| self.failed(e))?;
        Ok(Range::new(walk, &self.path))
    }

    /// The records whose key begins with `prefix`, in order.
    ///
    /// # Errors
    /// As [`Map::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'_>> {
        self.range::<Vec<u8>>(prefix_bounds(prefix.as_ref()))
    }

    /// All records, in order.
    ///
    /// # Errors
    /// As [`Map::range`].
    pub fn iter(&self) -> Result<Range<'_>> {
        self.range::<&[u8]>(..)
    }

    /// This instant, to read from while writers continue.
    ///
    /// # Errors
    /// As [`Map::wait_recovered`]. What cannot be read, the reads of the snapshot report.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot::new(self.engine_here()?.hart.snapshot().map_err(|e| self.failed(e))?, &self.path))
    }

    /// Records in the map. With durability sync it waits until they are durable, as [`Map::get`] does.
    ///
    /// Beside writers the number is off by at most what they insert and remove during the call. It is right once they
    /// have returned; [`Snapshot::len`] is right at any time.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when what was counted may never have been made durable.
    pub fn len(&self) -> Result<u64> {
        self.engine()?.hart.count().map_err(|e| self.failed(e))
    }

    /// True when there are none.
    ///
    /// # Errors
    /// As [`Map::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Why a write would be refused now, before it changed anything: the medium has failed, or the map was opened
    /// read-only. `None` when it would not be refused. Waits for a recovery in the background; if that
    /// failed, its error.
    #[must_use]
    pub fn refusal(&self) -> Option<Error> {
        match self.engine() {
            Ok(engine) => engine.hart.check_writable().err().map(|e| self.failed(e)),
            Err(error) => Some(error),
        }
    }

    /// True when the map has its pool, which therefore is locked, but takes no writes.
    pub(crate) fn has_failed_open(&self) -> bool {
        matches!(self.engine.get(), Some(Ok(engine)) if engine.hart.check_writable().is_err())
    }

    /// Of a map whose medium has failed: returns when the files change no more. No checkpoint begins, but one that
    /// began before the failure may be at work.
    pub(crate) fn wait_for_checkpoint(&self) {
        if let Some(Ok(engine)) = self.engine.get() {
            // Its error is the failure.
            let _ = engine.pool().checkpoint();
        }
    }

    /// By what a map that has been recovered reaches its pool's files.
    pub(crate) fn storage(&self) -> Option<Arc<dyn mangrove_pool::Storage>> {
        match self.engine.get() {
            Some(Ok(engine)) => engine.pool().storage(),
            _ => None,
        }
    }

    /// Waits until every write that returned so far is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`]: some may not be.
    pub fn sync(&self) -> Result<()> {
        self.engine()?.hart.sync().map_err(|e| self.failed(e))
    }

    /// Brings the data file up to date and empties the log, so that the next opening has nothing to replay. This also
    /// happens in the background; call it before copying files or measuring.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`].
    pub fn checkpoint(&self) -> Result<()> {
        self.sync()?;
        let engine = self.engine()?;
        let checkpoint = || engine.pool().checkpoint();
        // It ends a bulk load, after which nothing is written: no write may be under way.
        Ok(if engine.pool().is_loading() { engine.hart.without_writers(checkpoint) } else { checkpoint() }?)
    }

    /// Gives disk space and memory of deleted records back: moves what is left together, so that whole segments
    /// become free, and makes holes of them in the data file. Readers and writers go on meanwhile; writers wait while
    /// up to 2,000 records are looked at, of which 50 move at most. On dax and emulated media records move, but space
    /// stays with the pool. A map on the file medium does it by itself, too, when much has become free
    /// ([`MapOptions::background_compaction`]).
    ///
    /// A map that is being loaded in bulk is not compacted.
    ///
    /// Snapshots that live meanwhile keep copies of what moves, and expire if these are too many. Time: a walk over all
    /// records, about a microsecond for each that moves, and a checkpoint.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: nothing changed. [`Error::Poisoned`] and [`Error::Io`].
    pub fn compact(&self) -> Result<CompactReport> {
        if self.engine()?.pool().is_loading() {
            return Ok(CompactReport::new(mangrove_hart::Compaction::default()));
        }
        Ok(CompactReport::new(self.engine()?.hart.compact().map_err(|e| self.failed(e))?))
    }

    /// Figures of this map. Waits for a recovery in the background; of one that failed, and in a child of `fork`, they
    /// tell the error alone.
    #[must_use]
    pub fn stat(&self) -> Stat {
        match self.engine_here() {
            Ok(engine) => {
                let pool = engine.pool().stat();
                Stat::new(&pool, &self.info, &engine.hart.stat(), self.durability, self.medium_asked)
            }
            Err(error) => Stat::unrecovered(&self.info, &error, self.durability, self.medium_asked),
        }
    }

    /// Reads every record against its checksums and every structure against its rules. Writers wait meanwhile;
    /// readers do not. No crash can undo what the report counts.
    ///
    /// # Errors
    /// Only when the check itself cannot run, or as [`Map::len`]; the report lists what it finds.
    pub fn check(&self) -> Result<CheckReport> {
        Ok(CheckReport::new(&self.engine_here()?.hart.check().map_err(|e| self.failed(e))?))
    }

    /// False while calls other than gets of records that are there wait for a recovery in the background
    /// ([`MapOptions::background_recovery`]). Does not wait.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.engine.get().is_some()
    }

    /// Waits for a recovery in the background ([`MapOptions::background_recovery`]).
    ///
    /// # Errors
    /// Those of opening, [`Error::Corrupt`] above all, and that of a child of `fork`: each later call that needs the
    /// whole map fails so, too.
    pub fn wait_recovered(&self) -> Result<()> {
        self.engine_here().map(|_| ())
    }

    /// What opening this map had to do. Waits for a recovery in the background; of one that failed, the report has
    /// zeros ([`Map::wait_recovered`] has the error).
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        let failed = || RecoveryReport { clean: self.info.clean, ..RecoveryReport::default() };
        self.engine().map_or_else(|_| failed(), |engine| engine.recovery.clone())
    }

    /// What the pool stated about itself when this map opened it, and whether it is open for writing now.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        PoolInfo::new(&self.info, !self.read_only || mangrove_pool::Pool::is_busy(&self.path))
    }

    /// Ends the map as a crash does, and removes what this opening created.
    pub(crate) fn undo_creation(self) {
        if let (_, Some(Ok(engine))) = self.ended() {
            engine.undo_creation();
        }
    }

    /// Makes everything durable, brings the data file up to date, marks the pool clean and unlocks it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`]; what was acknowledged is in the log even then. Of a map that could not be
    /// recovered, why; nothing was written. [`Error::Unsupported`] in a child of `fork`: the map is the parent's.
    pub fn close(self) -> Result<()> {
        let forked = mangrove_pool::Error::forked(&self.path);
        match self.ended() {
            (_, Some(Ok(engine))) => engine.close(),
            (false, Some(Err(error))) => Err(error),
            // Ended before a call had waited for it; nothing was written.
            (true, Some(Err(_))) => Ok(()),
            (_, None) => Err(forked.into()),
        }
    }

    /// Ends a recovery that runs; tells whether one did, and what has become of the map.
    fn ended(self) -> (bool, Option<Result<Engine>>) {
        let Self { recovering, engine, .. } = self;
        let is_early = recovering.is_some_and(|mut recovery| recovery.end());
        (is_early, Arc::into_inner(engine).and_then(OnceLock::into_inner))
    }
}

impl MapOptions {
    /// Opens (or creates) the pool at `path`, a directory, and recovers the map in it.
    ///
    /// Time: reading the pool's data file once plus its log, and about 100 ns per record and CPU. Of a large map that
    /// was closed, milliseconds; then the calls that need the whole map wait that long
    /// ([`MapOptions::background_recovery`]), and report what is found to be damaged.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::Busy`], [`Error::Foreign`], [`Error::Newer`],
    /// [`Error::WrongKind`], [`Error::Corrupt`], [`Error::ReadOnly`], [`Error::NoSpace`], [`Error::FileLimit`],
    /// [`Error::MemoryLimit`], [`Error::Unsupported`] or [`Error::Io`]. The pool is as it was.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Map> {
        Map::open_with(path.as_ref(), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    #[test]
    fn a_map_whose_recovery_failed_copies_no_other_writers_files() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("p"), dir.path().join("copy"));
        let mut map = Map::open(&path).unwrap();
        map.put("key", "value").unwrap();
        // What a recovery that failed leaves: an error, and no lock.
        let failed = Error::Poisoned { first: "the thread that recovers the map panicked".to_owned() };
        map.engine = Outcome::new(OnceLock::from(Err(failed)));
        let writer = Map::open(&path).unwrap();
        writer.put("key", "another value").unwrap();
        let refused = map.backup(&copy, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(refused, Error::Poisoned { .. }) && !copy.exists(), "{refused}");
    }
}
