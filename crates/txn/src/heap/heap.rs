//! The heap: opening, transactions of any thread, closing.

use super::choice::{Choice, MachineFacts};
use super::error::{HeapError, HeapResult};
use super::executors::{HeapExecutor, HeapTx};
use super::free_space;
use super::layout::{ARENA_OFFSET, AT_BASE, AT_CRC, AT_MAGIC, AT_VERSION, MAGIC, VERSION, crc};
use super::memory_limit::{MemoryLimit, ThreadCounters};
use super::options::{HeapOptions, MEMORY_BYTES_MIN};
use super::plan::Plan;
use super::roots::Root;
use super::space::ShadowSpace;
use super::stop::{Cancel, Cancelled, Stop};
use super::thread::{Thread, has_begun, may_begin};
use super::tx::Tx;
use crate::access::Halt;
use crate::commit::{HeapLog, Protocol};
use crate::left_out::is_left_out;
use crate::memory::TxMemory;
use crate::run::{TxCounts, TxError};
use crate::sink::{RedoLog, RedoSink, TxWrites, Unit, UnitSize};
use mangrove_arena::{ArenaHeap, ArenaStat, Writes};
use mangrove_shadow::{MediumKind, Order, Shadow};
use mangrove_sys::ProcessMark;
use std::cell::{RefCell, RefMut};
use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thread_local::ThreadLocal;

/// Shards of the arena: so many threads allocate without meeting.
const SHARD_COUNT: u64 = 64;

/// A durable heap: memory that comes back at its address, changed by transactions.
///
/// ```
/// use mangrove_txn::{Create, Heap, Ptr};
///
/// # fn main() -> mangrove_txn::HeapResult<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("bank");
/// let heap = Heap::open(&path)?; // created when it is not there
/// heap.transaction(|tx| {
///     let accounts: Ptr<[u64; 2]> = tx.alloc([100, 0])?;
///     tx.set_root("accounts", accounts)
/// })?; // durable when this returns
/// drop(heap); // a crash, as far as the data can tell
///
/// let heap = Heap::open(&path)?;
/// let balances = heap.transaction(|tx| {
///     let accounts = tx.root::<[u64; 2]>("accounts")?.expect("set above");
///     let [from, to] = tx.read(accounts)?;
///     tx.write(accounts, [from - 30, to + 30])?;
///     tx.read(accounts)
/// })?;
/// assert_eq!(balances, [70, 30]);
/// heap.close()
/// # }
/// ```
///
/// A transaction is atomic, isolated and durable: when [`Heap::transaction`] returns, its changes survive every
/// crash that the fault model (docs/fault-model.md) allows, and before that a crash keeps all of them or none. A
/// transaction that has read them returns only when they are durable. (With durability by interval both return at once,
/// and a crash keeps a prefix of the transactions.)
///
/// Inside a transaction others may run on other heaps. Each is atomic by itself: it stays if the outer one is undone,
/// and happens again if that runs again. All threads nest the heaps in one order. If one thread runs a transaction on B
/// inside one on A, and another thread the other way round, both may wait for ever.
///
/// Any thread may use the heap. Dropping it without [`Heap::close`] is an orderly crash.
pub struct Heap {
    /// Dropped only in the process that opened it: a child of fork(2) has none of its threads, and the log and the
    /// durable copy are its parent's.
    parts: ManuallyDrop<Parts>,
    process: ProcessMark,
}

struct Parts {
    /// Dropped before the executor that it uses.
    memory: Option<MemoryLimit>,
    /// Dropped before the executor that they point to.
    threads: ThreadLocal<RefCell<Thread>>,
    executor: Box<HeapExecutor>,
    space: ShadowSpace,
    plan: Plan,
    /// Threads that had a handle.
    thread_count: AtomicU64,
    /// Names this opening in tickets; random.
    opening: u64,
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.process.is_here() {
            // SAFETY: once, and no code uses them afterwards.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("shadow", self.parts.space.shadow()).finish_non_exhaustive()
    }
}

/// Counters of a heap.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HeapStat {
    /// What its blocks take.
    pub arena: ArenaStat,
    /// What the transactions of the calling thread have met.
    pub counts: TxCounts,
    /// Its log and its durable copy.
    pub shadow: mangrove_shadow::Stat,
    /// Bytes of memory given back because of [`HeapOptions::memory_bytes_max`].
    pub given_back_bytes: u64,
    /// The longest time that transactions had to wait for that.
    pub longest_pause: Duration,
}

