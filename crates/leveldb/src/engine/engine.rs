//! The interface between LevelDB's API and an engine, which holds the records.

use crate::change_list::ChangeList;
use crate::status::Result;
use std::cmp::Ordering;
use std::sync::Arc;

/// What is opened, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineRequest {
    /// A database that is there.
    Existing,
    /// A database that may be missing.
    Create,
    /// A new database that is filled without a log: before [`StorageEngine::compact`] has ended that, nothing is
    /// durable, and there is no database. Later writes fail.
    Import,
}

impl EngineRequest {
    /// The files may be missing.
    pub(crate) fn creates(self) -> bool {
        self != Self::Existing
    }

    /// The files are written without a log.
    pub(crate) fn is_bulk_load(self) -> bool {
        self == Self::Import
    }

    /// A write that returned survives the death of the process.
    pub(crate) fn keeps_recent(self) -> bool {
        self != Self::Import
    }
}

/// An open engine. Any number of threads may call it at the same time.
///
/// A write with `sync` is durable when it returns. One without survives the death of the process when it returns, and
/// becomes durable soon, in order with all others; a power cut before that keeps a prefix of them. No read returns
/// what a synced write in progress may still lose.
pub(crate) trait StorageEngine: Send + Sync {
    /// Sets a key.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;
    /// Removes a key, which need not be there.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;
    /// Applies a batch: all of it or nothing, for readers as for crashes.
    fn write(&self, batch: ChangeList<'_>, sync: bool) -> Result<()>;
    /// As `write` without sync, for an import: after an error some of the changes may be there. Fast where keys ascend
    /// and come after all others.
    fn load(&self, batch: ChangeList<'_>) -> Result<()> {
        self.write(batch, false)
    }
    /// Calls `found` with the value of `key`, once, if there is one.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// This instant, to read from while writers continue.
    fn view(&self) -> Result<Arc<dyn ReadView>>;
    /// Makes everything so far durable, frees versions that no reader needs, and brings the files up to date.
    fn compact(&self) -> Result<()>;
    /// Ends an import: everything is durable then. Gives nothing back, because that would read what has been written.
    fn end_load(&self) -> Result<()> {
        self.compact()
    }
    /// Gives memory back that an import does not need any more.
    fn page_out_loaded(&self) -> Result<()> {
        Ok(())
    }
    /// Reads everything against its checksums and rules; returns one message for each thing that is wrong.
    fn check(&self) -> Result<Vec<String>>;
    /// Records now. Unlike all figures, they are there at once.
    fn record_count(&self) -> Result<u64> {
        Ok(self.figures().records)
    }
    /// Figures of the engine.
    fn figures(&self) -> Figures;
    /// The order of two keys.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
}

/// An instant. It keeps the engine open.
pub(crate) trait ReadView: Send + Sync {
    /// As [`StorageEngine::get`], at this instant.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// A cursor over the records of this instant, which stands on no record yet.
    fn cursor(self: Arc<Self>) -> Box<dyn RecordCursor>;
}

/// A place among the records of an instant. One thread at a time.
///
/// After an error, and after stepping beyond either end, the cursor stands on no record.
pub(crate) trait RecordCursor: Send {
    /// Goes to the first record.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Goes to the last record.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Goes to the first record whose key is `key` or comes after it.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Goes to the next record. Does nothing when the cursor stands on no record.
    fn next(&mut self) -> Result<()>;
    /// Goes to the record before. Does nothing when the cursor stands on no record.
    fn prev(&mut self) -> Result<()>;
    /// Key and value of the current record; they stay valid until the cursor moves.
    fn record(&self) -> Option<(&[u8], &[u8])>;
}

/// Size and activity of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Records now.
    pub(crate) records: u64,
    /// Bytes of their keys and values; 0 where the engine does not count them.
    pub(crate) record_bytes: u64,
    /// DRAM in use for the records, their versions and what finds them, in bytes.
    pub(crate) memory_bytes: u64,
    /// Bytes of the image, the files that the records are read from when the database is opened.
    pub(crate) durable_bytes: u64,
    /// Bytes of the redo log that wait to be applied.
    pub(crate) log_bytes_used: u64,
    /// Commits to the log since the database was opened; writes of several threads share one.
    pub(crate) commits: u64,
    /// Snapshots and iterators that are alive.
    pub(crate) views: u64,
}
