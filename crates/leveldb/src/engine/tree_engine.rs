//! The default engine: an ordinary ordered structure in memory (`tree/tree.rs`), made durable by the runtime.
//!
//! Batches run as write commands: one thread executes the commands of all threads, tracked, and commits several of
//! them as one atomic group. Reads run concurrently on the memory itself. The tree reports its own writes (the
//! explicit tracker), so that a program's comparator, whatever language it is written in, runs natively.
//!
//! The runtime is opened in interval durability, in which no write waits. A synced write waits for a sync of its own,
//! and readers of its keys wait with it (`unacked_syncs.rs`).

use crate::change_list::{Change, ChangeList};
use crate::engine::catalog::DirectoryLock;
use crate::engine::engine::{EngineRequest, Figures, ReadView, StorageEngine};
use crate::engine::pins::Pins;
use crate::engine::tree_cursor::{TreeHolder, TreeView, must_have_answered};
use crate::engine::tree_store::{CLIENTS, DurableMemory, TreeStore, WriteKind, capacity, refusal};
use crate::engine::unacked_syncs::UnackedSyncs;
use crate::order::{BYTEWISE, KeyOrder, NamedOrder};
use crate::status::{Failure, Result};
use crate::tree::tree::{RecordTree, Refusal, TreeRoot};
use mangrove_durable::route::is_persistent;
use mangrove_durable::{Create, Durability, Options, Runtime, TrackerChoice, will_write};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// A write without sync is durable after at most this many milliseconds.
const INTERVAL_MS: u32 = 5;
/// The engine `durable`.
pub(crate) struct TreeEngine(Arc<TreeStore>);

/// Argument of the first command of a new state.
struct Making {
    order: Option<KeyOrder>,
    /// The word of the region that refers to the tree.
    place: *mut usize,
    done: bool,
}

/// # Safety
/// `arg` is a `Making`; runs as a command.
unsafe extern "C" fn make(arg: *mut c_void) {
    // SAFETY: by contract.
    let making = unsafe { &mut *arg.cast::<Making>() };
    let Some(order) = making.order.take() else { return };
    if let Ok(tree) = RecordTree::create(order, DurableMemory) {
        will_write(making.place.cast(), size_of::<usize>());
        // SAFETY: by contract: a word of the region.
        unsafe { making.place.write(tree.root() as usize) };
        making.done = true;
    }
}

/// Opens the state in the directory `pool`, whatever it holds; `opening` says whether it may be missing.
fn open_state(pool: &Path, opening: EngineRequest, memory_bytes_max: Option<u64>) -> Result<Arc<Runtime>> {
    let mut options = Options::new()
        .create(if opening.creates() { Create::IfMissing } else { Create::Never })
        .durability(Durability::interval_ms(INTERVAL_MS))
        .keeps_recent(opening.keeps_recent())
        .bulk_load(opening.is_bulk_load())
        .new_capacity(capacity())
        .tracker(TrackerChoice::Explicit)
        .self_contained(true)
        .returns_memory(true);
    if let Some(bytes) = memory_bytes_max {
        options = options.memory_bytes_max(bytes);
    }
    // SAFETY: there is nothing to initialise; the state is this library's, and the root's mark gives its format.
    Ok(unsafe { Runtime::open(pool, &options, None) }?)
}

/// Runs `work` while the state in the directory `pool` is open, if the state is blank. Returns whether it ran.
pub(crate) fn if_blank(pool: &Path, work: impl FnOnce() -> Result<()>) -> Result<bool> {
    let runtime = open_state(pool, EngineRequest::Existing, None)?;
    let done = if runtime.is_blank() { work().map(|()| true) } else { Ok(false) };
    // Nothing was written, so nothing can be lost.
    let _ = runtime.close();
    done
}