/// What formatting writes, for the one commit that makes the heap: address and length of each range.
#[derive(Default)]
struct Written(Vec<(usize, usize)>);

impl TxWrites for Written {
    type Entry = Infallible;

    /// They are ranges.
    fn as_words(&self) -> Option<&[Infallible]> {
        None
    }

    fn word(&self, entry: &Infallible) -> (usize, u64) {
        match *entry {}
    }

    fn size(&self) -> UnitSize {
        UnitSize { words: 0, ranges: self.0.len(), range_bytes: self.0.iter().map(|range| range.1).sum() }
    }

    fn each(&self, unit: &mut impl Unit) {
        for &(address, len) in &self.0 {
            let from: *const u8 = std::ptr::with_exposed_provenance(address);
            // SAFETY: the arena has written these bytes, or `make` has; no other thread uses the heap yet.
            unit.range(address, unsafe { std::slice::from_raw_parts(from, len) });
        }
    }
}

impl Writes for Written {
    fn wrote(&mut self, address: usize, len: usize) {
        self.0.push((address, len));
    }
}

impl Heap {
    /// Opens the heap in the directory `path`, or creates it there.
    ///
    /// # Errors
    /// See [`HeapError`].
    pub fn open(path: impl AsRef<Path>) -> HeapResult<Self> {
        HeapOptions::new().open(path)
    }

    /// Options to open a heap with.
    #[must_use]
    pub fn options() -> HeapOptions {
        HeapOptions::new()
    }

    /// A heap in a working copy that is open already; makes one where there is none. (For the crash simulator.)
    ///
    /// # Errors
    /// See [`HeapError`].
    pub fn over(shadow: Shadow, options: &HeapOptions) -> HeapResult<Self> {
        let order = Some(shadow.order()).filter(|_| shadow.medium() != MediumKind::File);
        let protocol = match (options.protocol, order) {
            (Protocol::Automatic, Some(Order::Marker)) => Protocol::Spht,
            (Protocol::Automatic, Some(Order::Gaps)) if shadow.is_stamped() => Protocol::SphtEadr,
            (Protocol::Automatic, Some(_)) if !shadow.is_stamped() => Protocol::OneFence,
            (protocol, _) => protocol,
        };
        let choice = if shadow.is_read_only() {
            Choice::read_only(options.executor)?
        } else {
            Choice::new(options.executor, protocol, order, &MachineFacts::of(&shadow))?
        };
        Self::with(shadow, options, &choice)
    }

    /// A heap in `shadow`, which was opened for `choice`. If the heap is refused, a shadow that was created for it
    /// is removed.
    fn with(shadow: Shadow, options: &HeapOptions, choice: &Choice) -> HeapResult<Self> {
        let space = ShadowSpace::new(Arc::new(shadow));
        Self::in_space(space.clone(), options, choice).inspect_err(|_| {
            if let Some(shadow) = space.into_shadow() {
                shadow.undo_creation();
            }
        })
    }

    fn in_space(space: ShadowSpace, options: &HeapOptions, choice: &Choice) -> HeapResult<Self> {
        let log = |shadow: &Arc<Shadow>| {
            if shadow.is_read_only() {
                return Ok(HeapLog::new(Arc::clone(shadow)));
            }
            choice.protocol.log(Arc::clone(shadow))
        };
        let log = log(space.shadow())?;
        if is_blank(space.shadow())? {
            if space.shadow().is_read_only() {
                let what =
                    "its creation was interrupted and nothing was stored in it; create it again".into();
                return Err(mangrove_shadow::Error::Foreign { path: path_of(space.shadow()), what }.into());
            }
            make(&space, &log)?;
        }
        verify(space.shadow())?;
        // The arena grows to its length, if a crash has left the working copy shorter.
        let mut arena = ArenaHeap::open(Box::new(space.clone()), ARENA_OFFSET)
            .map_err(|what| space.refusal().or(HeapError::Damaged { what }))?;
        free_space::provide_again(&space, &mut arena)?;
        drop(arena);
        // SAFETY: the working copy stays where it is for as long as the shadow, which this struct keeps, as it keeps
        // the length. Other code reaches it only by the addresses that `Tx` hands out.
        let memory = unsafe { TxMemory::growing(space.shadow().base(), space.grown()) };
        let plan = Plan::new(choice.executor, log.protocol(), space.shadow().order());
        let executor = Box::new(HeapExecutor::new(choice, memory, log)?);
        // SAFETY: the executor is boxed, and this struct drops it after the thread that keeps the limit.
        let memory = unsafe { memory_limit(&executor, space.shadow(), options)? };
        let threads = ThreadLocal::new();
        let (thread_count, opening) = (AtomicU64::new(0), mangrove_sys::file::random_u64());
        let parts = Parts { memory, threads, executor, space, plan, thread_count, opening };
        Ok(Self { parts: ManuallyDrop::new(parts), process: ProcessMark::here() })
    }

