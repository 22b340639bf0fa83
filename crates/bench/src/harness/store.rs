//! The common interface of the stores that are compared on a disk: Mangrove and its peers.

use anyhow::Result;
use std::path::Path;

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Once it survives a power cut.
    Sync,
    /// At once; the store makes it durable later.
    Async,
}

/// A kind of store.
pub trait StoreKind: Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;
    /// Opens the store in the directory `dir`, which exists, and creates it if `dir` is empty.
    ///
    /// # Errors
    /// The store's own.
    fn open(&self, dir: &Path, mode: SyncMode) -> Result<Box<dyn OpenStore>>;
}

/// An open store. Writes follow the mode in which it was opened.
pub trait OpenStore: Send + Sync {
    /// Sets a key.
    ///
    /// # Errors
    /// The store's own.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Reads a key into `value`; false when it is not there.
    ///
    /// # Errors
    /// The store's own.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Reads several keys and returns how many it found with `len` bytes of value. Reads them one by one where the
    /// store has no call for it.
    ///
    /// # Errors
    /// The store's own.
    fn get_many(&self, keys: &[&[u8]], len: usize) -> Result<usize> {
        let mut value = Vec::with_capacity(len);
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, &mut value)? && value.len() == len);
        }
        Ok(found)
    }
    /// Removes a key.
    ///
    /// # Errors
    /// The store's own.
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Sets many keys, all or nothing.
    ///
    /// # Errors
    /// The store's own.
    fn batch(&self, records: &[(&[u8], &[u8])]) -> Result<()>;
    /// Visits all records in ascending order; returns how many.
    ///
    /// # Errors
    /// The store's own.
    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;
    /// Visits up to `count` records in ascending order from `from` on; returns how many.
    ///
    /// # Errors
    /// The store's own.
    fn scan_from(&self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;
    /// Makes everything so far durable.
    ///
    /// # Errors
    /// The store's own.
    fn sync(&self) -> Result<()>;
    /// Gives space of deleted records back to the disk; false where the store has no call for that.
    ///
    /// # Errors
    /// The store's own.
    fn compact(&self) -> Result<bool> {
        Ok(false)
    }
    /// Closes cleanly.
    ///
    /// # Errors
    /// The store's own.
    fn close(self: Box<Self>) -> Result<()>;
}
