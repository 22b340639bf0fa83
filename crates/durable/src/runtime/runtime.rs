//! The runtime: clients, reads, writes, and the durability that their results wait for.

use crate::alloc::split_allocation;
use crate::image::image::{Opened, State};
use crate::image::layout::ROOT_COUNT;
use crate::runtime::backing::Backing;
use crate::runtime::batch::{BatchExecutor, Command, Job};
use crate::runtime::combiner::Combiner;
use crate::runtime::notifier::Notifier;
use crate::runtime::open_batch::{
    LosesBatch, OpenBatch, another_thread, commit_first, forked, note_ended, note_opened, nothing_open,
};
use crate::runtime::slots::ClientSlot;
use crate::stat::{Stat, StateCounts};
use crate::{Error, Options, Result};
use mangrove_arena::ArenaStat;
use mangrove_shadow::Ticket;
use mangrove_sys::ProcessMark;
use mangrove_tracker::{Tracker, WriteSet, in_tracked_call};
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A program's durable state, open. Reads run in parallel on the memory itself. Writes run in batches, and the
/// changes of each batch are committed as one atomic group.
///
/// Durable linearizability: an acknowledged write survives every crash that the medium survives. A write that was
/// not acknowledged is there whole or not at all. No reported result depends on a write that may still be lost. With
/// durability by interval a crash loses a suffix of the writes instead, acknowledged or not.
pub struct Runtime {
    pub(super) combiner: Combiner<Job>,
    /// Dropped before the executor, which its thread uses.
    notifier: OnceLock<Notifier>,
    pub(super) executor: BatchExecutor,
    batch: OpenBatch,
    /// The process that opened it.
    process: ProcessMark,
    /// See [`split_allocation::forks`]: for systems that do not tell children by the mark.
    forks: usize,
    /// Results wait for durability.
    gated: bool,
    new: bool,
    roots: *mut usize,
}

// SAFETY: the runtime only hands out the address `roots`; commands and reads follow it.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

/// Makes the first state of a program. The runtime tracks its stores and runs no command meanwhile. Returns 0 on
/// success.
pub type InitFn = unsafe extern "C" fn(*mut c_void) -> c_int;

struct InitCall<'a> {
    executor: &'a BatchExecutor,
    initialise: Option<(InitFn, *mut c_void)>,
    answer: c_int,
}