    /// Runs `body` as one transaction and returns its result, when what it changed, and what it read, is durable (with
    /// durability by interval: at once).
    ///
    /// # Errors
    /// The error that `body` passed on, or the pool's; see [`HeapError`] for which of them undo the transaction.
    #[inline]
    #[track_caller]
    pub fn transaction<T>(&self, mut body: impl FnMut(&mut Tx<'_>) -> Result<T, Stop>) -> HeapResult<T> {
        let body = |tx: &mut Tx<'_>| body(tx).map_err(Cancel::<Infallible>::Stop);
        self.run(false, body).map(|Ok(answer)| answer)
    }

    /// As [`Heap::transaction`], for a body that rarely or never writes: what only writers need is skipped.
    ///
    /// # Errors
    /// As there.
    #[inline]
    #[track_caller]
    pub fn read<T>(&self, mut body: impl FnMut(&mut Tx<'_>) -> Result<T, Stop>) -> HeapResult<T> {
        let body = |tx: &mut Tx<'_>| body(tx).map_err(Cancel::<Infallible>::Stop);
        self.run(true, body).map(|Ok(answer)| answer)
    }

    /// As [`Heap::transaction`], with a body that may abort with a value: `Err(Cancel::Abort(value))` undoes the
    /// transaction, and the inner error returned is that value.
    ///
    /// # Errors
    /// As there.
    #[inline]
    #[track_caller]
    pub fn try_transaction<T, E>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T, Cancel<E>>,
    ) -> HeapResult<Result<T, E>> {
        self.run(false, body)
    }

    /// As [`Heap::read`], with a body that may abort with a value, as that of [`Heap::try_transaction`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    #[track_caller]
    pub fn try_read<T, E>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T, Cancel<E>>,
    ) -> HeapResult<Result<T, E>> {
        self.run(true, body)
    }

    #[inline]
    #[track_caller]
    fn run<T, E>(
        &self,
        reads: bool,
        mut body: impl FnMut(&mut Tx<'_>) -> Result<T, Cancel<E>>,
    ) -> HeapResult<Result<T, E>> {
        let mut thread = self.thread()?;
        let Thread { handle, arena, refusal } = &mut *thread;
        let body = |tx: HeapTx<'_>| -> Result<T, Halt<Cancelled<E>>> {
            self.stay::<E>()?;
            let answer = body(&mut Tx { tx, arena, refusal }).map_err(|cancel| self.halt(cancel))?;
            self.stay().map(|()| answer)
        };
        let outcome = self.outcome(handle.run(reads, body));
        if matches!(outcome, Ok(Ok(_)) | Err(HeapError::InDoubt(_))) || !self.process.is_here() {
            return outcome;
        }
        // The caller of a transaction that was undone may tell what it has read.
        match (outcome, handle.settle_all()) {
            (Err(error @ HeapError::Pool(_)), _) | (Err(error), Ok(())) => Err(error),
            (Ok(aborted), Ok(())) => Ok(aborted),
            (_, Err(error)) => Err(HeapError::InDoubt(error)),
        }
    }

    /// As `run`, without the wait: returns the redo log's ticket, too.
    #[inline]
    #[track_caller]
    pub(super) fn run_nowait<T, E>(
        &self,
        mut body: impl FnMut(&mut Tx<'_>) -> Result<T, Cancel<E>>,
    ) -> HeapResult<Result<(T, u64), E>> {
        let mut thread = self.thread()?;
        let Thread { handle, arena, refusal } = &mut *thread;
        let body = |tx: HeapTx<'_>| -> Result<T, Halt<Cancelled<E>>> {
            self.stay::<E>()?;
            let answer = body(&mut Tx { tx, arena, refusal }).map_err(|cancel| self.halt(cancel))?;
            self.stay().map(|()| answer)
        };
        // What has waited may wait for nothing, with durability by interval: the newest commit is none before its own.
        let named = |(answer, ticket): (T, Option<u64>)| {
            (answer, ticket.unwrap_or_else(|| self.shadow().committed().0))
        };
        Ok(self.outcome(handle.run_nowait(body))?.map(named))
    }

