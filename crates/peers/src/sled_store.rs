//! sled 0.34: its default tree. Synced means `flush()` after each write, which is what sled offers: sync_file_range
//! on Linux, so it is not durable across a power cut.

use mangrove_bench::{OpenStore, StoreKind, SyncMode};
use std::path::Path;

/// See the file head.
pub(crate) struct Sled;

struct Open {
    db: sled::Db,
    mode: SyncMode,
}

impl StoreKind for Sled {
    fn name(&self) -> &'static str {
        "sled"
    }

    fn open(&self, dir: &Path, mode: SyncMode) -> anyhow::Result<Box<dyn OpenStore>> {
        let db = sled::Config::new()
            .path(dir.join("db"))
            .cache_capacity(crate::cache::CACHE_BYTES as u64)
            .open()?;
        Ok(Box::new(Open { db, mode }))
    }
}

impl Open {
    fn settle(&self) -> anyhow::Result<()> {
        if self.mode == SyncMode::Sync {
            self.db.flush()?;
        }
        Ok(())
    }
}

impl OpenStore for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.db.insert(key, value)?;
        self.settle()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> anyhow::Result<bool> {
        value.clear();
        let found = self.db.get(key)?;
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> anyhow::Result<()> {
        self.db.remove(key)?;
        self.settle()
    }

    fn batch(&self, records: &[(&[u8], &[u8])]) -> anyhow::Result<()> {
        let mut batch = sled::Batch::default();
        for (key, value) in records {
            batch.insert(*key, *value);
        }
        self.db.apply_batch(batch)?;
        self.settle()
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<u64> {
        let mut count = 0;
        for record in self.db.iter() {
            let (key, value) = record?;
            visit(&key, &value);
            count += 1;
        }
        Ok(count)
    }

    fn scan_from(
        &self,
        from: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> anyhow::Result<usize> {
        let mut seen = 0;
        for record in self.db.range(from..).take(count) {
            let (key, value) = record?;
            visit(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn sync(&self) -> anyhow::Result<()> {
        self.db.flush()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.sync()
    }
}
