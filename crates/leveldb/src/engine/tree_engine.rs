//! The default engine: an ordinary ordered structure in memory (`tree.rs`) made durable by the runtime.
//!
//! Batches run as write commands: one thread executes those of all, tracked, and commits them as one
//! unit. Reads run beside each other on the memory itself. The tree says itself what it writes (the
//! explicit tracker), so that a program's comparator, whatever it is written in, is called natively.
//!
//! The runtime is opened in interval durability, in which nobody waits; a synced write waits for a sync
//! of its own, and readers of its keys wait with it (`Promises`).

use crate::batch::{Change, leveldb_writebatch_t};
use crate::buckets::{BUCKET_COUNT, bucket_of};
use crate::catalog::Lock;
use crate::engine::{Cursor, Engine, Figures, View};
use crate::node::{Direction, Record};
use crate::options::Order;
use crate::order::KeyOrder;
use crate::pins::Pins;
use crate::status::{Failure, Kind, Result};
use crate::tree::{From, Memory, Place, Refused, Root, Tree};
use mangrove_durable::route::{is_persistent, mangrove_arena_alloc, mangrove_arena_free};
use mangrove_durable::{Client, CreateMode, Durability, Options, Runtime, TrackerChoice, will_write};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A write that nobody waits for is durable after at most this many milliseconds.
const INTERVAL_MS: u32 = 5;
/// Threads that can be inside calls at the same time without waiting for each other.
const CLIENTS: usize = 64;
/// The least and the most address space of a database.
const CAPACITY_BYTES: (u64, u64) = (64 << 30, 256 << 30);
/// Records of the first page of a walk; each further one has four times as many.
const PAGE_COUNT_MIN: usize = 2;
/// The most records of one page.
const PAGE_COUNT_MAX: usize = 128;
/// Records of the queue that one sweep frees before others get their turn.
const SWEEP_COUNT: usize = 10_000;

/// Address space of a new database: twice the machine's memory, within bounds. The smaller, the more databases of
/// different processes find places beside each other in one.
fn capacity() -> u64 {
    // SAFETY: no memory is involved; an answer below zero means "not known".
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let memory = pages.max(0) as u64 * page_bytes.max(0) as u64;
    (2 * memory).next_power_of_two().clamp(CAPACITY_BYTES.0, CAPACITY_BYTES.1)
}

/// The durable region, inside commands.
struct Arena;

