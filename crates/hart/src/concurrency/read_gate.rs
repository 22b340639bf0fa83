//! What a reader waits for before it returns: the durability of what it read, and the end of a batch's publication.
//!
//! A reader must not return what a crash can undo. On a medium with a log the index shows a write before the write is
//! durable. So a writer raises the bucket of its key to its log position before it publishes the write, and a reader
//! that finds the bucket beyond the durable position waits for that position. Keys share buckets: a reader may wait
//! for a write to another key, but never too briefly.
//!
//! After the medium fails, a bucket's log position would block all of its keys for ever. So every write registers as
//! pending while it runs, and a write that fails records its keys. Once nothing is pending, only the recorded keys
//! are unsafe to return.
//!
//! A batch sets [`PUBLISHING`] in the buckets of its keys before it publishes the first of them, and clears it after
//! the last. A reader that meets a set bit reads again afterwards. So no reader sees a part of a batch: once one read
//! has returned a value of the batch, every later read does.

use crate::Result;
use crate::concurrency::pause::pause;
use mangrove_pool::{Lsn, Region};
use mangrove_sys::{KEY_BUCKET_COUNT, key_bucket};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bit of a bucket while a batch publishes keys of it.
const PUBLISHING: u64 = 1 << 63;
/// A position that is never durable.
pub(crate) const LSN_NEVER: Lsn = PUBLISHING - 1;

/// One log position for each bucket of keys, and which writes failed.
#[derive(Debug)]
pub(crate) struct ReadGate {
    buckets: Box<[AtomicU64]>,
    /// Batches that are publishing now: 0 or 1.
    publishing: AtomicU64,
    gated: bool,
    /// Writes that have begun and whose outcome is not known yet.
    pending_writes: AtomicU64,
    /// No writer waits for the writes before this position; only the medium knows whether they became durable.
    unawaited_lsn: AtomicU64,
    /// Keys of writes that the medium failed to make durable.
    failed_keys: Mutex<BTreeSet<Box<[u8]>>>,
}

/// A write from its beginning to its acknowledgement; it counts as pending while this lives. Empty where readers do
/// not wait for durability.
#[must_use]
pub(crate) struct PendingWrite<'a>(Option<&'a ReadGate>);

impl PendingWrite<'_> {
    /// The writer does not wait for `lsn`, so it will not learn the outcome.
    #[inline]
    pub(crate) fn leave_unawaited(self, lsn: Lsn) {
        if let Some(gate) = self.0 {
            gate.unawaited_lsn.fetch_max(lsn, Ordering::SeqCst);
        }
    }

    /// The medium failed before the write of `keys` was durable.
    #[cold]
    pub(crate) fn record_failure<'k>(self, keys: impl Iterator<Item = &'k [u8]>) {
        let Some(gate) = self.0 else { return };
        for key in keys {
            gate.failed_keys.lock().insert(Box::from(key));
            // The log position of the write may be durable by now, but its writer got an error. Readers must not
            // learn more.
            gate.note_write(key, LSN_NEVER);
        }
    }
}

impl Drop for PendingWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.pending_writes.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl ReadGate {
    /// With `gated`, readers wait for durability.
    pub(crate) fn new(gated: bool) -> Self {
        let buckets = (0..KEY_BUCKET_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self {
            buckets,
            publishing: AtomicU64::new(0),
            gated,
            pending_writes: AtomicU64::new(0),
            unawaited_lsn: AtomicU64::new(0),
            failed_keys: Mutex::default(),
        }
    }

    /// Registers a write. Call it before [`ReadGate::note_write`] and [`ReadGate::begin_publish`].
    #[inline]
    pub(crate) fn begin_write(&self) -> PendingWrite<'_> {
        if self.gated {
            self.pending_writes.fetch_add(1, Ordering::SeqCst);
        }
        PendingWrite(self.gated.then_some(self))
    }

    /// After the medium failed: true when it is known that no write failed to a key that `is_among` looks for.
    fn are_durable(&self, region: &Region, is_among: impl Fn(&BTreeSet<Box<[u8]>>) -> bool) -> bool {
        self.pending_writes.load(Ordering::SeqCst) == 0
            && self.unawaited_lsn.load(Ordering::SeqCst) <= region.medium().durable()
            && !is_among(&self.failed_keys.lock())
    }

    /// As [`ReadGate::wait_durable`], for all keys of which `is_meant` is true, present or absent.
    ///
    /// # Errors
    /// As there.
    #[cold]
    pub(crate) fn wait_all_durable(&self, region: &Region, is_meant: impl Fn(&[u8]) -> bool) -> Result<()> {
        if self.are_durable(region, |failed| failed.iter().any(|key| is_meant(key))) {
            return Ok(());
        }
        Ok(region.wait(region.appended())?)
    }

    /// True when readers wait for durability.
    #[inline]
    pub(crate) fn is_gated(&self) -> bool {
        self.gated
    }

    /// The writer of `key` calls this before it publishes what it flushed before `lsn` ([`crate::Hart::flushed`]).
    #[inline]
    pub(crate) fn note_write(&self, key: &[u8], lsn: Lsn) {
        if self.gated {
            // Release by way of the index's unlock; partner is the Acquire in `wait_durable`.
            self.buckets[key_bucket(key)].fetch_max(lsn, Ordering::AcqRel);
        }
    }

    /// Call it after a validated read of `key`, present or absent. True when the caller may return what it read: this
    /// call has waited until that is durable. False when the caller must read again.
    ///
    /// # Errors
    /// The medium failed before what was read became durable: the caller must not return it.
    #[inline]
    pub(crate) fn wait_durable(&self, region: &Region, key: &[u8]) -> Result<bool> {
        if !self.gated && self.publishing.load(Ordering::Acquire) == 0 {
            return Ok(true);
        }
        self.wait_durable_slow(region, key)
    }

    #[inline(never)]
    fn wait_durable_slow(&self, region: &Region, key: &[u8]) -> Result<bool> {
        let bucket = &self.buckets[key_bucket(key)];
        // Acquire: partners are `note_write` and `begin_publish`. A thread that saw the value sees its bucket.
        let mark = bucket.load(Ordering::Acquire);
        if mark & PUBLISHING != 0 {
            let mut tries = 0u32;
            while bucket.load(Ordering::Acquire) & PUBLISHING != 0 {
                pause(&mut tries);
            }
            return Ok(false);
        }
        if self.gated && mark > region.medium().durable() {
            let waited = region.wait(mark);
            if waited.is_err() && self.are_durable(region, |failed| failed.contains(key)) {
                // Another key of the bucket is the one whose write failed.
                return Ok(true);
            }
            waited?;
        }
        Ok(true)
    }

    /// Begins to publish a batch that was committed by what was flushed before `lsn` ([`crate::Hart::flushed`]).
    pub(crate) fn begin_publish<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, lsn: Lsn) {
        // Release: partner is the Acquire in `wait_durable`. A thread that sees a key of the batch sees this.
        self.publishing.store(1, Ordering::SeqCst);
        for key in keys {
            let bucket = &self.buckets[key_bucket(key)];
            let raised = (bucket.load(Ordering::Relaxed) & !PUBLISHING).max(lsn);
            bucket.store(raised | PUBLISHING, Ordering::SeqCst);
        }
    }

    /// Ends the publication of `keys`.
    pub(crate) fn end_publish<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        for key in keys {
            self.buckets[key_bucket(key)].fetch_and(!PUBLISHING, Ordering::Release);
        }
        self.publishing.store(0, Ordering::Release);
    }
}
