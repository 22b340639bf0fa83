//! An engine whose records are in this process's memory and nowhere else: the databases of LevelDB's `NewMemEnv`.
//!
//! It is the tree of the engine `durable` under a lock for readers and a writer, in ordinary memory. Nothing is
//! durable: a synced write is like any other, and everything is gone when the last part of the database is.

use crate::change_list::{Change, ChangeList};
use crate::engine::engine::{Figures, ReadView, StorageEngine};
use crate::engine::pins::Pins;
use crate::engine::tree_cursor::{TreeHolder, TreeView, must_have_answered};
use crate::engine::tree_store::refusal;
use crate::order::{KeyOrder, NamedOrder};
use crate::status::Result;
use crate::tree::tree::{RecordTree, TreeMemory};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Blocks of malloc().
struct ProcessMemory;

impl TreeMemory for ProcessMemory {
    fn alloc(&self, bytes: usize, align: usize) -> *mut u8 {
        let mut block = std::ptr::null_mut();
        // SAFETY: space for the result, which stays null when there is no memory.
        match unsafe { libc::posix_memalign(&raw mut block, align.max(size_of::<usize>()), bytes) } {
            0 => block.cast(),
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { libc::free(block.cast()) };
    }

    fn wrote(&self, _: *const u8, _: usize) {}
}

struct MemoryStore {
    tree: RwLock<RecordTree<ProcessMemory>>,
    pins: Pins,
    changes: AtomicU64,
}

// SAFETY: the lock admits one writer or any number of readers to the tree. Beyond the lock readers only keep records
// that their pin keeps.
unsafe impl Send for MemoryStore {}
// SAFETY: as above.
unsafe impl Sync for MemoryStore {}

impl MemoryStore {
    fn reading(&self) -> RwLockReadGuard<'_, RecordTree<ProcessMemory>> {
        // Nothing between two stores of the tree panics.
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, RecordTree<ProcessMemory>> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply<'a>(&self, changes: impl Iterator<Item = Change<'a>>) -> Result<()> {
        let mut tree = self.writing();
        // Relaxed: readers load it under the lock.
        self.changes.fetch_add(1, Ordering::Relaxed);
        tree.apply(changes, &self.pins.readers()).map(drop).map_err(refusal)
    }

    fn get(&self, key: &[u8], number: u64, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        let tree = self.reading();
        let record = tree.get(key, number);
        must_have_answered(tree.order())?;
        if let Some(record) = record {
            found(record.value());
        }
        Ok(())
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let tree = self.tree.get_mut().unwrap_or_else(PoisonError::into_inner);
        for block in tree.blocks() {
            // SAFETY: each block of the tree, once; nothing uses the tree any more.
            unsafe { tree.memory().free(block as *mut u8) };
        }
    }
}

impl TreeHolder for MemoryStore {
    type Memory = ProcessMemory;

    fn read<R>(&self, call: impl FnOnce(&RecordTree<ProcessMemory>) -> R) -> Result<R> {
        Ok(call(&self.reading()))
    }

    fn get_at(&self, key: &[u8], number: u64, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.get(key, number, found)
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn release(&self, number: u64) {
        self.pins.release(number);
    }
}

/// The engine.
pub(crate) struct MemoryEngine(Arc<MemoryStore>);

impl MemoryEngine {
    /// A new, empty database.
    pub(crate) fn new(order: &NamedOrder) -> Result<Self> {
        let tree = RecordTree::create(KeyOrder::new(order.comparator), ProcessMemory).map_err(refusal)?;
        Ok(Self(Arc::new(MemoryStore {
            tree: RwLock::new(tree),
            pins: Pins::default(),
            changes: AtomicU64::new(0),
        })))
    }
}

impl StorageEngine for MemoryEngine {
    fn put(&self, key: &[u8], value: &[u8], _sync: bool) -> Result<()> {
        self.0.apply(std::iter::once(Change::Put(key, value)))
    }

    fn delete(&self, key: &[u8], _sync: bool) -> Result<()> {
        self.0.apply(std::iter::once(Change::Delete(key)))
    }

    fn write(&self, batch: ChangeList<'_>, _sync: bool) -> Result<()> {
        self.0.apply(batch.changes())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.0.get(key, u64::MAX, found)
    }

    fn view(&self) -> Result<Arc<dyn ReadView>> {
        let tree = self.0.reading();
        let number = tree.number();
        self.0.pins.take(number);
        Ok(Arc::new(TreeView { store: Arc::clone(&self.0), number }))
    }

    fn compact(&self) -> Result<()> {
        let mut tree = self.0.writing();
        // What deleted records leave moves the others. Relaxed: readers load it under the lock.
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        tree.sweep(&self.0.pins.readers(), usize::MAX);
        Ok(())
    }

    fn check(&self) -> Result<Vec<String>> {
        let tree = self.0.reading();
        let problems = tree.check();
        must_have_answered(tree.order())?;
        Ok(problems)
    }

    fn figures(&self) -> Figures {
        let (records, bytes) = self.0.reading().size();
        Figures {
            records,
            record_bytes: bytes,
            memory_bytes: bytes,
            views: self.0.pins.count(),
            ..Figures::default()
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        let tree = self.0.reading();
        let answer = tree.order().compare(a, b);
        tree.order().answered();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compaction takes deleted records out of the leaf in which the walk has stopped.
    #[test]
    fn a_walk_misses_no_record_beside_a_compaction() {
        let engine = MemoryEngine::new(&NamedOrder::bytewise()).unwrap();
        for key in 0..20_u8 {
            engine.put(&[key], b"v", false).unwrap();
        }
        let before = engine.view().unwrap();
        for key in 0..3_u8 {
            engine.delete(&[key], false).unwrap();
        }
        let mut cursor = engine.view().unwrap().cursor();
        cursor.seek_to_first().unwrap();
        drop(before);
        engine.compact().unwrap();
        let mut seen = Vec::new();
        while let Some((key, _)) = cursor.record() {
            seen.push(key[0]);
            cursor.next().unwrap();
        }
        assert_eq!(seen, (3..20).collect::<Vec<u8>>());
    }
}
