//! Stand-in engine in plain memory until the durable one lands. Nothing survives.

use crate::{Batch, CheckReport, Durability, Error, MapOptions, Medium, PoolInfo, Result, Stat};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

type Tree = BTreeMap<Vec<u8>, Vec<u8>>;
pub(crate) type Walk = std::vec::IntoIter<(Vec<u8>, Vec<u8>)>;

pub(crate) struct Temporary {
    path: PathBuf,
    read_only: bool,
    durability: Durability,
    tree: RwLock<Arc<Tree>>,
}

pub(crate) struct Frozen(Arc<Tree>);

impl Frozen {
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn walk(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Walk {
        let empty = match bounds {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            _ => false,
        };
        if empty {
            return Vec::new().into_iter();
        }
        self.0.range::<[u8], _>(bounds).map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>().into_iter()
    }
}

impl Temporary {
    pub(crate) fn open(path: &Path, options: &MapOptions) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            read_only: options.read_only,
            durability: options.durability,
            tree: RwLock::default(),
        })
    }

    fn tree(&self) -> RwLockReadGuard<'_, Arc<Tree>> {
        self.tree.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn tree_mut(&self) -> Result<RwLockWriteGuard<'_, Arc<Tree>>> {
        if self.read_only {
            return Err(Error::ReadOnly { path: self.path.clone() });
        }
        Ok(self.tree.write().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn read<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.tree().get(key).map(|v| read(v))
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Arc::make_mut(&mut *self.tree_mut()?).insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(Arc::make_mut(&mut *self.tree_mut()?).remove(key).is_some())
    }

    pub(crate) fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut tree = self.tree_mut()?;
        if tree.get(key).map(Vec::as_slice) != expected {
            return Ok(false);
        }
        match new {
            Some(value) => Arc::make_mut(&mut tree).insert(key.to_vec(), value.to_vec()),
            None => Arc::make_mut(&mut tree).remove(key),
        };
        Ok(true)
    }

    pub(crate) fn write(&self, batch: Batch) -> Result<()> {
        let mut tree = self.tree_mut()?;
        let tree = Arc::make_mut(&mut tree);
        for (key, value) in batch.ops {
            match value {
                Some(value) => tree.insert(key, value),
                None => tree.remove(&key),
            };
        }
        Ok(())
    }

    pub(crate) fn delete_range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        let keys: Vec<_> = self.freeze().walk(bounds).map(|(k, _)| k).collect();
        let mut tree = self.tree_mut()?;
        let tree = Arc::make_mut(&mut tree);
        Ok(keys.iter().filter(|k| tree.remove(*k).is_some()).count() as u64)
    }

    pub(crate) fn freeze(&self) -> Frozen {
        Frozen(self.tree().clone())
    }

    pub(crate) fn len(&self) -> u64 {
        self.tree().len() as u64
    }

    pub(crate) fn stat(&self) -> Stat {
        let tree = self.tree();
        Stat {
            records: tree.len() as u64,
            index_bytes: 0,
            allocator_bytes: 0,
            durable_bytes: 0,
            image_bytes: 0,
            capacity: 0,
            log_bytes: 0,
            log_bytes_used: 0,
            medium: Medium::Auto,
            durability: self.durability,
            read_only: self.read_only,
            log_full_waits: 0,
            group_commits: 0,
            log_bytes_written: 0,
            image_bytes_written: 0,
            checkpoints: 0,
            snapshots: 0,
            snapshot_bytes: 0,
            poisoned: None,
        }
    }

    pub(crate) fn check(&self) -> CheckReport {
        CheckReport { records: self.len(), ..CheckReport::default() }
    }

    pub(crate) fn info(&self) -> PoolInfo {
        PoolInfo {
            path: self.path.clone(),
            version: 0,
            uuid: String::new(),
            kind: "map".into(),
            medium: Medium::Auto,
            capacity: 0,
            image_bytes: 0,
            log_bytes: 0,
            clean: false,
            busy: true,
        }
    }
}

pub(crate) fn pool_info(path: &Path) -> Result<PoolInfo> {
    Err(Error::NotFound { path: path.to_owned() })
}

pub(crate) fn pool_check(path: &Path) -> Result<Vec<String>> {
    Err(Error::NotFound { path: path.to_owned() })
}
