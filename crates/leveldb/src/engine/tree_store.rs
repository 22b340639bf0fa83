//! An open database of the tree's engine: the runtime and its clients, the tree in the durable region, and how it is
//! read and written.

use crate::change_list::{Change, ChangeList};
use crate::engine::catalog::DirectoryLock;
use crate::engine::pins::Pins;
use crate::engine::tree_cursor::{TreeHolder, must_have_answered, no_answer};
use crate::engine::unacked_syncs::UnackedSyncs;
use crate::status::{Failure, FailureKind, Result, caught_uncancelled};
use crate::tree::load::RightEdge;
use crate::tree::tree::{RecordTree, Refusal, TreeMemory};
use mangrove_durable::route::{mangrove_arena_alloc, mangrove_arena_free};
use mangrove_durable::{Client, Runtime, will_write};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that can run calls at the same time without waiting for each other.
pub(super) const CLIENTS: usize = 64;
/// The least and the most address space of a database.
#[cfg(not(test))]
const CAPACITY_BYTES: (u64, u64) = (64 << 30, 256 << 30);
/// Tests open several databases in one process. With this little address space none is made where another is to be
/// opened: of places of 256 GiB there are only 248.
#[cfg(test)]
const CAPACITY_BYTES: (u64, u64) = (1 << 30, 1 << 30);
/// Records of the queue that one sweep frees before other writes get their turn.
const SWEEP_COUNT: usize = 10_000;

/// Address space of a new database: twice the machine's memory, within bounds. The smaller it is, the more databases
/// that different processes created fit into one address space.
pub(super) fn capacity() -> u64 {
    // SAFETY: no memory is involved; a negative result means "not known".
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let memory = pages.max(0) as u64 * page_bytes.max(0) as u64;
    (2 * memory).next_power_of_two().clamp(CAPACITY_BYTES.0, CAPACITY_BYTES.1)
}

/// The durable region, inside commands.
pub(super) struct DurableMemory;

impl TreeMemory for DurableMemory {
    fn alloc(&self, bytes: usize, align: usize) -> *mut u8 {
        // SAFETY: the tree is written inside commands only.
        unsafe { mangrove_arena_alloc(bytes, align) }
    }

    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { mangrove_arena_free(block) };
    }

    #[inline]
    fn wrote(&self, at: *const u8, bytes: usize) {
        will_write(at, bytes);
    }
}

/// An open database, as long as it, a snapshot or an iterator lives.
pub(super) struct TreeStore {
    /// Dropped before the runtime, which ends when it has no client. Each is made when a thread needs it: a write looks
    /// at all of them.
    pub(super) clients: Vec<Mutex<Option<Client>>>,
    pub(super) runtime: Option<Arc<Runtime>>,
    pub(super) tree: UnsafeCell<RecordTree<DurableMemory>>,
    /// Where an import continues; of writers, as the tree.
    pub(super) edge: UnsafeCell<RightEdge>,
    pub(super) pins: Pins,
    /// Counts batches: positions in the tree are valid as long as it does not change.
    pub(super) changes: AtomicU64,
    pub(super) unacked_syncs: UnackedSyncs,
    /// Everything is written at its place, without a log, until it is compacted once.
    pub(super) is_import: bool,
    /// Released last.
    pub(super) _lock: DirectoryLock,
}

// SAFETY: commands, which run alone, write the tree, and the clients' read sections read it. Beyond a read section
// readers only keep records that their pin keeps.
unsafe impl Send for TreeStore {}
// SAFETY: as above.
unsafe impl Sync for TreeStore {}

impl Drop for TreeStore {
    fn drop(&mut self) {
        self.clients.clear();
        if let Some(runtime) = self.runtime.take() {
            // A caller that must know whether its writes are durable syncs them.
            let _ = runtime.close();
        }
    }
}

impl From<mangrove_durable::Error> for Failure {
    fn from(error: mangrove_durable::Error) -> Self {
        use mangrove_durable::Error as Below;
        let kind = match &error {
            error if error.is_damage() => FailureKind::Corruption,
            Below::Tracker { .. } | Below::Invalid { .. } => FailureKind::NotSupported,
            _ => FailureKind::IoError,
        };
        Self::new(kind, error.to_string())
    }
}

pub(super) fn refusal(why: Refusal) -> Failure {
    match why {
        Refusal::Full => Failure::new(
            FailureKind::IoError,
            "no space left for the records of this write; nothing was changed. The disk or the address space of the \
             database is full, or a file of it has the size that this process may write (ulimit -f), or the process \
             has the memory that it may have (its control group, the machine, MANGROVE_LEVELDB_MEMORY_MAX)",
        ),
        Refusal::Disordered => Failure::corruption(
            "the comparator does not order the keys as it did when they were written; nothing was changed. Open the \
             database with the comparator it was made with",
        ),
        Refusal::NoAnswer => no_answer(),
    }
}