/// The command around the initialisation.
///
/// # Safety
/// `arg` is an `InitCall` that no other thread uses.
unsafe extern "C" fn run_initialise(arg: *mut c_void) {
    // SAFETY: by contract.
    let first = unsafe { &mut *arg.cast::<InitCall<'_>>() };
    if let Some((initialise, arg)) = first.initialise {
        // SAFETY: the caller of `Runtime::open` promised that the call is sound.
        first.answer = unsafe { initialise(arg) };
        if first.answer != 0 {
            first.executor.abandon();
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("stat", &self.stat()).finish_non_exhaustive()
    }
}

/// Issues commands, one at a time. A runtime has any number of clients; each is cheap and has its own slot in the
/// combiner.
pub struct Client {
    runtime: Arc<Runtime>,
    slot: NonNull<ClientSlot<Job>>,
}

// SAFETY: the slot lives as long as the runtime, which the client holds, and `&mut self` keeps it to one thread.
unsafe impl Send for Client {}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Refuses a call that a command must not make: it would wait for itself, and what the runtime allocates would
/// become part of the state.
pub(crate) fn outside_commands() -> Result<()> {
    if split_allocation::is_inside() { Err(Error::Nested) } else { Ok(()) }
}

impl Runtime {
    /// A runtime over parts that are open already. `gated`: results wait for durability.
    pub(crate) fn over(
        tracker: Box<dyn Tracker>,
        backing: Box<dyn Backing>,
        writes: WriteSet,
        gated: bool,
    ) -> Self {
        let executor = BatchExecutor::new(tracker, backing, writes);
        Self {
            combiner: Combiner::new(),
            notifier: OnceLock::new(),
            executor,
            batch: OpenBatch::default(),
            process: ProcessMark::here(),
            forks: split_allocation::forks(),
            gated,
            new: true,
            roots: std::ptr::null_mut(),
        }
    }

    /// A new client.
    ///
    /// # Errors
    /// `TooManyClients` beyond 2^26 at a time; `Nested` inside a command; `Batch` in a forked child.
    pub fn client(self: &Arc<Self>) -> Result<Client> {
        outside_commands()?;
        Ok(Client { runtime: Arc::clone(self), slot: self.join()? })
    }

    /// Takes a slot in the combiner. It lives as long as the runtime; `leave` gives it back.
    pub(crate) fn join(&self) -> Result<NonNull<ClientSlot<Job>>> {
        // A thread that the child does not have may hold the lock of the slots.
        self.refuse_child()?;
        self.combiner.join().map(NonNull::from).ok_or(Error::TooManyClients)
    }

    pub(crate) fn leave(&self, slot: &ClientSlot<Job>) {
        // As in `join`.
        if self.refuse_child().is_ok() {
            self.combiner.leave(slot);
        }
    }

    /// Whether this thread is in a read.
    pub(crate) fn reads_here(&self) -> bool {
        self.combiner.reads_here()
    }

    /// Refuses a call that would wait for itself: in a command of any state, since that state's next command may wait
    /// for the present one to end, and on a thread that has a batch open.
    #[inline]
    pub(super) fn may_wait_for_batches(&self) -> Result<()> {
        if in_tracked_call() {
            return Err(Error::Nested);
        }
        if self.batch.is_mine() {
            return Err(commit_first());
        }
        self.refuse_child()
    }

    /// Refuses a child of fork, also one that was made past the handlers of pthread_atfork (`_Fork`, clone): the
    /// combiner and the log are its parent's.
    ///
    /// # Errors
    /// `Batch` in such a child.
    #[doc(hidden)]
    #[inline]
    pub fn refuse_child(&self) -> Result<()> {
        let is_here = self.process.is_here() && self.forks == split_allocation::forks();
        if is_here { Ok(()) } else { Err(forked()) }
    }

    /// See [`Client::read`].
    ///
    /// # Safety
    /// The slot is of this runtime, and no other call uses it.
    #[inline]
    pub(crate) unsafe fn read_at<R>(
        &self,
        slot: &ClientSlot<Job>,
        call: impl FnOnce() -> R,
    ) -> Result<(R, Ticket)> {
        self.may_wait_for_batches()?;
        self.combiner.read(slot, || {
            self.executor.begin_read()?;
            let result = call();
            Ok((result, self.executor.last()))
        })
    }

    /// See [`Client::write`].
    ///
    /// # Safety
    /// As there; the slot is of this runtime, and no other call uses it.
    #[inline]
    pub(crate) unsafe fn write_at(
        &self,
        slot: &ClientSlot<Job>,
        command: Command,
        args: &[*mut c_void],
    ) -> Result<Ticket> {
        self.may_wait_for_batches()?;
        let mut job = Job::new(command, args);
        self.combiner.write(slot, &mut job, |jobs| {
            // SAFETY: the combiner keeps this thread alone; each caller promised the rest.
            unsafe { self.executor.execute(jobs) };
        });
        job.into_outcome()
    }

    /// See [`Client::write_durable`] and [`Client::write_synced`]; `settle` waits for a ticket.
    ///
    /// # Safety
    /// As `write_at`.
    #[inline]
    pub(crate) unsafe fn write_and_settle_at(
        &self,
        slot: &ClientSlot<Job>,
        command: Command,
        args: &[*mut c_void],
        settle: impl FnOnce(&Self, Ticket) -> Result<()>,
    ) -> Result<()> {
        self.may_wait_for_batches()?;
        let mut job = Job::new(command, args);
        let mut settled = Ok(());
        let execute = |jobs: &[NonNull<Job>]| {
            // SAFETY: the combiner keeps this thread alone; each caller promised the rest.
            unsafe { self.executor.execute(jobs) };
        };
        self.combiner.write_and_settle(slot, &mut job, execute, |job| {
            if let Some(Ok(ticket)) = job.outcome {
                settled = settle(self, ticket);
            }
        });
        job.into_outcome()?;
        settled
    }

    /// Opens the state at `path`, or makes one. A state whose initialisation never finished is new: then
    /// `initialise` runs, tracked, and everything that it made is durable when this returns. A crash before that
    /// leaves nothing. `initialise` must return 0.
    ///
    /// # Errors
    /// The pool's errors; `Foreign` and `Moved` when the state belongs to another program or another build;
    /// `Tracker` when the chosen tracker cannot work here; `Refused` when `initialise` returns another number than
    /// 0.
    ///
    /// # Safety
    /// `initialise` is sound to call with its argument. The program that made the state opens it, and its code keeps
    /// what the state relies on.
    pub unsafe fn open(
        path: impl AsRef<Path>,
        options: &Options,
        initialise: Option<(InitFn, *mut c_void)>,
    ) -> Result<Arc<Self>> {
        // SAFETY: passed on.
        unsafe { Self::open_prepared(path.as_ref(), options, initialise, |_| ()) }
    }

    /// As `open`; `prepare` gets the roots before the initialisation runs.
    ///
    /// # Errors
    /// As `open`.
    ///
    /// # Safety
    /// As `open`.
    pub unsafe fn open_prepared(
        path: &Path,
        options: &Options,
        initialise: Option<(InitFn, *mut c_void)>,
        prepare: impl FnOnce(*mut usize),
    ) -> Result<Arc<Self>> {
        outside_commands()?;
        // What is left of the process's address space becomes the state's, so these are mapped before it.
        let (writes, tracker) = (options.write_set()?, options.make_tracker()?);
        let (state, opened) = State::open(path, &options.state())?;
        // SAFETY: passed on.
        unsafe { Self::over_state(tracker, writes, (state, opened), options.gated(), initialise, prepare) }
    }

    /// A runtime over a state that has just been opened.
    ///
    /// # Safety
    /// As `open`.
    pub(crate) unsafe fn over_state(
        tracker: Box<dyn Tracker>,
        writes: WriteSet,
        (state, opened): (State, Opened),
        gated: bool,
        initialise: Option<(InitFn, *mut c_void)>,
        prepare: impl FnOnce(*mut usize),
    ) -> Result<Arc<Self>> {
        if opened.new {
            state.mark_initialised();
        }
        let roots = state.roots();
        let mut runtime = Self::over(tracker, Box::new(state), writes, gated);
        runtime.new = opened.new;
        runtime.roots = roots.cast();
        prepare(runtime.roots);
        if opened.new {
            // SAFETY: passed on.
            let made = unsafe { runtime.run_init(initialise) }.and_then(|()| runtime.sync());
            if let Err(error) = made {
                runtime.executor.give_up();
                return Err(error);
            }
        }
        // After the initialisation, which may make globals, too.
        split_allocation::watch_end();
        runtime.backing().raise_fence();
        Ok(Arc::new(runtime))
    }

    /// Runs the initialisation alone, tracked, and commits what it wrote.
    ///
    /// # Safety
    /// `initialise` is sound to call with its argument.
    unsafe fn run_init(&self, initialise: Option<(InitFn, *mut c_void)>) -> Result<()> {
        let mut first = InitCall { executor: &self.executor, initialise, answer: 0 };
        let arg = (&raw mut first).cast();
        let args = [arg];
        let mut job = Job::new(run_initialise, &args);
        self.combiner.exclusive(|| {
            // SAFETY: no other thread uses the runtime yet; the rest is passed on.
            unsafe { self.executor.execute(&[NonNull::from(&mut job)]) };
        });
        if first.answer != 0 {
            let what = format!("the initialisation returned {}; nothing was made durable", first.answer);
            return Err(Error::Refused { what });
        }
        job.into_outcome().map(drop)
    }

    pub(crate) fn backing(&self) -> &dyn Backing {
        self.executor.backing()
    }

    /// True when this opening made the state rather than found one.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Sixteen words of the state, zero at first: from them the program finds its data again. Commands write them
    /// like any memory.
    #[must_use]
    pub fn roots(&self) -> *mut usize {
        self.roots
    }

    /// True when the state holds nothing of the program: its roots are zero, and its only block is its own. As slow
    /// as a check. No command may run.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        // SAFETY: sixteen words of the region, which no command writes now.
        let roots = unsafe { std::slice::from_raw_parts(self.roots, ROOT_COUNT) };
        let (stat, problems) = self.executor.backing().examine();
        // It holds the table of modules.
        let own_blocks = 1;
        roots.iter().all(|&root| root == 0)
            && (stat.arena.blocks, stat.arena.mapped_bytes) == (own_blocks, 0)
            && problems.is_empty()
    }

    /// True when a result that depends on `ticket` may be reported now.
    #[inline]
    #[must_use]
    pub fn may_answer(&self, ticket: Ticket) -> bool {
        !self.gated || self.executor.backing().durable() >= ticket
    }

    /// Waits until a result that depends on `ticket` may be reported.
    ///
    /// # Errors
    /// The medium failed first: what depends on the ticket must not be acknowledged. `Batch` in a forked child.
    #[inline]
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        if self.may_answer(ticket) {
            return Ok(());
        }
        self.wait_slow(ticket)
    }

    #[cold]
    fn wait_slow(&self, ticket: Ticket) -> Result<()> {
        self.refuse_child()?;
        self.executor.backing().wait(ticket).map_err(|error| self.executor.fail_medium(error))
    }

    /// Waits until everything committed so far is durable, whatever the durability mode.
    ///
    /// # Errors
    /// The medium failed, now or before; `Nested` inside a command.
    pub fn sync(&self) -> Result<()> {
        outside_commands()?;
        self.refuse_child()?;
        self.executor.backing().sync().map_err(|error| self.executor.fail_medium(error))
    }

    /// Waits until everything up to `ticket` is durable, whatever the durability mode.
    ///
    /// # Errors
    /// The medium failed first.
    pub fn sync_to(&self, ticket: Ticket) -> Result<()> {
        if self.executor.backing().durable() >= ticket {
            return Ok(());
        }
        outside_commands()?;
        self.refuse_child()?;
        self.executor.backing().sync_to(ticket).map_err(|error| self.executor.fail_medium(error))
    }

    /// Whether a wait for durability failed: what is not durable now never will be. After a refused commit, which is
    /// a [`Runtime::failure`] too, earlier commits still become durable.
    #[doc(hidden)]
    #[must_use]
    pub fn medium_failed(&self) -> bool {
        self.executor.medium_failed()
    }

    /// Why writes fail from now on, if they do.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.executor.failure()
    }

    /// Abandons the present command of this runtime half done. Nothing of its batch, and nothing after it, becomes
    /// durable; every later call returns `Broken`.
    pub fn abandon(&self) {
        self.executor.abandon();
    }

    /// Runs `command` with `arg`, tracked and alone, into the open batch; opens one first if none is open. From then
    /// on until [`Runtime::batch_commit`] clients neither read nor write. Between its calls the thread may read and
    /// allocate: what it allocates is not persistent.
    ///
    /// # Errors
    /// `Poisoned` and `Broken` are final: the batch is gone, and nothing of it is committed. `Nested`: called from
    /// inside a command or a read. `Batch`: another thread has a batch open, or this is a forked child. If the thread
    /// ends before the commit, the batch is gone, too, and later calls of other threads return `Broken`.
    ///
    /// # Safety
    /// `command` is sound to call with `arg` while no other command or read runs.
    #[inline]
    pub unsafe fn batch_call(self: &Arc<Self>, command: Command, arg: *mut c_void) -> Result<()> {
        self.may_use_batch()?;
        if !self.batch.is_mine() {
            self.open_batch()?;
            note_opened(self);
        }
        // SAFETY: the batch keeps this thread alone; the rest is passed on.
        match unsafe { self.executor.call_in_batch(command, arg) } {
            Ok(()) => {
                self.batch.count();
                Ok(())
            }
            Err(error) => {
                self.end_batch();
                Err(error)
            }
        }
    }

    /// Commits the open batch as one atomic group, with the blocks that were freed outside commands, and does not wait
    /// until it is durable. Commits those blocks alone if no batch is open. Results of the batch, and of reads beside
    /// it, must wait for the ticket.
    ///
    /// # Errors
    /// As [`Runtime::batch_call`]; `Batch` also when no batch is open and no block waits.
    pub fn batch_commit(&self) -> Result<Ticket> {
        self.may_use_batch()?;
        if !self.batch.is_mine() {
            if self.batch.is_open() {
                return Err(another_thread());
            }
            if let Some(error) = self.executor.refusal() {
                return Err(error);
            }
            if !self.executor.has_deferred() {
                return Err(nothing_open());
            }
            self.open_batch()?;
        }
        // SAFETY: the batch keeps this thread alone.
        let committed = unsafe { self.executor.commit_batch(self.batch.calls()) };
        self.end_batch();
        let ticket = committed?;
        if let Some(notifier) = self.notifier.get()
            && self.durable() < ticket
        {
            notifier.want(ticket);
        }
        Ok(ticket)
    }

    #[inline]
    fn may_use_batch(&self) -> Result<()> {
        if in_tracked_call() {
            return Err(Error::Nested);
        }
        self.refuse_child()
    }

    #[cold]
    fn open_batch(&self) -> Result<()> {
        if self.combiner.reads_here() {
            return Err(Error::Nested);
        }
        self.batch.take()?;
        self.combiner.hold();
        self.executor.refusal().map_or(Ok(()), |error| {
            self.end_batch();
            Err(error)
        })
    }

    fn end_batch(&self) {
        note_ended(self);
        self.batch.end();
        self.combiner.let_go();
    }

    /// Whether a batch is open, of any thread.
    #[must_use]
    pub fn has_open_batch(&self) -> bool {
        self.batch.is_open()
    }

    /// Everything up to this ticket is durable, in every durability mode. Grows; stands still once the medium has
    /// failed.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> Ticket {
        self.executor.durable()
    }

    /// As [`Runtime::wait`], for the ticket of a batch.
    ///
    /// # Errors
    /// As there, also with durability by interval; `Batch`, when the ticket was not given out, and in a forked child,
    /// unless the ticket was durable at the fork; `Nested` inside a command.
    pub fn batch_wait(&self, ticket: Ticket) -> Result<()> {
        outside_commands()?;
        if self.durable() >= ticket {
            return Ok(());
        }
        self.refuse_child()?;
        let newest = self.executor.last();
        if ticket > newest {
            let what = format!("no batch has the ticket {}; the newest is {}", ticket.0, newest.0);
            return Err(Error::Batch { what });
        }
        self.executor.refusal().map_or_else(|| self.wait(ticket), Err)
    }

    /// A descriptor (eventfd, not blocking) that becomes readable when a batch has become durable that was not when
    /// its commit returned, and when the medium has failed. The first call starts the thread that makes batches
    /// durable from then on. Reading its eight bytes clears it. It stays the runtime's.
    ///
    /// # Errors
    /// `Io`: the system has no descriptor or no thread. `Nested` inside a command; `Batch` in a forked child.
    pub fn notify_fd(&self) -> Result<RawFd> {
        static STARTING: Mutex<()> = Mutex::new(());
        self.may_use_batch()?;
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notifier) = self.notifier.get() {
            return Ok(notifier.descriptor());
        }
        // SAFETY: the runtime is in an Arc, so the executor stays where it is until `close` or the last drop, which
        // drop the notifier first.
        let notifier = unsafe { Notifier::start(&raw const self.executor, self.gated) }?;
        let notifier = self.notifier.get_or_init(|| notifier);
        // A commit beside this one sees the notifier, or this sees the commit (whose fence is the combiner's release).
        fence(Ordering::SeqCst);
        if self.durable() < self.executor.last() {
            notifier.want(self.executor.last());
        }
        Ok(notifier.descriptor())
    }

    /// Counters and state. In a forked child the counters of the state are 0.
    #[must_use]
    pub fn stat(&self) -> Stat {
        // A thread that the child does not have may hold a lock of the log.
        let is_here = self.refuse_child().is_ok();
        Stat {
            batches: self.executor.counters.batches.load(Ordering::Relaxed),
            commands: self.executor.counters.commands.load(Ordering::Relaxed),
            committed: self.executor.last(),
            durable: self.executor.durable(),
            tracker: self.executor.tracker_name(),
            // An error in the background has reached no call.
            failure: if is_here { self.executor.present_failure() } else { self.executor.failure() },
            state: if is_here { self.backing().counts() } else { StateCounts::default() },
        }
    }

    /// What the arena holds. Waits until no command runs; O(spans), so less than a millisecond for each gigabyte.
    ///
    /// # Errors
    /// `Nested` inside a command; `Batch` in a forked child.
    pub fn arena(&self) -> Result<ArenaStat> {
        if in_tracked_call() {
            return Err(Error::Nested);
        }
        // The commands that it would wait for are those of its parent's threads.
        self.refuse_child()?;
        let backing = self.executor.backing();
        // This thread keeps writers out already, and would wait for itself.
        if self.batch.is_mine() || self.combiner.reads_here() {
            return Ok(backing.arena());
        }
        Ok(self.combiner.exclusive(|| backing.arena()))
    }

    /// Makes everything durable, brings the data file up to date, and closes the pool.
    ///
    /// # Errors
    /// `Server` while clients are alive, `Batch` while a batch is open: the runtime stays open, but this handle to it
    /// is gone, so drop the clients and commit the batch first. Otherwise the medium's error, after which the pool
    /// opens by recovery. (After `Broken` it stays locked until the process ends.)
    pub fn close(self: Arc<Self>) -> Result<()> {
        if let Err(error) = self.refuse_child() {
            std::mem::forget(self);
            return Err(error);
        }
        let mut this = self;
        if this.has_open_batch() {
            return Err(Error::Batch {
                what: "a batch is open; commit it before the runtime is closed".into(),
            });
        }
        let alive = || Error::Server {
            what: "clients are still alive; end them before the runtime is closed".into(),
        };
        // The notifier's thread uses the executor, which moves below.
        drop(Arc::get_mut(&mut this).ok_or_else(alive)?.notifier.take());
        let runtime = Arc::into_inner(this).ok_or_else(alive)?;
        runtime.executor.close()
    }
}