    #[inline(always)]
    fn outcome<T, E>(
        &self,
        answer: Result<T, TxError<Cancelled<E>, mangrove_shadow::Error>>,
    ) -> HeapResult<Result<T, E>> {
        match answer {
            Ok(answer) => Ok(Ok(answer)),
            Err(TxError::Aborted(Cancelled::Aborted(value))) => Ok(Err(value)),
            Err(TxError::Aborted(Cancelled::Failed(error))) => Err(*error),
            Err(TxError::Refused(_)) if !self.process.is_here() => Err(HeapError::Forked),
            Err(TxError::Refused(_)) if self.is_read_only() => Err(HeapError::ReadOnly),
            Err(TxError::Refused(error)) => Err(HeapError::Pool(error)),
            Err(TxError::InDoubt(error)) => Err(HeapError::InDoubt(error)),
        }
    }

    /// What the executor does about a body that returned no result.
    #[cold]
    fn halt<E>(&self, cancel: Cancel<E>) -> Halt<Cancelled<E>> {
        match Halt::from(cancel) {
            // Nobody would wake the thread.
            Halt::Retry if self.is_read_only() => {
                Halt::Abort(Cancelled::Failed(Box::new(HeapError::ReadOnly)))
            }
            halt => halt,
        }
    }

    /// Undoes a transaction whose body has forked, in the child: on dax and emulated it has the parent's log. Asked
    /// before each attempt, too: what another thread of the parent's owns, no attempt of the child gets.
    #[inline(always)]
    fn stay<E>(&self) -> Result<(), Halt<Cancelled<E>>> {
        if self.process.is_here() {
            return Ok(());
        }
        Err(Halt::Abort(Cancelled::Failed(Box::new(HeapError::Forked))))
    }

    /// `Forked` in a child of the process that opened it.
    #[inline]
    pub(super) fn refuse_child(&self) -> HeapResult<()> {
        if self.process.is_here() { Ok(()) } else { Err(HeapError::Forked) }
    }

    /// Names this opening.
    pub(super) fn opening(&self) -> u64 {
        self.parts.opening
    }

