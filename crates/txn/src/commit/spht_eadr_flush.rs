//! SPHT-eADR with flushes: Algorithm 4 of the dissertation. As Algorithm 3 (`spht_eadr.rs`), but each commit asks
//! for its log lines to be written back, by clwb or clflushopt: no thread reads them soon, so the cache has space
//! for what is read. l. are the algorithm's lines.
//!
//! The flush comes after the hardware commit (l.17 after l.16; within a hardware transaction it would abort it),
//! and no thread waits for it: the atomic group is durable already.
//!
//! What the text leaves open:
//!
//! - l.7 belongs to `write`; there it is l.12.
//! - l.5, l.11 take `txLogEnd` before the commit record is there, so l.17 would leave that out. Here the flush goes to
//!   the end of the atomic group, in two parts where the ring ends.

use super::spht_eadr::{SphtEadr, SphtEadrSink};
use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use mangrove_shadow::{Error, LogLease, Shadow};
use std::sync::Arc;

/// The redo log of Algorithm 4.
#[derive(Debug)]
pub struct SphtEadrFlush(SphtEadr);

impl SphtEadrFlush {
    /// The redo log in a shadow whose atomic groups may have gaps, on a medium with a flush instruction.
    pub(super) fn new(shadow: Arc<Shadow>) -> Self {
        Self(SphtEadr::new(shadow))
    }
}

impl RedoLog for SphtEadrFlush {
    type Sink<'log> = SphtEadrFlushSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = false;

    fn is_stamped(&self) -> bool {
        true
    }

    fn sink(&self) -> SphtEadrFlushSink<'_> {
        SphtEadrFlushSink(self.0.sink())
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.0.newest()
    }
}

/// One thread's way into the log.
#[derive(Debug)]
pub struct SphtEadrFlushSink<'log>(SphtEadrSink<'log>);

impl RedoSink for SphtEadrFlushSink<'_> {
    type Error = Error;

    fn refuse_child(&self) -> Result<(), Error> {
        self.0.refuse_child()
    }

    #[inline(always)]
    fn announce(&mut self) {
        self.0.announce();
    }

    fn withdraw(&mut self) {
        self.0.withdraw();
    }

    fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
        self.0.prepare(size)
    }

    fn has_room(&self, size: UnitSize) -> bool {
        self.0.has_room(size)
    }

    #[inline(always)]
    fn put(&mut self, writes: &impl TxWrites) -> Result<(), Error> {
        self.0.put(writes)
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        self.0.number()
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        self.0.seal() // l.14, l.15; l.16 is the executor's.
    }

    fn void(&mut self) {
        self.0.void();
    }

    fn number_void(&mut self) -> u64 {
        self.0.number_void()
    }

    #[inline]
    fn finish(&mut self) -> Result<(), Error> {
        self.0.finish_after(LogLease::write_back) // l.17
    }

    #[inline(always)]
    fn settle(&mut self, number: u64) -> Result<(), Error> {
        self.0.settle(number)
    }
}
