//! What holds the records: the one door between LevelDB's API and an engine.

use crate::batch::leveldb_writebatch_t;
use crate::status::Result;
use std::cmp::Ordering;
use std::sync::Arc;

/// An open engine. Any number of threads may call it at the same time.
///
/// A write with `sync` is durable when it returns; one without becomes durable soon, in order with all
/// others, and a crash before keeps a prefix of them. No read answers what a synced write in progress
/// may still lose.
pub(crate) trait Engine: Send + Sync {
    /// Sets a key.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;
    /// Removes a key, which need not be there.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;
    /// Applies a batch: all of it or nothing, for readers as for crashes.
    fn write(&self, batch: &leveldb_writebatch_t, sync: bool) -> Result<()>;
    /// Calls `found` with the value of `key`, once, if there is one.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// This instant, to read from while writers go on.
    fn view(&self) -> Result<Arc<dyn View>>;
    /// Makes everything so far durable, gives back what nobody needs any more, and brings the files up
    /// to date.
    fn compact(&self) -> Result<()>;
    /// Reads everything against its checksums and rules; one sentence for each thing that is wrong.
    fn check(&self) -> Result<Vec<String>>;
    /// Figures.
    fn figures(&self) -> Figures;
    /// The order of two keys.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
}

/// An instant. It keeps the engine open.
pub(crate) trait View: Send + Sync {
    /// As [`Engine::get`], at this instant.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// A cursor over the records of this instant, which stands nowhere yet.
    fn cursor(self: Arc<Self>) -> Box<dyn Cursor>;
}

/// A place among the records of an instant. One thread at a time.
///
/// After an error, and after stepping off either end, the cursor stands nowhere.
pub(crate) trait Cursor: Send {
    /// Goes to the first record.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Goes to the last record.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Goes to the first record whose key is `key` or comes after it.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Goes to the next record. Nothing when the cursor stands nowhere.
    fn next(&mut self) -> Result<()>;
    /// Goes to the record before. Nothing when the cursor stands nowhere.
    fn prev(&mut self) -> Result<()>;
    /// Key and value where the cursor stands; they stay where they are until it moves.
    fn record(&self) -> Option<(&[u8], &[u8])>;
}

/// What an engine is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Records now.
    pub(crate) records: u64,
    /// DRAM in use, in bytes.
    pub(crate) memory_bytes: u64,
    /// Bytes of durable state in use.
    pub(crate) durable_bytes: u64,
    /// Bytes of the redo log that wait to be applied.
    pub(crate) log_bytes_used: u64,
    /// Device writes of the log since the database was opened.
    pub(crate) group_commits: u64,
    /// Instants that are being read from.
    pub(crate) views: u64,
}
