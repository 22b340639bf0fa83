//! Synced batches that are not known to be durable; readers of their keys wait for them.

use crate::change_list::Change;
use mangrove_sys::{KEY_BUCKET_COUNT, key_bucket};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of synced batches, and of the last one known to be durable. After the medium fails, some batches never
/// become durable, and no key of their buckets may be returned any more.
pub(super) struct UnackedSyncs {
    /// The last synced batch.
    last_synced: AtomicU64,
    /// The last batch known to be durable.
    last_durable: AtomicU64,
    /// The last synced batch of each bucket of keys.
    buckets: Box<[AtomicU64]>,
}

impl UnackedSyncs {
    /// Everything up to the batch `number` is durable.
    pub(super) fn new(number: u64) -> Self {
        Self {
            last_synced: AtomicU64::new(number),
            last_durable: AtomicU64::new(number),
            buckets: (0..KEY_BUCKET_COUNT).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The command that applied the batch calls this. Relaxed: readers load these inside their read sections, which
    /// come after the command.
    pub(super) fn note_sync<'a>(&self, number: u64, changes: impl Iterator<Item = Change<'a>>) {
        for change in changes {
            let (Change::Put(key, _) | Change::Delete(key)) = change;
            self.buckets[key_bucket(key)].store(number, Ordering::Relaxed);
        }
        self.last_synced.store(number, Ordering::Relaxed);
    }

    /// Everything up to the batch `number` is durable.
    pub(super) fn note_durable(&self, number: u64) {
        // Release: partner is the Acquire in `is_durable`.
        self.last_durable.fetch_max(number, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_durable(&self, number: u64) -> bool {
        number <= self.last_durable.load(Ordering::Acquire)
    }

    /// The last synced batch up to `number`, or a somewhat later one.
    #[inline]
    pub(super) fn last_sync_upto(&self, number: u64) -> u64 {
        number.min(self.last_synced.load(Ordering::Relaxed))
    }

    /// The last synced batch that may have changed `key`.
    #[inline]
    pub(super) fn last_sync_of(&self, key: &[u8]) -> u64 {
        let last = self.last_synced.load(Ordering::Relaxed);
        if self.is_durable(last) {
            return last;
        }
        self.buckets[key_bucket(key)].load(Ordering::Relaxed)
    }
}