impl Memory for Arena {
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

/// Batches that somebody wants to be durable, and is perhaps told so already. After the medium failed some stay
/// promised for ever, and with them the keys of their buckets are not told.
struct Promises {
    /// The last one.
    promised: AtomicU64,
    /// The last one that is known to be durable.
    kept: AtomicU64,
    /// The last one of each bucket of keys.
    buckets: Box<[AtomicU64]>,
}

impl Promises {
    /// Everything up to the batch `number` is durable.
    fn new(number: u64) -> Self {
        Self {
            promised: AtomicU64::new(number),
            kept: AtomicU64::new(number),
            buckets: (0..BUCKET_COUNT).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Called by the command that made the batch. Relaxed: readers look inside their sections, which come after it.
    fn make<'a>(&self, number: u64, changes: impl Iterator<Item = Change<'a>>) {
        for change in changes {
            let (Change::Put(key, _) | Change::Delete(key)) = change;
            self.buckets[bucket_of(key)].store(number, Ordering::Relaxed);
        }
        self.promised.store(number, Ordering::Relaxed);
    }

    /// Everything up to the batch `number` is durable.
    fn keep(&self, number: u64) {
        // Release, with the Acquire in `is_kept`.
        self.kept.fetch_max(number, Ordering::Release);
    }

    #[inline]
    fn is_kept(&self, number: u64) -> bool {
        number <= self.kept.load(Ordering::Acquire)
    }

    /// The last batch up to `number`, or somewhat later, that was promised.
    #[inline]
    fn up_to(&self, number: u64) -> u64 {
        number.min(self.promised.load(Ordering::Relaxed))
    }

    /// The last batch that was promised and may have changed `key`.
    #[inline]
    fn of(&self, key: &[u8]) -> u64 {
        let promised = self.promised.load(Ordering::Relaxed);
        if self.is_kept(promised) {
            return promised;
        }
        self.buckets[bucket_of(key)].load(Ordering::Relaxed)
    }
}

/// An open database, as long as it, a snapshot or an iterator lives.
struct Store {
    /// Before the runtime, which ends when nobody is its client.
    clients: Vec<Mutex<Client>>,
    runtime: Option<Arc<Runtime>>,
    tree: UnsafeCell<Tree<Arena>>,
    pins: Pins,
    /// Counts batches: places in the tree are good as long as it stands.
    changes: AtomicU64,
    promises: Promises,
    /// Released last.
    _lock: Lock,
}

// SAFETY: the tree is written by commands, alone, and read inside the clients' read sections; what
// readers keep beyond that are records that their pin keeps.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Drop for Store {
    fn drop(&mut self) {
        self.clients.clear();
        if let Some(runtime) = self.runtime.take() {
            // Whoever wants to know whether his writes are durable syncs them.
            let _ = runtime.close();
        }
    }
}

/// The engine.
pub(crate) struct DurableEngine(Arc<Store>);

impl std::convert::From<mangrove_durable::Error> for Failure {
    fn from(error: mangrove_durable::Error) -> Self {
        use mangrove_durable::Error as Below;
        let kind = match &error {
            error if error.is_damage() => Kind::Corruption,
            Below::Tracker { .. } | Below::Invalid { .. } => Kind::NotSupported,
            _ => Kind::IoError,
        };
        Self::new(kind, error.to_string())
    }
}

fn refused(why: Refused) -> Failure {
    match why {
        Refused::Full => {
            Failure::new(Kind::IoError, "no space left for the records of this write; nothing was changed")
        }
        Refused::Disordered => Failure::corruption(
            "the comparator does not order the keys as it did when they were written; nothing was changed. Open the \
             database with the comparator it was made with",
        ),
    }
}

/// What the first command of a new state gets.
struct Making {
    order: Option<KeyOrder>,
    /// The word of the region that leads to the tree.
    place: *mut usize,
    done: bool,
}

/// # Safety
/// `arg` is a `Making`; runs as a command.
unsafe extern "C" fn make(arg: *mut c_void) {
    // SAFETY: by contract.
    let making = unsafe { &mut *arg.cast::<Making>() };
    let Some(order) = making.order.take() else { return };
    if let Ok(tree) = Tree::create(order, Arena) {
        will_write(making.place.cast(), size_of::<usize>());
        // SAFETY: by contract: a word of the region.
        unsafe { making.place.write(tree.root() as usize) };
        making.done = true;
    }
}

/// What one write does.
#[derive(Clone, Copy)]
enum What<'a> {
    One(Change<'a>),
    Many(&'a leveldb_writebatch_t),
    /// Frees what nobody needs any more.
    Sweep,
}

/// A write on its way through the runtime.
struct Writing<'a> {
    store: &'a Store,
    what: What<'a>,
    sync: bool,
    outcome: std::result::Result<u64, Refused>,
}

/// # Safety
/// `arg` is a `Writing`; runs as a command.
unsafe extern "C" fn write(arg: *mut c_void) {
    // SAFETY: by contract; a command is alone, so the tree is its own.
    let (writing, tree) = unsafe {
        let writing = &mut *arg.cast::<Writing<'_>>();
        let tree = &mut *writing.store.tree.get();
        (writing, tree)
    };
    let store = writing.store;
    let readers = store.pins.readers();
    // Relaxed: readers see it inside their sections, which the runtime orders after this command.
    store.changes.fetch_add(1, Ordering::Relaxed);
    writing.outcome = match writing.what {
        What::One(change) => tree.apply(std::iter::once(change), readers),
        What::Many(batch) => tree.apply(batch.changes(), readers),
        What::Sweep => {
            tree.sweep(readers, SWEEP_COUNT);
            Ok(tree.number())
        }
    };
    if let (true, Ok(number)) = (writing.sync, writing.outcome) {
        match writing.what {
            What::One(change) => store.promises.make(number, std::iter::once(change)),
            What::Many(batch) => store.promises.make(number, batch.changes()),
            What::Sweep => {}
        }
    }
}

/// Opens the state in the folder `pool`, whatever is in it; with `create` it may be missing.
fn open_state(pool: &Path, create: bool) -> Result<Arc<Runtime>> {
    let options = Options::new()
        .create(if create { CreateMode::CreateIfMissing } else { CreateMode::OpenOnly })
        .durability(Durability::Interval(INTERVAL_MS))
        .capacity(capacity())
        .tracker(TrackerChoice::Explicit)
        .self_contained(true)
        .returns_memory(true);
    // SAFETY: there is nothing to initialise; the state is this library's, whose format the root's mark
    // tells.
    Ok(unsafe { Runtime::open(pool, &options, None) }?)
}

/// Does `work` while the state in the folder `pool` is open, if there is nothing at all in it; says whether it did.
pub(crate) fn if_blank(pool: &Path, work: impl FnOnce() -> Result<()>) -> Result<bool> {
    let runtime = open_state(pool, false)?;
    let done = if runtime.is_blank() { work().map(|()| true) } else { Ok(false) };
    // Nothing was written that anybody would miss.
    let _ = runtime.close();
    done
}

impl DurableEngine {
    /// Opens the state in the folder `pool`, and makes it when there is none.
    pub(crate) fn open(pool: &Path, create: bool, order: &Order, lock: Lock) -> Result<Self> {
        let runtime = open_state(pool, create)?;
        let place = runtime.roots();
        let mut client = runtime.client()?;
        let no_root =
            || Failure::corruption(format!("{}: the state has no records' root in it", pool.display()));
        // SAFETY: the region's first root word. A crash before the first command leaves it 0.
        if unsafe { place.read() } == 0 {
            if !create && !runtime.is_new() {
                // Another program's, perhaps.
                return Err(no_root());
            }
            let mut making = Making { order: Some(KeyOrder::new(order.comparator)), place, done: false };
            // SAFETY: `make` gets what it wants.
            unsafe { client.write(make, &[(&raw mut making).cast()]) }?;
            runtime.sync()?;
            if !making.done {
                return Err(refused(Refused::Full));
            }
        }
        // SAFETY: nobody writes the word any more. What it leads to can be read, and what says there that it is a root
        // is the one that `make` put there, since pages are verified when the state is opened.
        let tree = unsafe {
            let root = place.read();
            let ends = [root, root.wrapping_add(size_of::<Root>() - 1)];
            (root.is_multiple_of(align_of::<Root>()) && ends.into_iter().all(is_persistent))
                .then(|| Tree::open(root as *mut Root, KeyOrder::new(order.comparator), Arena))
                .flatten()
        };
        let tree = tree.ok_or_else(no_root)?;
        let number = tree.number();
        let mut clients = vec![Mutex::new(client)];
        while clients.len() < CLIENTS {
            clients.push(Mutex::new(runtime.client()?));
        }
        Ok(Self(Arc::new(Store {
            clients,
            runtime: Some(runtime),
            tree: UnsafeCell::new(tree),
            pins: Pins::default(),
            changes: AtomicU64::new(0),
            promises: Promises::new(number),
            _lock: lock,
        })))
    }

