//! Mangrove through its facade, on a disk: what a user gets.

use crate::harness::store::{OpenStore, StoreKind, SyncMode};
use crate::report::report::OURS;
use anyhow::Result;
use mangrove::{Batch, Durability, Map, Medium};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Interval durability: a write becomes durable at most this much later.
const INTERVAL: Duration = Duration::from_millis(100);

/// The map on the file medium.
pub(crate) struct MangroveStore;

struct Open(Map);

impl StoreKind for MangroveStore {
    fn name(&self) -> &'static str {
        OURS
    }

    fn open(&self, dir: &Path, mode: SyncMode) -> Result<Box<dyn OpenStore>> {
        let durability = match mode {
            SyncMode::Sync => Durability::Sync,
            SyncMode::Async => Durability::Interval(INTERVAL),
        };
        let map = Map::options().medium(Medium::File).durability(durability).open(dir.join("pool"))?;
        Ok(Box::new(Open(map)))
    }
}

impl OpenStore for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.0.get_into(key, value)?)
    }

    fn get_many(&self, keys: &[&[u8]], len: usize) -> Result<usize> {
        let mut found = 0;
        let mut copy = Vec::with_capacity(len);
        // The peers copy values, too.
        self.0.get_many_with(keys, |_, value| {
            copy.clear();
            copy.extend_from_slice(value.unwrap_or_default());
            found += usize::from(value.is_some() && std::hint::black_box(&copy).len() == len);
        })?;
        Ok(found)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.delete(key)?;
        Ok(())
    }

    fn batch(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = Batch::new();
        for (key, value) in records {
            batch.put(key, value);
        }
        Ok(self.0.write(batch)?)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        self.0.iter()?.visit(|key, value| {
            visit(key, value);
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    fn scan_from(&self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut seen = 0;
        if count > 0 {
            self.0.range(from..)?.visit(|key, value| {
                visit(key, value);
                seen += 1;
                if seen < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(seen)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn compact(&self) -> Result<bool> {
        self.0.compact()?;
        Ok(true)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
