//! The runtime: clients, reads, writes, and what their answers wait for.

use crate::backing::Backing;
use crate::batch::{Command, Executor, Job};
use crate::combiner::Combiner;
use crate::image::{Image, Opened};
use crate::image_layout::ROOT_COUNT;
use crate::slots::Slot;
use crate::stat::Stat;
use crate::{Error, Options, Result, route};
use mangrove_shadow::Ticket;
use mangrove_tracker::{Tracker, WriteSet, in_tracked_call};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program's durable state, open: reads run in parallel on the memory itself, writes in batches whose
/// changes are committed as one unit each.
///
/// Durable linearizability: a write that was answered survives every crash that the medium survives; one
/// that was not answered is there whole or not at all; no answer rests on a write that may still be lost.
/// With durability by interval a crash loses a suffix of the writes instead, answered or not.
pub struct Runtime {
    combiner: Combiner<Job>,
    executor: Executor,
    medium_failed: AtomicBool,
    /// Answers wait for durability.
    gated: bool,
    new: bool,
    roots: *mut usize,
}

// SAFETY: `roots` is an address that is handed out; who follows it does so in commands and reads.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

/// Makes the first state of a program: tracked, alone. 0 says that it succeeded.
pub type Initialise = unsafe extern "C" fn(*mut c_void) -> c_int;

struct First<'a> {
    executor: &'a Executor,
    initialise: Option<(Initialise, *mut c_void)>,
    answer: c_int,
}