impl TreeEngine {
    /// Opens the state in the directory `pool`; `opening` says whether it may be missing.
    /// `memory_bytes_max` as in the runtime.
    pub(crate) fn open(
        pool: &Path,
        opening: EngineRequest,
        memory_bytes_max: Option<u64>,
        order: &NamedOrder,
        lock: DirectoryLock,
    ) -> Result<Self> {
        let runtime = open_state(pool, opening, memory_bytes_max)?;
        let place = runtime.roots();
        let no_root =
            || Failure::corruption(format!("{}: the state has no records' root in it", pool.display()));
        // SAFETY: the region's first root word. A crash before the first command leaves it 0.
        let has_root = unsafe { place.read() } != 0;
        // Without a root only a blank state is one of ours, whose creation was interrupted.
        let is_begun = runtime.is_new() || opening.creates() && runtime.is_blank();
        if !has_root && !is_begun {
            return Err(no_root());
        }
        let mut client = runtime.client()?;
        if !has_root {
            let mut making = Making { order: Some(KeyOrder::new(order.comparator)), place, done: false };
            // SAFETY: `make` gets its argument.
            unsafe { client.write(make, &[(&raw mut making).cast()]) }?;
            runtime.sync()?;
            if !making.done {
                return Err(refusal(Refusal::Full));
            }
        }
        // SAFETY: no thread writes the word any more. What it refers to can be read, and a mark of a root there is
        // the one that `make` stored, since pages are verified when the state is opened.
        let tree = unsafe {
            let root = place.read();
            let ends = [root, root.wrapping_add(size_of::<TreeRoot>() - 1)];
            (root.is_multiple_of(align_of::<TreeRoot>()) && ends.into_iter().all(is_persistent))
                .then(|| {
                    RecordTree::open(root as *mut TreeRoot, KeyOrder::new(order.comparator), DurableMemory)
                })
                .flatten()
        };
        let mut tree = tree.ok_or_else(no_root)?;
        if order.name == BYTEWISE {
            tree.keep_form();
        }
        let number = tree.number();
        let mut clients = vec![Mutex::new(Some(client))];
        clients.resize_with(CLIENTS, Mutex::default);
        Ok(Self(Arc::new(TreeStore {
            clients,
            runtime: Some(runtime),
            tree: UnsafeCell::new(tree),
            edge: UnsafeCell::default(),
            pins: Pins::default(),
            changes: AtomicU64::new(0),
            unacked_syncs: UnackedSyncs::new(number),
            is_import: opening.is_bulk_load(),
            _lock: lock,
        })))
    }

    /// True when there are no records.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        self.0.read(|tree| tree.size().0 == 0)
    }

    fn write_one(&self, change: Change<'_>, sync: bool) -> Result<()> {
        self.0.write(WriteKind::One(change), sync)
    }
}