    /// True when there are no records.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        self.0.read(|tree| tree.size().0 == 0)
    }

    fn write_one(&self, change: Change<'_>, sync: bool) -> Result<()> {
        self.0.write(What::One(change), sync)
    }
}

impl Store {
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap_or_else(|| unreachable!("only `drop` takes it"))
    }

    /// A client that no other thread uses now.
    fn client(&self) -> MutexGuard<'_, Client> {
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
        // A client is whole, whoever panicked while he had it.
        at(0).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a read on the tree, beside others and not beside writes.
    #[inline]
    fn read<R>(&self, call: impl FnOnce(&Tree<Arena>) -> R) -> Result<R> {
        let mut client = self.client();
        // SAFETY: inside a read section nobody writes the tree.
        let (answer, _) = client.read(|| call(unsafe { &*self.tree.get() }))?;
        Ok(answer)
    }

    fn write(&self, what: What<'_>, sync: bool) -> Result<()> {
        let mut writing = Writing { store: self, what, sync, outcome: Err(Refused::Full) };
        {
            let mut client = self.client();
            let args = [(&raw mut writing).cast()];
            // SAFETY: `write` gets what it wants, and it lives until the call returns.
            unsafe {
                if sync { client.write_synced(write, &args) } else { client.write(write, &args).map(drop) }
            }?;
        }
        let number = writing.outcome.map_err(refused)?;
        if sync {
            self.promises.keep(number);
        }
        Ok(())
    }

    /// Waits until what was read can be told: the batch `number`, which was promised, may be in it. It was found inside the
    /// read: no batch was then between its command and its commit.
    #[inline]
    fn settle(&self, number: u64) -> Result<()> {
        if self.promises.is_kept(number) {
            return Ok(());
        }
        // It may be the batch that was refused (the disk was full, say): then the medium goes on, and has it not.
        if let Some(error) = self.runtime().failure() {
            return Err(error.into());
        }
        self.runtime().sync()?;
        self.promises.keep(number);
        Ok(())
    }

    /// Calls `found` with the value of `key` at `number`, or now.
    fn get(&self, key: &[u8], number: Option<u64>, found: &mut dyn FnMut(&[u8])) -> Result<()> {
        let promised = self.read(|tree| {
            if let Some(record) = tree.get(key, number.unwrap_or(u64::MAX)) {
                found(record.value());
            }
            // What is not there may have been deleted just now.
            if number.is_none() { self.promises.of(key) } else { 0 }
        })?;
        self.settle(promised)
    }

    fn sweep(&self) -> Result<()> {
        while self.read(Tree::has_leftovers)? {
            let before = self.read(|tree| tree.first_leftover())?;
            self.write(What::Sweep, false)?;
            if self.read(|tree| tree.first_leftover())? == before {
                break;
            }
        }
        Ok(())
    }
}