    /// The calling thread's part.
    #[inline]
    pub(super) fn thread(&self) -> HeapResult<RefMut<'_, Thread>> {
        self.refuse_child()?;
        let cell = match self.parts.threads.get() {
            Some(cell) => cell,
            None => self.new_thread()?,
        };
        cell.try_borrow_mut().map_err(|_| HeapError::Nested)
    }

    #[cold]
    fn new_thread(&self) -> HeapResult<&RefCell<Thread>> {
        may_begin()?;
        let part = self.parts.threads.get_or_try(|| {
            // Relaxed: only a number.
            let number = self.parts.thread_count.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the executor is boxed, and this struct drops it after the handles.
            let thread =
                unsafe { Thread::new(&self.parts.executor, &self.parts.space, ARENA_OFFSET, number) };
            thread.map(RefCell::new)
        });
        has_begun();
        part
    }

    /// The first byte's address: the same in every process.
    #[must_use]
    pub fn base(&self) -> usize {
        self.parts.space.shadow().base().expose_provenance()
    }

    /// True when this call of `open` created it.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.parts.space.shadow().was_created()
    }

    /// True when it was opened read-only: transactions may read, and those that wrote fail with
    /// [`HeapError::ReadOnly`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.parts.space.shadow().is_read_only()
    }

    /// How it isolates transactions, and makes them durable.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.parts.plan
    }

    /// The pool that keeps it.
    #[must_use]
    pub fn shadow(&self) -> &Shadow {
        self.parts.space.shadow()
    }

    /// Counters. O(spans); no transaction runs meanwhile.
    ///
    /// # Errors
    /// `Nested` inside a transaction, `Forked` in a child.
    pub fn stat(&self) -> HeapResult<HeapStat> {
        let mut thread = self.thread()?;
        let Thread { handle, arena, .. } = &mut *thread;
        let (arena, counts) = (handle.alone(|| arena.stat()), handle.counts());
        let memory = self.parts.memory.as_ref().map(MemoryLimit::counters);
        Ok(HeapStat {
            arena,
            counts,
            shadow: self.parts.space.shadow().stat(),
            given_back_bytes: memory.map_or(0, ThreadCounters::given_back),
            longest_pause: memory.map_or(Duration::ZERO, ThreadCounters::longest_pause),
        })
    }

    /// Gives back the memory and the disk space of pages in which nothing is in use, and returns how many bytes that
    /// were. Blocks stay where they are, so a page that holds one of many small blocks stays. Transactions wait
    /// meanwhile, O(pages); the space comes back by a checkpoint, which this makes beside them. What is given back is
    /// used again like the rest; where the medium is full by then, an allocation fails with [`HeapError::NoSpace`]. On
    /// media other than files nothing is given back.
    ///
    /// # Errors
    /// `ReadOnly`; `Nested` inside a transaction, `Forked` in a child; `Pool` when the medium failed, now or before.
    pub fn compact(&self) -> HeapResult<u64> {
        let mut thread = self.thread()?;
        if self.is_read_only() {
            return Err(HeapError::ReadOnly);
        }
        if self.shadow().medium() != MediumKind::File {
            return Ok(0);
        }
        let Thread { handle, arena, .. } = &mut *thread;
        let space = &self.parts.space;
        // SAFETY: no transaction runs, and a step that the simulator leaves out is to be a fault.
        let mut release = || unsafe { free_space::release(space, arena) };
        let bytes = if is_left_out() { release() } else { handle.alone(release) }?;
        drop(thread);
        self.shadow().checkpoint()?;
        Ok(bytes)
    }

    /// Calls `each` with address and bytes of every block in use. What the program cannot reach from its roots among
    /// them is lost to it. O(blocks); no transaction runs meanwhile, and `each` begins none.
    ///
    /// # Errors
    /// `Damaged`, at the first thing that cannot be; `Nested` inside a transaction, `Forked` in a child.
    pub fn for_each_block(&self, mut each: impl FnMut(usize, usize)) -> HeapResult<()> {
        let mut thread = self.thread()?;
        let Thread { handle, arena, .. } = &mut *thread;
        let mut blocks = || arena.live().try_for_each(|block| block.map(|(at, bytes)| each(at, bytes)));
        let outcome = handle.alone(&mut blocks).map_err(|what| HeapError::Damaged { what });
        // The caller may tell what it has seen.
        handle.settle_all().map_err(HeapError::InDoubt)?;
        outcome
    }

    /// The roots. O(1).
    ///
    /// # Errors
    /// `Damaged` when a slot cannot be a root's; `Nested` inside a transaction, `Forked` in a child.
    pub fn roots(&self) -> HeapResult<Vec<Root>> {
        self.read(|tx| tx.roots())
    }

    /// Waits until everything committed so far is durable, in every durability mode, by whichever thread and call.
    ///
    /// # Errors
    /// The first I/O error; `Forked` in a child.
    pub fn sync(&self) -> HeapResult<()> {
        self.refuse_child()?;
        Ok(self.parts.space.shadow().sync()?)
    }

    /// Whether a thread has a transaction that has not ended: its part is borrowed. Only a body that stopped half-way
    /// on a stack of its own leaves one behind while no call runs.
    #[doc(hidden)]
    pub fn has_open_transaction(&mut self) -> bool {
        self.parts.threads.iter_mut().any(|part| part.try_borrow_mut().is_err())
    }

    /// Brings the durable copy up to date and marks the heap closed: the next opening recovers nothing.
    ///
    /// # Errors
    /// The first I/O error: the heap is then as after a crash, and opens again by recovery. `Forked` in a child.
    pub fn close(self) -> HeapResult<()> {
        if !self.process.is_here() {
            return Err(HeapError::Forked);
        }
        let mut heap = ManuallyDrop::new(self);
        // SAFETY: once; `heap` is not used afterwards, nor dropped.
        let Parts { memory, threads, executor, space, .. } = unsafe { ManuallyDrop::take(&mut heap.parts) };
        drop(memory);
        drop(threads);
        drop(executor);
        let shadow = space.into_shadow().expect("the handles and the log were the other owners");
        Ok(shadow.close()?)
    }
}

impl HeapOptions {
    /// Opens or creates the heap in the directory `path`.
    ///
    /// # Errors
    /// See [`HeapError`](crate::HeapError).
    pub fn open(&self, path: impl AsRef<Path>) -> HeapResult<Heap> {
        let choice = if self.config.read_only {
            Choice::read_only(self.executor)?
        } else {
            self.choice(self.medium_at(path.as_ref()))?
        };
        Heap::with(self.shadow(&choice).open(path)?, self, &choice)
    }
}

