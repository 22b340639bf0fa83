//! What the protocols share: from what a transaction wrote to the atomic group of a lease, and the wait for it.

pub(super) use crate::left_out::is_left_out;
use crate::sink::{TxWrites, Unit, UnitSize};
use mangrove_shadow::{Error, LogLease, Result, Shadow, Ticket};
use std::path::Path;

/// Bytes of log that a word takes.
const WORD_LOG_BYTES: usize = 16;
/// Bytes that a range takes beside its own, padding included.
const RANGE_LOG_BYTES: usize = 24;
/// Bytes that an atomic group takes beside its words and ranges.
const GROUP_LOG_BYTES: usize = 64;

struct Collector<'a>(&'a mut LogLease);

impl Unit for Collector<'_> {
    #[inline(always)]
    fn word(&mut self, address: usize, value: u64) {
        self.0.word(address, value);
    }

    #[inline(always)]
    fn words(&mut self, words: impl ExactSizeIterator<Item = (usize, u64)>) {
        self.0.words(words);
    }

    fn range(&mut self, address: usize, bytes: &[u8]) {
        self.0.range(address, bytes);
    }
}

/// Adds what was written, and waits for space for it. After an error the lease is empty.
#[inline]
pub(super) fn put(lease: &mut LogLease, writes: &impl TxWrites) -> Result<()> {
    writes.each(&mut Collector(lease));
    lease.reserve().inspect_err(|_| lease.clear())
}

/// The most bytes of log that an atomic group of this size takes.
pub(super) fn log_bytes(size: UnitSize) -> u64 {
    let bytes =
        GROUP_LOG_BYTES + size.words * WORD_LOG_BYTES + size.ranges * RANGE_LOG_BYTES + size.range_bytes;
    bytes as u64
}

/// Refuses a child of fork, whose log is its parent's.
#[inline(always)]
pub(super) fn refuse_child(shadow: &Shadow) -> Result<()> {
    if shadow.is_here() { Ok(()) } else { Err(forked(shadow)) }
}

#[cold]
fn forked(shadow: &Shadow) -> Error {
    Error::forked(shadow.path().unwrap_or(Path::new("the heap")))
}

/// Waits until an atomic group and every one before it is durable. The crash simulator can leave each call out.
#[inline(always)]
#[track_caller]
pub(super) fn wait(shadow: &Shadow, ticket: Ticket) -> Result<()> {
    #[cfg(feature = "silenced-steps")]
    if crate::lab::leaves_out(std::panic::Location::caller()) {
        return Ok(());
    }
    if shadow.is_durable(ticket) {
        return Ok(());
    }
    shadow.wait(ticket)
}