impl Engine for DurableEngine {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::Put(key, value), sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::Delete(key), sync)
    }

    fn write(&self, batch: &leveldb_writebatch_t, sync: bool) -> Result<()> {
        self.0.write(What::Many(batch), sync)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.0.get(key, None, found)
    }

    fn view(&self) -> Result<Arc<dyn View>> {
        let store = Arc::clone(&self.0);
        let number = store.read(|tree| {
            let number = tree.number();
            store.pins.take(number);
            number
        })?;
        let view = Arc::new(DurableView { store, number });
        view.store.settle(view.store.promises.up_to(number))?;
        Ok(view)
    }

    fn compact(&self) -> Result<()> {
        self.0.sweep()?;
        Ok(self.0.runtime().checkpoint()?)
    }

    fn check(&self) -> Result<Vec<String>> {
        self.0.read(Tree::check)
    }

    fn figures(&self) -> Figures {
        let (records, bytes) = self.0.read(Tree::size).unwrap_or_default();
        let stat = self.0.runtime().stat();
        Figures {
            records,
            memory_bytes: bytes + records * RECORD_OVERHEAD_BYTES,
            durable_bytes: bytes + records * RECORD_OVERHEAD_BYTES,
            log_bytes_used: 0,
            group_commits: stat.batches,
            views: self.0.pins.count(),
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        // SAFETY: the order never changes.
        unsafe { &*self.0.tree.get() }.order().compare(a, b)
    }
}

/// What a record costs beyond its key and value, about: its header, its block, its share of a leaf.
const RECORD_OVERHEAD_BYTES: u64 = 72;

/// An instant: the state after one batch.
struct DurableView {
    store: Arc<Store>,
    number: u64,
}

impl Drop for DurableView {
    fn drop(&mut self) {
        self.store.pins.release(self.number);
    }
}

impl View for DurableView {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.store.get(key, Some(self.number), found)
    }

    fn cursor(self: Arc<Self>) -> Box<dyn Cursor> {
        Box::new(DurableCursor { view: self, page: Vec::new(), at: 0, walk: None })
    }
}

/// Where the page after the present one begins.
struct Walk {
    direction: Direction,
    place: Place,
    /// `Store::changes` when the place was found.
    changes: u64,
    count: usize,
    /// There is no further page.
    ended: bool,
}

/// Records of a page are kept by the view's pin, and never change: they are handed out as they lie.
struct DurableCursor {
    page: Vec<*const Record>,
    at: usize,
    walk: Option<Walk>,
    view: Arc<DurableView>,
}

// SAFETY: the records are the store's, which the view keeps, and are only read.
unsafe impl Send for DurableCursor {}

impl DurableCursor {
    fn start(&mut self, from: From<'_>, direction: Direction) -> Result<()> {
        self.page.clear();
        self.at = 0;
        let (view, page) = (&self.view, &mut self.page);
        let walk = view.store.read(|tree| {
            let mut place = tree.place(from, direction);
            tree.collect(&mut place, direction, view.number, PAGE_COUNT_MIN, page);
            let changes = view.store.changes.load(Ordering::Relaxed);
            Walk { direction, place, changes, count: PAGE_COUNT_MIN, ended: page.len() < PAGE_COUNT_MIN }
        })?;
        self.walk = Some(walk);
        Ok(())
    }

    /// Turns the page.
    fn turn(&mut self) -> Result<()> {
        let Some(walk) = self.walk.as_mut().filter(|walk| !walk.ended) else {
            self.page.clear();
            self.at = 0;
            return Ok(());
        };
        walk.count = (walk.count * 4).min(PAGE_COUNT_MAX);
        let last = self.page.last().copied();
        let (view, page) = (&self.view, &mut self.page);
        page.clear();
        self.at = 0;
        view.store.read(|tree| {
            let changes = view.store.changes.load(Ordering::Relaxed);
            if let (true, Some(last)) = (changes != walk.changes, last) {
                // SAFETY: kept by the view's pin.
                walk.place = tree.place(From::Beyond(unsafe { (*last).key() }), walk.direction);
                walk.changes = changes;
            }
            tree.collect(&mut walk.place, walk.direction, view.number, walk.count, page);
        })?;
        walk.ended = self.page.len() < walk.count;
        Ok(())
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        if self.at >= self.page.len() {
            return Ok(());
        }
        if self.walk.as_ref().is_some_and(|walk| walk.direction == direction) {
            self.at += 1;
            return if self.at < self.page.len() { Ok(()) } else { self.turn() };
        }
        // SAFETY: kept by the view's pin, beyond the page's own life.
        let key = unsafe { (*self.page[self.at]).key() };
        self.start(From::Beyond(key), direction)
    }
}

impl Cursor for DurableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.start(From::End, Direction::Forward)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start(From::End, Direction::Backward)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(From::At(key), Direction::Forward)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    #[inline]
    fn record(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: kept by the view's pin.
        let record = unsafe { &**self.page.get(self.at)? };
        Some((record.key(), record.value()))
    }
}