/// The thread that keeps the limit of memory, if there is one.
///
/// # Safety
/// The executor outlives it.
unsafe fn memory_limit(
    executor: &HeapExecutor,
    shadow: &Arc<Shadow>,
    options: &HeapOptions,
) -> HeapResult<Option<MemoryLimit>> {
    let Some(bytes) = options.memory_bytes_max else { return Ok(None) };
    if bytes < MEMORY_BYTES_MIN {
        return Err(HeapError::Invalid {
            what: format!("a heap's limit of memory is at least {MEMORY_BYTES_MIN} bytes, not {bytes}"),
        });
    }
    shadow.can_page_out()?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: the caller's promise.
    let limit = unsafe { MemoryLimit::start(executor, shadow, bytes) };
    limit.map(Some).map_err(|e| HeapError::Invalid {
        what: format!("the limit of memory cannot be kept here: {e}; open the heap without it"),
    })
}

/// Its path, for messages.
fn path_of(shadow: &Shadow) -> PathBuf {
    shadow.path().unwrap_or(Path::new("the heap")).to_owned()
}

fn word(shadow: &Shadow, at: usize) -> u64 {
    // SAFETY: the first page is usable, and no other thread uses the working copy yet.
    unsafe { shadow.base().add(at).cast::<u64>().read() }
}

/// Whether the heap was never made: its making is one atomic group. O(bytes) where its first page is blank.
///
/// # Errors
/// `Damaged`, when only the first page is blank.
fn is_blank(shadow: &Shadow) -> HeapResult<bool> {
    if shadow.len() < ARENA_OFFSET {
        return Ok(true);
    }
    // SAFETY: as in `word`.
    let bytes = unsafe { std::slice::from_raw_parts(shadow.base(), shadow.len() as usize) };
    let (first, rest) = bytes.split_at(ARENA_OFFSET as usize);
    if first.iter().any(|&byte| byte != 0) {
        return Ok(false);
    }
    if rest.iter().any(|&byte| byte != 0) {
        return Err(HeapError::Damaged { what: "its first page is blank, and others are not".into() });
    }
    Ok(true)
}

fn make(space: &ShadowSpace, log: &HeapLog) -> HeapResult<()> {
    let shadow = space.shadow();
    let mut written = Written::default();
    let mut arena = ArenaHeap::format(Box::new(space.clone()), ARENA_OFFSET, &mut written)
        .map_err(|what| space.refusal().or(HeapError::Invalid { what }))?;
    let Ok(_) = arena.make_shards(&mut written, SHARD_COUNT);
    let words = [MAGIC, VERSION, shadow.base() as u64];
    for (at, value) in
        [AT_MAGIC, AT_VERSION, AT_BASE, AT_CRC].into_iter().zip([words[0], words[1], words[2], crc(words)])
    {
        // SAFETY: the first page, which the arena leaves to us; no other thread uses the working copy yet.
        unsafe { shadow.base().add(at).cast::<u64>().write(value) };
    }
    written.wrote(shadow.base().expose_provenance(), AT_CRC + 8);
    // By the protocol, as every commit: a shadow with time stamps takes no other.
    let mut sink = log.sink();
    sink.put(&written)?;
    sink.announce();
    sink.number_alone();
    sink.seal()?;
    sink.finish()?;
    Ok(shadow.sync()?)
}

/// Whether the first line is that of a heap which lies here.
pub(super) fn verify(shadow: &Shadow) -> HeapResult<()> {
    let damaged = |what: String| Err(HeapError::Damaged { what });
    let [magic, version, base] = [AT_MAGIC, AT_VERSION, AT_BASE].map(|at| word(shadow, at));
    if magic != MAGIC {
        return damaged("its first bytes are not those of a heap".into());
    }
    if version > VERSION {
        let (path, found) = (path_of(shadow), u32::try_from(version).unwrap_or(u32::MAX));
        return Err(mangrove_shadow::Error::Newer { path, found, supported: VERSION as u32 }.into());
    }
    if word(shadow, AT_CRC) != crc([magic, version, base]) {
        return damaged("the checksum of its first line does not match".into());
    }
    if base != shadow.base() as u64 {
        return damaged(format!("it says that it lies at {base:#x}, but its pool says {:p}", shadow.base()));
    }
    Ok(())
}
