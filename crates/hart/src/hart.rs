//! The map.

use crate::{Batch, Error, Options, Range, RecoveryReport, Report, Result, Snapshot, Stat, WriteMode};
use mangrove_pmem::Region;
use std::ops::Bound;

/// A durable ordered map in a region.
#[derive(Debug)]
pub struct Hart {
    _region: Region,
}

fn unbuilt<T>() -> Result<T> {
    Err(Error::Unsupported { what: "the map is still being built".into() })
}

impl Hart {
    /// Makes an empty map in a region whose bytes are all zero.
    ///
    /// # Errors
    /// `Unsupported` options, or the medium's error.
    pub fn create(_region: Region, _options: &Options) -> Result<Self> {
        unbuilt()
    }

    /// Opens the map that is in the region.
    ///
    /// # Errors
    /// `Corrupt` when a structure breaks its rules, or the medium's error.
    pub fn recover(_region: Region, _options: &Options) -> Result<(Self, RecoveryReport)> {
        unbuilt()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>> {
        unbuilt()
    }

    /// Replaces the contents of `value` by the value of `key`; false (and empty) when there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_into(&self, _key: &[u8], _value: &mut Vec<u8>) -> Result<bool> {
        unbuilt()
    }

    /// Calls `read` once with the value of `key`, if there is one.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_with<R>(&self, _key: &[u8], _read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        unbuilt()
    }

    /// True when `key` is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn contains(&self, _key: &[u8]) -> Result<bool> {
        unbuilt()
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put(&self, _key: &[u8], _value: &[u8], _mode: WriteMode) -> Result<()> {
        unbuilt()
    }

    /// Sets `key` to `value` if `key` is absent; says whether it did.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn insert_new(&self, _key: &[u8], _value: &[u8], _mode: WriteMode) -> Result<bool> {
        unbuilt()
    }

    /// Removes `key`; says whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&self, _key: &[u8], _mode: WriteMode) -> Result<bool> {
        unbuilt()
    }

    /// Changes `key` from `expected` to `new` (`None` is absent); says whether `expected` was right.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn compare_and_set(
        &self,
        _key: &[u8],
        _expected: Option<&[u8]>,
        _new: Option<&[u8]>,
        _mode: WriteMode,
    ) -> Result<bool> {
        unbuilt()
    }

    /// Applies the batch, all or nothing.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn write(&self, _batch: Batch, _mode: WriteMode) -> Result<()> {
        unbuilt()
    }

    /// Removes every key between the bounds, all or nothing; returns how many there were.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete_range(&self, _start: Bound<&[u8]>, _end: Bound<&[u8]>, _mode: WriteMode) -> Result<u64> {
        unbuilt()
    }

    /// The records between the bounds, as they are at this instant.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn range(&self, _start: Bound<&[u8]>, _end: Bound<&[u8]>) -> Result<Range<'_>> {
        unbuilt()
    }

    /// This instant, to read from while writers go on.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        unbuilt()
    }

    /// Waits until everything that took effect so far is durable.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn sync(&self) -> Result<()> {
        unbuilt()
    }

    /// Records.
    #[must_use]
    pub fn len(&self) -> u64 {
        0
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures.
    #[must_use]
    pub fn stat(&self) -> Stat {
        Stat::default()
    }

    /// Verifies every structure and checksum. Writers wait meanwhile.
    ///
    /// # Errors
    /// Only when the check itself cannot run; what it finds is in the report.
    pub fn check(&self) -> Result<Report> {
        unbuilt()
    }

    /// The region that the map lives in.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self._region
    }
}
