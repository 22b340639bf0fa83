//! No protocol: the redo log of a heap opened read-only, which refuses every transaction that wrote.

use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use crate::sync::{AtomicU64, Ordering};
use mangrove_shadow::Error;
use mangrove_sys::ProcessMark;
use std::path::PathBuf;

/// A redo log that takes nothing.
#[derive(Debug)]
pub struct ReadOnlyLog {
    path: PathBuf,
    /// Undone transactions draw numbers, too.
    newest: AtomicU64,
    process: ProcessMark,
}

impl ReadOnlyLog {
    /// The log of the heap at `path`.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, newest: AtomicU64::new(0), process: ProcessMark::here() }
    }
}

impl RedoLog for ReadOnlyLog {
    type Sink<'log> = ReadOnlySink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = true;

    fn sink(&self) -> ReadOnlySink<'_> {
        ReadOnlySink { log: self }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        // Acquire pairs with the AcqRel in `number`.
        self.newest.load(Ordering::Acquire)
    }
}

/// One thread's way into it.
#[derive(Debug)]
pub struct ReadOnlySink<'log> {
    log: &'log ReadOnlyLog,
}

impl ReadOnlySink<'_> {
    fn refuse(&self) -> Result<(), Error> {
        Err(Error::ReadOnly { path: self.log.path.clone() })
    }
}

impl RedoSink for ReadOnlySink<'_> {
    type Error = Error;

    /// A child may wait for threads that it does not have.
    fn refuse_child(&self) -> Result<(), Error> {
        if self.log.process.is_here() { Ok(()) } else { Err(Error::forked(&self.log.path)) }
    }

    fn prepare(&mut self, _size: UnitSize) -> Result<(), Error> {
        self.refuse()
    }

    fn put(&mut self, _writes: &impl TxWrites) -> Result<(), Error> {
        self.refuse()
    }

    fn number(&mut self) -> u64 {
        // AcqRel: a thread that loads this number in `newest` sees our locks, and we see those of the numbers before.
        self.log.newest.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn seal(&mut self) -> Result<(), Error> {
        self.refuse()
    }

    fn void(&mut self) {}

    fn number_void(&mut self) -> u64 {
        self.number()
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// What opening has read is durable.
    fn settle(&mut self, _number: u64) -> Result<(), Error> {
        Ok(())
    }
}