/// What one write does.
#[derive(Clone, Copy)]
pub(super) enum WriteKind<'a> {
    One(Change<'a>),
    Many(ChangeList<'a>),
    /// As `Many`, of an import: after a failure a part of them may be there.
    Load(ChangeList<'a>),
    /// Frees versions that no reader needs.
    Sweep,
}

/// Argument of a write command.
struct WriteCommand<'a> {
    store: &'a TreeStore,
    kind: WriteKind<'a>,
    sync: bool,
    outcome: std::result::Result<u64, Refusal>,
}

/// # Safety
/// `arg` is a `WriteCommand`; runs as a command.
unsafe extern "C" fn write(arg: *mut c_void) {
    // SAFETY: by contract; a command runs alone, so nothing else uses the tree.
    let (writing, tree) = unsafe {
        let writing = &mut *arg.cast::<WriteCommand<'_>>();
        let tree = &mut *writing.store.tree.get();
        (writing, tree)
    };
    let store = writing.store;
    let readers = store.pins.readers();
    // Relaxed: readers load it inside their sections, which the runtime orders after this command.
    store.changes.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the tree.
    let edge = unsafe { &mut *store.edge.get() };
    if !matches!(writing.kind, WriteKind::Load(_)) {
        edge.forget();
    }
    writing.outcome = match writing.kind {
        WriteKind::One(change) => tree.apply(std::iter::once(change), &readers),
        WriteKind::Many(batch) => tree.apply(batch.changes(), &readers),
        WriteKind::Load(batch) => tree.load(edge, batch.changes(), &readers),
        WriteKind::Sweep => {
            tree.sweep(&readers, SWEEP_COUNT);
            Ok(tree.number())
        }
    };
    if let (true, Ok(number)) = (writing.sync, writing.outcome) {
        match writing.kind {
            WriteKind::One(change) => store.unacked_syncs.note_sync(number, std::iter::once(change)),
            WriteKind::Many(batch) | WriteKind::Load(batch) => {
                store.unacked_syncs.note_sync(number, batch.changes());
            }
            WriteKind::Sweep => {}
        }
    }
}

impl TreeHolder for TreeStore {
    type Memory = DurableMemory;

    #[inline]
    fn read<R>(&self, call: impl FnOnce(&RecordTree<DurableMemory>) -> R) -> Result<R> {
        // SAFETY: inside a read section no thread writes the tree.
        let (answer, _) = self.with_client(|client| client.read(|| call(unsafe { &*self.tree.get() })))?;
        Ok(answer)
    }

    fn get_at(&self, key: &[u8], number: u64, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.get(key, Some(number), found)
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn release(&self, number: u64) {
        self.pins.release(number);
    }
}

impl TreeStore {
    pub(super) fn runtime(&self) -> &Arc<Runtime> {
        self.runtime.as_ref().unwrap_or_else(|| unreachable!("only `drop` takes it"))
    }

    /// A place for a client that no other thread uses now.
    fn place(&self) -> MutexGuard<'_, Option<Client>> {
        thread_local! {
            static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let first = PLACE
            .try_with(|place| {
                if place.get() == usize::MAX {
                    place.set(NEXT.fetch_add(1, Ordering::Relaxed));
                }
                place.get()
            })
            .unwrap_or(0);
        let at = |offset: usize| &self.clients[first.wrapping_add(offset) % CLIENTS];
        for offset in 0..CLIENTS {
            if let Ok(client) = at(offset).try_lock() {
                return client;
            }
        }
        // A client is whole even if a thread panicked while it held the client.
        at(0).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `call` with a client that no other thread uses now.
    #[inline]
    pub(super) fn with_client<R>(
        &self,
        call: impl FnOnce(&mut Client) -> mangrove_durable::Result<R>,
    ) -> mangrove_durable::Result<R> {
        let mut place = self.place();
        let client = match &mut *place {
            Some(client) => client,
            empty => empty.insert(self.runtime().client()?),
        };
        call(client)
    }

    pub(super) fn write(&self, kind: WriteKind<'_>, sync: bool) -> Result<()> {
        let mut writing = WriteCommand { store: self, kind, sync, outcome: Err(Refusal::Full) };
        let args = [(&raw mut writing).cast()];
        // SAFETY: `write` gets its argument, which lives until the call returns.
        self.with_client(|client| unsafe {
            if sync { client.write_synced(write, &args) } else { client.write(write, &args).map(drop) }
        })?;
        let number = writing.outcome.map_err(refusal)?;
        if sync {
            self.unacked_syncs.note_durable(number);
        }
        Ok(())
    }

    /// Waits until the caller may return what it read. The synced batch `number` may be in it, and may not be durable
    /// yet. The caller got the number inside its read section, when no batch was between its command and its commit.
    #[inline]
    pub(super) fn wait_durable(&self, number: u64) -> Result<()> {
        if self.unacked_syncs.is_durable(number) {
            return Ok(());
        }
        caught_uncancelled(|| {
            // That batch itself may have been refused (because the disk was full, say): then the medium continues
            // without it.
            if let Some(error) = self.runtime().failure() {
                return Err(error.into());
            }
            self.runtime().sync()?;
            self.unacked_syncs.note_durable(number);
            Ok(())
        })
    }

    /// Calls `found` with the value of `key` at `number`, or now.
    pub(super) fn get(&self, key: &[u8], number: Option<u64>, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        let synced = self.read(|tree| -> Result<u64> {
            let record = tree.get(key, number.unwrap_or(u64::MAX));
            must_have_answered(tree.order())?;
            // An absent key may have been deleted just now. Before `found`, which may overwrite the key: in C++ it may
            // lie in the string that gets the value.
            let synced = match (number, record) {
                (Some(_), _) => 0,
                (None, _) if tree.order().is_bytewise() => self.unacked_syncs.last_sync_of(key),
                // The program's comparator may take keys of other bytes for this one.
                (None, Some(record)) => self.unacked_syncs.last_sync_of(record.key()),
                (None, None) => self.unacked_syncs.last_sync_upto(u64::MAX),
            };
            if let Some(record) = record {
                found(record.value());
            }
            Ok(synced)
        })??;
        self.wait_durable(synced)
    }

    pub(super) fn sweep(&self) -> Result<()> {
        while self.read(RecordTree::has_leftovers)? {
            let before = self.read(|tree| tree.first_leftover())?;
            self.write(WriteKind::Sweep, false)?;
            if self.read(|tree| tree.first_leftover())? == before {
                break;
            }
        }
        Ok(())
    }
}