impl LosesBatch for Runtime {
    fn lose_batch(&self) {
        // A command that ends the process stays alone; in a forked child the batch is the parent's.
        if self.may_use_batch().is_err() || !self.batch.is_mine() {
            return;
        }
        let what = "the thread that had a batch open ended without committing it".into();
        // SAFETY: the batch keeps this thread alone.
        unsafe { self.executor.lose_batch(Error::Broken { what }) };
        self.end_batch();
    }
}

impl Client {
    /// The runtime that this is a client of.
    #[must_use]
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    fn slot(&self) -> &ClientSlot<Job> {
        // SAFETY: slots live as long as the combiner, which the client's Arc keeps.
        unsafe { self.slot.as_ref() }
    }

    /// Runs a read on this thread, natively, beside other reads and never beside a write. Returns the read's result
    /// and the ticket that must be durable before the result is reported.
    ///
    /// # Errors
    /// `Broken`: memory holds half a command. `Nested`: called from inside a command. `Batch`: this thread has a batch
    /// open.
    #[inline]
    pub fn read<R>(&mut self, call: impl FnOnce() -> R) -> Result<(R, Ticket)> {
        // SAFETY: the slot is this client's, which is borrowed.
        unsafe { self.runtime.read_at(self.slot(), call) }
    }