/// The command around the initialisation.
///
/// # Safety
/// `arg` is a `First`, alone.
unsafe extern "C" fn run_initialise(arg: *mut c_void) {
    // SAFETY: by contract.
    let first = unsafe { &mut *arg.cast::<First<'_>>() };
    if let Some((initialise, arg)) = first.initialise {
        // SAFETY: promised to `Runtime::open`.
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

/// Somebody who issues commands, one at a time. Any number; cheap; a slot of its own in the combiner.
pub struct Client {
    runtime: Arc<Runtime>,
    slot: NonNull<Slot<Job>>,
}

// SAFETY: the slot lives as long as the runtime that the client holds, and `&mut self` makes its user one.
unsafe impl Send for Client {}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// What a command may not ask for: it would wait for itself, and the runtime's own memory would become the state's.
pub(crate) fn outside_commands() -> Result<()> {
    if route::is_inside() { Err(Error::Nested) } else { Ok(()) }
}

impl Runtime {
    /// A runtime over parts that are open already. `gated`: answers wait for durability.
    pub(crate) fn over(
        tracker: Box<dyn Tracker>,
        backing: Box<dyn Backing>,
        writes: WriteSet,
        gated: bool,
    ) -> Self {
        let executor = Executor::new(tracker, backing, writes);
        Self {
            combiner: Combiner::new(),
            executor,
            medium_failed: AtomicBool::new(false),
            gated,
            new: true,
            roots: std::ptr::null_mut(),
        }
    }

    /// A new client.
    ///
    /// # Errors
    /// `TooManyClients` beyond 2^26 at a time; `Nested` inside a command.
    pub fn client(self: &Arc<Self>) -> Result<Client> {
        outside_commands()?;
        Ok(Client { runtime: Arc::clone(self), slot: self.join()? })
    }

    /// A slot in the combiner; lives as long as the runtime, and goes back by `part`.
    pub(crate) fn join(&self) -> Result<NonNull<Slot<Job>>> {
        self.combiner.join().map(NonNull::from).ok_or(Error::TooManyClients)
    }

    pub(crate) fn part(&self, slot: &Slot<Job>) {
        self.combiner.part(slot);
    }

    /// See [`Client::read`].
    ///
    /// # Safety
    /// The slot is of this runtime, and in no other call.
    #[inline]
    pub(crate) unsafe fn read_at<R>(
        &self,
        slot: &Slot<Job>,
        call: impl FnOnce() -> R,
    ) -> Result<(R, Ticket)> {
        // Of whatever state: that one's next command may be waiting for ours to end.
        if in_tracked_call() {
            return Err(Error::Nested);
        }
        self.combiner.read(slot, || {
            self.executor.broken()?;
            let result = call();
            Ok((result, self.executor.last()))
        })
    }

    /// See [`Client::write`].
    ///
    /// # Safety
    /// As there; the slot is of this runtime, and in no other call.
    #[inline]
    pub(crate) unsafe fn write_at(
        &self,
        slot: &Slot<Job>,
        command: Command,
        args: &[*mut c_void],
    ) -> Result<Ticket> {
        if in_tracked_call() {
            return Err(Error::Nested);
        }
        let mut job = Job::new(command, args);
        self.combiner.write(slot, &mut job, |jobs| {
            // SAFETY: alone by the combiner; the rest is every caller's promise.
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
        slot: &Slot<Job>,
        command: Command,
        args: &[*mut c_void],
        settle: impl FnOnce(&Self, Ticket) -> Result<()>,
    ) -> Result<()> {
        if in_tracked_call() {
            return Err(Error::Nested);
        }
        let mut job = Job::new(command, args);
        let mut settled = Ok(());
        let execute = |jobs: &[NonNull<Job>]| {
            // SAFETY: alone by the combiner; the rest is every caller's promise.
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

    /// Opens the state at `path`, or makes one. A state that nobody finished initialising is new: then
    /// `initialise` runs, tracked, and everything it made is durable when this returns; a crash before leaves
    /// nothing. Its answer must be 0.
    ///
    /// # Errors
    /// What the pool says; `Foreign` and `Moved` when the state belongs to another program or another build;
    /// `Tracker` when the tracker asked for cannot work here; `Refused` when `initialise` answered something else.
    ///
    /// # Safety
    /// `initialise` is sound to call with its argument. The state's own code must keep what the state relies on:
    /// it is opened by the program that made it.
    pub unsafe fn open(
        path: impl AsRef<Path>,
        options: &Options,
        initialise: Option<(Initialise, *mut c_void)>,
    ) -> Result<Arc<Self>> {
        // SAFETY: passed on.
        unsafe { Self::open_prepared(path.as_ref(), options, initialise, |_| ()) }
    }

    /// As `open`; `prepare` gets the roots before the initialisation runs.
    ///
    /// # Safety
    /// As `open`.
    pub(crate) unsafe fn open_prepared(
        path: &Path,
        options: &Options,
        initialise: Option<(Initialise, *mut c_void)>,
        prepare: impl FnOnce(*mut usize),
    ) -> Result<Arc<Self>> {
        outside_commands()?;
        // What is left of a process's address space is the image's: these come before it.
        let (writes, tracker) = (options.write_set()?, options.make_tracker()?);
        let (image, opened) = Image::open(path, &options.image())?;
        // SAFETY: passed on.
        unsafe { Self::over_image(tracker, writes, (image, opened), options.gated(), initialise, prepare) }
    }

    /// A runtime over an image that has just been opened.
    ///
    /// # Safety
    /// As `open`.
    pub(crate) unsafe fn over_image(
        tracker: Box<dyn Tracker>,
        writes: WriteSet,
        (image, opened): (Image, Opened),
        gated: bool,
        initialise: Option<(Initialise, *mut c_void)>,
        prepare: impl FnOnce(*mut usize),
    ) -> Result<Arc<Self>> {
        if opened.new {
            image.mark_initialised();
        }
        let roots = image.roots();
        let mut runtime = Self::over(tracker, Box::new(image), writes, gated);
        runtime.new = opened.new;
        runtime.roots = roots.cast();
        prepare(runtime.roots);
        if opened.new {
            // SAFETY: passed on.
            let made = unsafe { runtime.run_first(initialise) }.and_then(|()| runtime.sync());
            if let Err(error) = made {
                runtime.executor.give_up();
                return Err(error);
            }
        }
        Ok(Arc::new(runtime))
    }

    /// Runs the initialisation alone, tracked, and commits what it wrote.
    ///
    /// # Safety
    /// `initialise` is sound to call with its argument.
    unsafe fn run_first(&self, initialise: Option<(Initialise, *mut c_void)>) -> Result<()> {
        let mut first = First { executor: &self.executor, initialise, answer: 0 };
        let arg = (&raw mut first).cast();
        let args = [arg];
        let mut job = Job::new(run_initialise, &args);
        self.combiner.exclusive(|| {
            // SAFETY: alone; the rest is passed on.
            unsafe { self.executor.execute(&[NonNull::from(&mut job)]) };
        });
        if first.answer != 0 {
            let what = format!("the initialisation answered {}; nothing was made durable", first.answer);
            return Err(Error::Refused { what });
        }
        job.into_outcome().map(drop)
    }

    pub(crate) fn backing(&self) -> &dyn Backing {
        self.executor.backing()
    }

    /// True when this opening made the state, and did not find one.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Sixteen words of the state, zero at first: where the program finds its data again. Commands write
    /// them like any memory.
    #[must_use]
    pub fn roots(&self) -> *mut usize {
        self.roots
    }

    /// True when nothing was ever kept in the state: its roots are zero, and what is allocated is its own. Time: as
    /// a check. No command may run.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        // SAFETY: sixteen words of the region, which nobody writes.
        let roots = unsafe { std::slice::from_raw_parts(self.roots, ROOT_COUNT) };
        let (stat, problems) = self.executor.backing().examine();
        // The table of modules.
        let own_blocks = 1;
        roots.iter().all(|&root| root == 0)
            && (stat.arena.blocks, stat.arena.mapped_bytes) == (own_blocks, 0)
            && problems.is_empty()
    }

    /// True when answers wait for durability (`sync`), false when they do not (`interval`).
    #[must_use]
    pub fn answers_wait(&self) -> bool {
        self.gated
    }

    /// True when an answer that rests on `ticket` may be given now.
    #[inline]
    #[must_use]
    pub fn may_answer(&self, ticket: Ticket) -> bool {
        !self.gated || self.executor.backing().durable() >= ticket
    }

    /// Waits until an answer that rests on `ticket` may be given.
    ///
    /// # Errors
    /// The medium failed first: what rests on the ticket must not be acknowledged.
    #[inline]
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        if self.may_answer(ticket) {
            return Ok(());
        }
        self.wait_slow(ticket)
    }

    #[cold]
    fn wait_slow(&self, ticket: Ticket) -> Result<()> {
        self.executor.backing().wait(ticket).map_err(|error| self.lose(error))
    }

    /// Waits until everything committed so far is durable, whatever the durability mode.
    ///
    /// # Errors
    /// The medium failed, now or before; `Nested` inside a command.
    pub fn sync(&self) -> Result<()> {
        outside_commands()?;
        self.executor.backing().sync().map_err(|error| self.lose(error))
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
        self.executor.backing().sync_to(ticket).map_err(|error| self.lose(error))
    }

    /// Latches that the medium failed before something was durable.
    fn lose(&self, error: Error) -> Error {
        // Release, with the Acquire in `medium_failed`.
        self.medium_failed.store(true, Ordering::Release);
        self.executor.fail(error)
    }

    /// Whether somebody waited for durability in vain: what is not durable now never will be. After a commit that was
    /// refused, which is a [`Runtime::failure`] too, what was committed before still becomes durable.
    pub(crate) fn medium_failed(&self) -> bool {
        // Acquire, with the Release in `lose`.
        self.medium_failed.load(Ordering::Acquire)
    }

    /// Applies everything committed so far to the image and frees the log: the next opening has less to do.
    ///
    /// # Errors
    /// The medium failed, now or before; `Nested` inside a command.
    pub fn checkpoint(&self) -> Result<()> {
        outside_commands()?;
        self.executor.backing().checkpoint().map_err(|error| self.executor.fail(error))
    }

    /// Why nothing is written any more, if so.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.executor.failure()
    }

    /// Says, from inside a command of this runtime, that it gave up halfway: nothing of its batch, and nothing
    /// after it, becomes durable; every further call answers `Broken`.
    pub fn abandon(&self) {
        self.executor.abandon();
    }

    /// Counters and state.
    #[must_use]
    pub fn stat(&self) -> Stat {
        Stat {
            batches: self.executor.counters.batches.load(Ordering::Relaxed),
            commands: self.executor.counters.commands.load(Ordering::Relaxed),
            committed: self.executor.last(),
            durable: self.executor.backing().durable(),
            tracker: self.executor.tracker_name(),
            failure: self.executor.failure(),
        }
    }

    /// Makes everything durable, brings the image up to date, and closes the pool.
    ///
    /// # Errors
    /// `Nested` while clients are alive (the runtime goes on, and is given back to nobody: drop them first);
    /// the medium's error, after which the pool opens by recovery.
    pub fn close(self: Arc<Self>) -> Result<()> {
        let runtime = Arc::into_inner(self).ok_or(Error::Server {
            what: "clients are still alive; end them before the runtime is closed".into(),
        })?;
        runtime.executor.close()
    }
}

impl Client {
    /// The runtime that this is a client of.
    #[must_use]
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    fn slot(&self) -> &Slot<Job> {
        // SAFETY: slots live as long as the combiner, which the client's Arc keeps.
        unsafe { self.slot.as_ref() }
    }

    /// Runs a read on this thread, natively, beside other reads and never beside a write; returns what it
    /// returned, and the ticket that its answer must wait for.
    ///
    /// # Errors
    /// `Broken`: memory holds half a command. `Nested`: called from inside a command.
    #[inline]
    pub fn read<R>(&mut self, call: impl FnOnce() -> R) -> Result<(R, Ticket)> {
        // SAFETY: the slot is this client's, who is borrowed.
        unsafe { self.runtime.read_at(self.slot(), call) }
    }

    /// As [`Client::read`], and waits until its answer may be given. After the medium failed reads go on
    /// without: they then see everything durable, and what was being written when it failed.
    ///
    /// # Errors
    /// As `read`.
    #[inline]
    pub fn read_durable<R>(&mut self, call: impl FnOnce() -> R) -> Result<R> {
        let (result, seen) = self.read(call)?;
        // The error has latched, and reads go on.
        let _ = self.runtime.wait(seen);
        Ok(result)
    }

    /// Has `command` run with each of `args`, in order, tracked, in one batch, perhaps with commands of other
    /// clients and perhaps on another client's thread; returns when the batch is committed. The answer must
    /// wait for the ticket ([`Runtime::wait`]).
    ///
    /// # Errors
    /// `Poisoned` and `Broken` latch: the commands were not run, or their batch is not and will not be durable.
    /// `Nested`: called from inside a command; nothing was done.
    ///
    /// # Safety
    /// `command` is sound to call with each of `args`, on any thread, while no other command or read runs.
    #[inline]
    pub unsafe fn write(&mut self, command: Command, args: &[*mut c_void]) -> Result<Ticket> {
        // SAFETY: the slot is this client's, who is borrowed; the rest is passed on.
        unsafe { self.runtime.write_at(self.slot(), command, args) }
    }

    /// As [`Client::write`], and waits until its answer may be given.
    ///
    /// # Errors
    /// As `write`; also when the medium failed before the batch was durable.
    ///
    /// # Safety
    /// As `write`.
    #[inline]
    pub unsafe fn write_durable(&mut self, command: Command, args: &[*mut c_void]) -> Result<()> {
        // SAFETY: the slot is this client's, who is borrowed; the rest is passed on.
        unsafe { self.runtime.write_and_settle_at(self.slot(), command, args, Runtime::wait) }
    }

    /// As [`Client::write`], and waits until the batch is durable, whatever the durability mode: a state with
    /// durability by interval may have some writes that are synced.
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
        self.runtime.combiner.part(self.slot());
    }
}
