//! redb 4: one table; each put is a transaction. Unsynced means Durability::None.

use mangrove_bench::{OpenStore, StoreKind, SyncMode};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

/// See the file head.
pub(crate) struct Redb;

struct Open {
    db: Database,
    durability: Durability,
}

impl StoreKind for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn open(&self, dir: &Path, mode: SyncMode) -> anyhow::Result<Box<dyn OpenStore>> {
        let db = Database::builder().set_cache_size(crate::cache::CACHE_BYTES).create(dir.join("db.redb"))?;
        let durability = match mode {
            SyncMode::Sync => Durability::Immediate,
            SyncMode::Async => Durability::None,
        };
        let open = Open { db, durability };
        open.write(Durability::Immediate, &[])?;
        Ok(Box::new(open))
    }
}

impl Open {
    fn write(&self, durability: Durability, records: &[(&[u8], &[u8])]) -> anyhow::Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(durability)?;
        {
            let mut table = txn.open_table(TABLE)?;
            for (key, value) in records {
                table.insert(*key, *value)?;
            }
        }
        Ok(txn.commit()?)
    }
}

impl OpenStore for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.write(self.durability, &[(key, value)])
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> anyhow::Result<bool> {
        value.clear();
        let txn = self.db.begin_read()?;
        let table = txn.open_table(TABLE)?;
        let found = table.get(key)?;
        Ok(match found {
            Some(guard) => {
                value.extend_from_slice(guard.value());
                true
            }
            None => false,
        })
    }

    /// In one read transaction.
    fn get_many(&self, keys: &[&[u8]], len: usize) -> anyhow::Result<usize> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(TABLE)?;
        let mut value = Vec::with_capacity(len);
        let mut found = 0;
        for key in keys {
            if let Some(guard) = table.get(*key)? {
                value.clear();
                value.extend_from_slice(guard.value());
                found += usize::from(value.len() == len);
            }
        }
        Ok(found)
    }

    fn delete(&self, key: &[u8]) -> anyhow::Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability)?;
        txn.open_table(TABLE)?.remove(key)?;
        Ok(txn.commit()?)
    }

    fn batch(&self, records: &[(&[u8], &[u8])]) -> anyhow::Result<()> {
        self.write(self.durability, records)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<u64> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(TABLE)?;
        let mut count = 0;
        for record in table.iter()? {
            let (key, value) = record?;
            visit(key.value(), value.value());
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
        let txn = self.db.begin_read()?;
        let table = txn.open_table(TABLE)?;
        let mut seen = 0;
        for record in table.range(from..)?.take(count) {
            let (key, value) = record?;
            visit(key.value(), value.value());
            seen += 1;
        }
        Ok(seen)
    }

    fn sync(&self) -> anyhow::Result<()> {
        self.write(Durability::Immediate, &[])
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.sync()
    }
}
