//! What readers wait for: durability of what they are about to return, and batches half published.
//!
//! Nobody may return what a crash can undo. On a medium with a log a write is seen before it is durable; so a
//! writer raises the bucket of its key to its position in the log before it publishes, and a reader that finds
//! its bucket beyond the durable position waits for it before it answers. Buckets are shared by keys: a reader
//! may wait for a stranger, never too short.
//!
//! When the medium has failed a bucket would say too much for the rest of the process's life: each of its keys, acknowledged
//! long ago or not. So from begin to end of a write somebody is known to be under way, and a write that failed leaves
//! its keys behind; when nobody is under way, those keys are all that is not durable.
//!
//! A batch marks the buckets of its keys before it publishes the first and unmarks them after the last. A
//! reader that meets a marked bucket reads again afterwards: so no reader sees a batch in part, in the sense
//! that after one read answered from the batch every later read does.

use crate::Result;
use mangrove_pmem::{Lsn, Region};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

const BUCKET_COUNT: usize = 4096;
/// Bit of a bucket while a batch publishes keys of it.
const PENDING: u64 = 1 << 63;
/// A position that is never durable.
pub(crate) const NEVER: Lsn = PENDING - 1;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Visible {
    buckets: Box<[AtomicU64]>,
    /// Batches publishing at this moment: 0 or 1.
    publishing: AtomicU64,
    gated: bool,
    /// Writes that were begun and whose fate their writers do not know yet.
    under_way: AtomicU64,
    /// Nobody waits for the writes before this position: what became of them only the medium knows.
    nobody_waits: AtomicU64,
    /// Keys of writes that the medium failed.
    failed: Mutex<BTreeSet<Box<[u8]>>>,
}

/// A write between its beginning and its acknowledgement, where readers wait for durability.
#[must_use]
pub(crate) struct Fate<'a>(Option<&'a Visible>);

impl Fate<'_> {
    /// The writer does not wait: it goes without knowing.
    #[inline]
    pub(crate) fn nobody_waits(self, lsn: Lsn) {
        if let Some(visible) = self.0 {
            visible.nobody_waits.fetch_max(lsn, Ordering::SeqCst);
        }
    }

    /// The medium failed before the write of these keys was durable.
    #[cold]
    pub(crate) fn has_failed<'k>(self, keys: impl Iterator<Item = &'k [u8]>) {
        let Some(visible) = self.0 else { return };
        for key in keys {
            visible.failed.lock().insert(Box::from(key));
            // Its position may be durable by now, and nobody is to be told more than its writer was.
            visible.raise(key, NEVER);
        }
    }
}

impl Drop for Fate<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(visible) = self.0 {
            visible.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The bucket of a key.
#[inline]
pub(crate) fn bucket_of(key: &[u8]) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(29) ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    (hash >> 52) as usize
}

const _: () = assert!(BUCKET_COUNT == 1 << 12);

impl Visible {
    /// With `gated`, readers wait for durability.
    pub(crate) fn new(gated: bool) -> Self {
        let buckets = (0..BUCKET_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self {
            buckets,
            publishing: AtomicU64::new(0),
            gated,
            under_way: AtomicU64::new(0),
            nobody_waits: AtomicU64::new(0),
            failed: Mutex::default(),
        }
    }

    /// A write begins: to be called before it raises or marks anything.
    #[inline]
    pub(crate) fn begin(&self) -> Fate<'_> {
        if self.gated {
            self.under_way.fetch_add(1, Ordering::SeqCst);
        }
        Fate(self.gated.then_some(self))
    }

    /// After the medium failed: whether it is known that no write failed of the keys that `is_among` looks for.
    fn are_durable(&self, region: &Region, is_among: impl Fn(&BTreeSet<Box<[u8]>>) -> bool) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
            && self.nobody_waits.load(Ordering::SeqCst) <= region.medium().durable()
            && !is_among(&self.failed.lock())
    }

    /// As [`Visible::settled`], for all keys of which `is_meant` is true, there or not.
    ///
    /// # Errors
    /// As there.
    #[cold]
    pub(crate) fn all_settled(&self, region: &Region, is_meant: impl Fn(&[u8]) -> bool) -> Result<()> {
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

    /// Called by the writer of `key` before it publishes what it flushed before `lsn` ([`crate::Hart::flushed`]).
    #[inline]
    pub(crate) fn raise(&self, key: &[u8], lsn: Lsn) {
        if self.gated {
            // Release by way of the index's unlock, with the Acquire in `settled`.
            self.buckets[bucket_of(key)].fetch_max(lsn, Ordering::AcqRel);
        }
    }

    /// Called after a validated read of `key`, absent or not: true when the answer stands (having waited for
    /// its durability), false when the caller must read again.
    ///
    /// # Errors
    /// The medium failed before what was read became durable: the answer must not be given.
    #[inline]
    pub(crate) fn settled(&self, region: &Region, key: &[u8]) -> Result<bool> {
        if !self.gated && self.publishing.load(Ordering::Acquire) == 0 {
            return Ok(true);
        }
        self.settled_slow(region, key)
    }

    #[inline(never)]
    fn settled_slow(&self, region: &Region, key: &[u8]) -> Result<bool> {
        let bucket = &self.buckets[bucket_of(key)];
        // Acquire, with `raise` and `mark`: who saw the value sees its bucket.
        let mark = bucket.load(Ordering::Acquire);
        if mark & PENDING != 0 {
            let mut tries = 0u32;
            while bucket.load(Ordering::Acquire) & PENDING != 0 {
                tries += 1;
                if tries < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
            return Ok(false);
        }
        if self.gated && mark > region.medium().durable() {
            let waited = region.wait(mark);
            if waited.is_err() && self.are_durable(region, |failed| failed.contains(key)) {
                // Its bucket is that of another key, whose write failed.
                return Ok(true);
            }
            waited?;
        }
        Ok(true)
    }

    /// Begins to publish a batch that is committed by what was flushed before `lsn` ([`crate::Hart::flushed`]).
    pub(crate) fn mark<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, lsn: Lsn) {
        // Release, with the Acquire in `settled`: who sees a key of the batch sees this.
        self.publishing.store(1, Ordering::SeqCst);
        for key in keys {
            let bucket = &self.buckets[bucket_of(key)];
            let raised = (bucket.load(Ordering::Relaxed) & !PENDING).max(lsn);
            bucket.store(raised | PENDING, Ordering::SeqCst);
        }
    }

    /// Ends it.
    pub(crate) fn unmark<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        for key in keys {
            self.buckets[bucket_of(key)].fetch_and(!PENDING, Ordering::Release);
        }
        self.publishing.store(0, Ordering::Release);
    }
}
