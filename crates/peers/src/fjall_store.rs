//! fjall 3: one keyspace. Synced means `persist(SyncData)` after each write.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use mangrove_bench::{OpenStore, StoreKind, SyncMode};
use std::path::Path;

/// See the file head.
pub(crate) struct Fjall;

struct Open {
    db: Database,
    records: Keyspace,
    mode: SyncMode,
}

impl StoreKind for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn open(&self, dir: &Path, mode: SyncMode) -> anyhow::Result<Box<dyn OpenStore>> {
        let db = Database::builder(dir.join("db")).cache_size(crate::cache::CACHE_BYTES as u64).open()?;
        let records = db.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Box::new(Open { db, records, mode }))
    }
}

impl Open {
    fn settle(&self) -> anyhow::Result<()> {
        if self.mode == SyncMode::Sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl OpenStore for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.records.insert(key, value)?;
        self.settle()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> anyhow::Result<bool> {
        value.clear();
        let found = self.records.get(key)?;
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> anyhow::Result<()> {
        self.records.remove(key)?;
        self.settle()
    }

    fn batch(&self, records: &[(&[u8], &[u8])]) -> anyhow::Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in records {
            batch.insert(&self.records, *key, *value);
        }
        batch.commit()?;
        self.settle()
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<u64> {
        let mut count = 0;
        for record in self.records.iter() {
            let (key, value) = record.into_inner()?;
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
        for record in self.records.range(from..).take(count) {
            let (key, value) = record.into_inner()?;
            visit(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn sync(&self) -> anyhow::Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.sync()
    }
}
