//! The redo log that keeps nothing: transactions that are atomic and isolated, and not durable.

use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use crate::sync::{AtomicU64, Ordering};
use std::convert::Infallible;

/// Draws dense numbers and keeps nothing.
#[derive(Debug, Default)]
pub struct VolatileLog {
    newest: Alone,
}

/// On cache lines of its own (two: the prefetcher fetches pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Alone(AtomicU64);

impl Default for Alone {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl VolatileLog {
    /// A log whose first number is 1.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl RedoLog for VolatileLog {
    type Sink<'log> = VolatileSink<'log>;
    const KEEPS: bool = false;
    const DENSE: bool = true;

    fn sink(&self) -> VolatileSink<'_> {
        VolatileSink { log: self }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        // Acquire pairs with the stores of `number` and `number_alone`.
        self.newest.0.load(Ordering::Acquire)
    }
}

/// A thread's way to the counter.
#[derive(Debug)]
pub struct VolatileSink<'log> {
    log: &'log VolatileLog,
}

impl RedoSink for VolatileSink<'_> {
    type Error = Infallible;

    fn prepare(&mut self, _size: UnitSize) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline(always)]
    fn put(&mut self, _writes: &impl TxWrites) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        // Release: a thread that loads this number in `newest` sees our locks. Acquire: we see the locks of those
        // before.
        self.log.newest.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    #[inline(always)]
    fn number_alone(&mut self) -> u64 {
        // Relaxed: no other thread stores to it now, and whatever made us alone has ordered the last store.
        let number = self.log.newest.0.load(Ordering::Relaxed) + 1;
        // Release pairs with the Acquire in `newest`.
        self.log.newest.0.store(number, Ordering::Release);
        number
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn void(&mut self) {}

    fn number_void(&mut self) -> u64 {
        self.number()
    }

    #[inline(always)]
    fn finish(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline(always)]
    fn settle(&mut self, _number: u64) -> Result<(), Infallible> {
        Ok(())
    }
}