impl StorageEngine for TreeEngine {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::Put(key, value), sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::Delete(key), sync)
    }

    fn write(&self, batch: ChangeList<'_>, sync: bool) -> Result<()> {
        self.0.write(WriteKind::Many(batch), sync)
    }

    fn load(&self, batch: ChangeList<'_>) -> Result<()> {
        self.0.write(WriteKind::Load(batch), false)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.0.get(key, None, found)
    }

    fn view(&self) -> Result<Arc<dyn ReadView>> {
        let store = Arc::clone(&self.0);
        let number = store.read(|tree| {
            let number = tree.number();
            store.pins.take(number);
            number
        })?;
        let view = Arc::new(TreeView { store, number });
        view.store.wait_durable(view.store.unacked_syncs.last_sync_upto(number))?;
        Ok(view)
    }

    fn compact(&self) -> Result<()> {
        self.0.sweep()?;
        self.0.move_together()?;
        Ok(self.0.runtime().compact().map(drop)?)
    }

    fn end_load(&self) -> Result<()> {
        self.0.sweep()?;
        Ok(self.0.runtime().checkpoint()?)
    }

    fn page_out_loaded(&self) -> Result<()> {
        Ok(self.0.runtime().page_out_loaded()?)
    }

    fn check(&self) -> Result<Vec<String>> {
        self.0.read(|tree| -> Result<Vec<String>> {
            let problems = tree.check();
            must_have_answered(tree.order())?;
            Ok(problems)
        })?
    }

    fn record_count(&self) -> Result<u64> {
        self.0.read(|tree| tree.size().0)
    }

    fn figures(&self) -> Figures {
        let (records, bytes) = self.0.read(RecordTree::size).unwrap_or_default();
        let stat = self.0.runtime().stat();
        // All of the state is in memory, but for pages that are free.
        let arena = self.0.runtime().arena().unwrap_or_default();
        Figures {
            records,
            record_bytes: bytes,
            memory_bytes: arena.bytes - arena.free_bytes,
            durable_bytes: arena.bytes,
            log_bytes_used: stat.state.log_used,
            commits: stat.batches,
            views: self.0.pins.count(),
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        // SAFETY: the order never changes.
        let order = unsafe { &*self.0.tree.get() }.order();
        let answer = order.compare(a, b);
        order.answered();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::slice;
    use crate::engine::catalog;
    use crate::objects::Comparator;
    use mangrove_sys::set_cancelable;
    use std::ffi::{c_char, c_int};

    /// The thread that waits may be the one that writes the log.
    #[test]
    fn a_cancellation_waits_until_a_read_has_waited_for_a_synced_write() {
        let directory = tempfile::tempdir().unwrap();
        let lock = catalog::lock(directory.path()).unwrap();
        let pool = catalog::pool(directory.path());
        let order = NamedOrder::bytewise();
        let engine = TreeEngine::open(&pool, EngineRequest::Create, None, &order, lock).unwrap();
        let work = || {
            engine.put(b"key", b"value", false).unwrap();
            let number = engine.0.read(RecordTree::number).unwrap();
            // As another thread's write is, between its command and its commit.
            engine.0.unacked_syncs.note_sync(number, std::iter::once(Change::Delete(b"key")));
            assert!(!engine.0.unacked_syncs.is_durable(number));
            let mut found = Vec::new();
            // SAFETY: this thread, which lives; it ends by itself, because cancellation is off when it does.
            assert_eq!(unsafe { libc::pthread_cancel(libc::pthread_self()) }, 0);
            let read = engine.get(b"key", &mut |value| found = value.to_vec());
            set_cancelable(false);
            read.unwrap();
            assert_eq!(found, b"value");
            assert!(engine.0.unacked_syncs.is_durable(number));
        };
        std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
    }

    /// Takes capitals and small letters for equal.
    unsafe extern "C" fn no_case(
        _: *mut c_void,
        a: *const c_char,
        a_len: usize,
        b: *const c_char,
        b_len: usize,
    ) -> c_int {
        // SAFETY: `Comparator::compare` passes slices.
        let (a, b) = unsafe { (slice(a, a_len).unwrap(), slice(b, b_len).unwrap()) };
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()) as c_int
    }

    #[test]
    fn a_read_waits_for_a_synced_write_of_an_equal_key_of_other_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let lock = catalog::lock(directory.path()).unwrap();
        let pool = catalog::pool(directory.path());
        let order = NamedOrder { name: b"no case".to_vec(), comparator: Some(Comparator::of(no_case)) };
        let engine = TreeEngine::open(&pool, EngineRequest::Create, None, &order, lock).unwrap();
        for change in [Change::Put(b"KEY", b"value"), Change::Delete(b"KEY")] {
            match change {
                Change::Put(key, value) => engine.put(key, value, false).unwrap(),
                Change::Delete(key) => engine.delete(key, false).unwrap(),
            }
            let number = engine.0.read(RecordTree::number).unwrap();
            // As another thread's write is, between its command and its commit.
            engine.0.unacked_syncs.note_sync(number, std::iter::once(change));
            assert!(!engine.0.unacked_syncs.is_durable(number));
            let mut found = None;
            engine.get(b"key", &mut |value| found = Some(value.to_vec())).unwrap();
            assert_eq!(found.is_some(), matches!(change, Change::Put(..)));
            assert!(engine.0.unacked_syncs.is_durable(number));
        }
    }
}