    /// As [`Client::read`], and waits until the result may be reported. After the medium failed, reads continue
    /// without waiting: they see everything durable, and what was being written when the medium failed.
    ///
    /// # Errors
    /// As `read`.
    #[inline]
    pub fn read_durable<R>(&mut self, call: impl FnOnce() -> R) -> Result<R> {
        let (result, seen) = self.read(call)?;
        // The runtime has recorded the error, and reads continue.
        let _ = self.runtime.wait(seen);
        Ok(result)
    }

    /// Has `command` run with each of `args`, in order, tracked, in one batch. The batch may hold commands of other
    /// clients, and may run on another client's thread. Returns when the batch is committed. The result must wait
    /// for the ticket ([`Runtime::wait`]).
    ///
    /// # Errors
    /// `Poisoned`, `Broken` and a refused commit (`Moved`, `Foreign`) are final: the commands did not run, or their
    /// batch never becomes durable. `Nested`: called from inside a command; `Batch`: this thread has a batch open.
    /// Nothing was done then.
    ///
    /// # Safety
    /// `command` is sound to call with each of `args`, on any thread, while no other command or read runs.
    #[inline]
    pub unsafe fn write(&mut self, command: Command, args: &[*mut c_void]) -> Result<Ticket> {
        // SAFETY: the slot is this client's, which is borrowed; the rest is passed on.
        unsafe { self.runtime.write_at(self.slot(), command, args) }
    }

    /// As [`Client::write`], and waits until the result may be reported.
    ///
    /// # Errors
    /// As `write`; also when the medium failed before the batch was durable.
    ///
    /// # Safety
    /// As `write`.
    #[inline]
    pub unsafe fn write_durable(&mut self, command: Command, args: &[*mut c_void]) -> Result<()> {
        // SAFETY: the slot is this client's, which is borrowed; the rest is passed on.
        unsafe { self.runtime.write_and_settle_at(self.slot(), command, args, Runtime::wait) }
    }

    /// As [`Client::write`], and waits until the batch is durable, whatever the durability mode: a state with
    /// durability by interval may have some synced writes.
    ///
    /// # Errors
    /// As `write_durable`.
    ///
    /// # Safety
    /// As `write`.
    #[inline]
    pub unsafe fn write_synced(&mut self, command: Command, args: &[*mut c_void]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.runtime.write_and_settle_at(self.slot(), command, args, Runtime::sync_to) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.runtime.leave(self.slot());
    }
}
