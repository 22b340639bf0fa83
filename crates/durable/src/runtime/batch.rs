//! One batch: tracked calls, one commit, and the outcome of each job.
//!
//! Invariants:
//! 1. A batch is committed whole or not at all. After a call that ended halfway this process commits nothing more
//!    and serves nothing more (`broken`).
//! 2. `last` is the newest committed ticket whenever no batch runs: a reader inside the combiner's read section has
//!    seen at most that.
//! 3. After the first failed commit no command runs: memory then holds what that batch did, and no client got its
//!    results. Nor does one run once the medium has failed, whichever call met the failure: memory then holds what
//!    was committed.

use crate::alloc::split_allocation;
use crate::runtime::backing::Backing;
use crate::{Error, Result};
use mangrove_shadow::Ticket;
use mangrove_sys::ProcessMark;
use mangrove_tracker::{Tracker, WriteSet};
use parking_lot::Mutex;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// A write command. It is tracked, and runs on the thread that combines.
pub type Command = unsafe extern "C" fn(*mut c_void);

/// The commands that one client has for a batch, and how the batch ended.
pub(crate) struct Job {
    pub(crate) command: Command,
    /// The command runs once with each.
    pub(crate) args: *const *mut c_void,
    pub(crate) count: usize,
    pub(crate) outcome: Option<Result<Ticket>>,
}

impl Job {
    pub(crate) fn new(command: Command, args: &[*mut c_void]) -> Self {
        Self { command, args: args.as_ptr(), count: args.len(), outcome: None }
    }

    /// How it ended, once it is done.
    pub(crate) fn into_outcome(self) -> Result<Ticket> {
        self.outcome.unwrap_or_else(|| Err(Error::Broken { what: "the command was not run".into() }))
    }
}

// SAFETY: what the pointers lead to belongs to the client, which waits for the job: while a combiner has the job no
// other thread touches it. A command may run on another thread by its contract.
unsafe impl Send for Job {}

/// Counters of batches, since the start.
#[derive(Debug, Default)]
pub(crate) struct BatchCounters {
    pub(crate) batches: AtomicU64,
    pub(crate) commands: AtomicU64,
}

impl BatchCounters {
    /// One batch more. Its caller is alone, so nothing is lost between load and store.
    fn count(&self, commands: u64) {
        for (counter, more) in [(&self.batches, 1), (&self.commands, commands)] {
            // Relaxed: counters.
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }
}

/// Executes batches, one at a time; the combiner ensures that.
pub(crate) struct BatchExecutor {
    tracker: Box<dyn Tracker>,
    /// `None` while the executor ends.
    backing: Option<Box<dyn Backing>>,
    writes: UnsafeCell<WriteSet>,
    last: AtomicU64,
    failed: AtomicBool,
    failure: OnceLock<Error>,
    broken: AtomicBool,
    /// See [`Backing::awaits_libraries`].
    awaits_libraries: AtomicBool,
    /// A command of the present batch abandoned its work.
    abandoned: AtomicBool,
    /// A wait for durability failed.
    medium_failed: AtomicBool,
    pub(crate) counters: BatchCounters,
}

/// The error as every later call gets it.
fn lasting(error: Error) -> Error {
    match error {
        Error::Broken { .. } | Error::Poisoned { .. } | Error::Moved { .. } | Error::Foreign { .. } => error,
        other => Error::Poisoned { first: other.to_string() },
    }
}

// SAFETY: only `execute` and the calls of an open batch touch `writes`, and their caller is alone.
unsafe impl Sync for BatchExecutor {}

/// One tracked call runs at a time in a process, however many runtimes there are.
struct Tracked {
    process: ProcessMark,
    /// All of them share the translated code; the number counts the libraries that had been unloaded when that code was
    /// last forgotten.
    forgotten: Mutex<u64>,
}

/// Made at the first command of a process, and never freed: a thread that a forked child does not have may hold the
/// lock of its parent's.
static TRACKED: AtomicPtr<Tracked> = AtomicPtr::new(null_mut());

/// The lock of this process.
#[inline]
fn tracked() -> &'static Mutex<u64> {
    // Acquire, with the Release in `make_tracked`.
    let present = TRACKED.load(Ordering::Acquire);
    // SAFETY: null, or never freed.
    match unsafe { present.as_ref() } {
        Some(tracked) if tracked.process.is_here() => &tracked.forgotten,
        _ => make_tracked(present),
    }
}

/// As `tracked`, where `present` is none or that of a parent.
#[cold]
fn make_tracked(present: *mut Tracked) -> &'static Mutex<u64> {
    let made = Tracked { process: ProcessMark::here(), forgotten: Mutex::new(0) };
    let made = Box::into_raw(Box::new(made));
    match TRACKED.compare_exchange(present, made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made, and from now on never freed.
        Ok(_) => unsafe { &(*made).forgotten },
        Err(other) => {
            // SAFETY: just made, and known only here.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: another thread of this process has made it, and it is never freed.
            unsafe { &(*other).forgotten }
        }
    }
}

impl BatchExecutor {
    pub(crate) fn new(tracker: Box<dyn Tracker>, backing: Box<dyn Backing>, writes: WriteSet) -> Self {
        let last = backing.durable().0;
        let awaits_libraries = AtomicBool::new(backing.awaits_libraries());
        Self {
            tracker,
            backing: Some(backing),
            writes: UnsafeCell::new(writes),
            last: AtomicU64::new(last),
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            broken: AtomicBool::new(false),
            awaits_libraries,
            abandoned: AtomicBool::new(false),
            medium_failed: AtomicBool::new(false),
            counters: BatchCounters::default(),
        }
    }

    #[inline]
    pub(crate) fn backing(&self) -> &dyn Backing {
        self.backing.as_deref().expect("an executor that lives has its backing")
    }

    pub(crate) fn tracker_name(&self) -> &'static str {
        self.tracker.name()
    }

    /// The newest ticket that a command of an earlier batch may have.
    #[inline]
    pub(crate) fn last(&self) -> Ticket {
        // Acquire, with the Release in `execute`; inside a read section the combiner orders it anyway.
        Ticket(self.last.load(Ordering::Acquire))
    }

    /// Why writes fail from now on, if they do.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Error> {
        // Acquire, with the Release in `fail`.
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.get().cloned()
    }

    /// As `failure`, and asks the medium too: an error in the background reaches no caller.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.failure().or_else(|| self.backing().poisoned().map(|error| self.fail(error)))
    }

    /// As `refusal`, for who only asks: nothing changes.
    pub(crate) fn present_failure(&self) -> Option<Error> {
        self.failure().or_else(|| self.backing().poisoned().map(lasting))
    }

    /// Why even reads fail from now on, if they do: memory holds half a command.
    #[inline]
    pub(crate) fn broken(&self) -> Result<()> {
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.failure().unwrap_or(Error::Broken { what: "unknown".into() }))
    }

    /// Why this read fails, if it does. Inside the read.
    #[inline]
    pub(crate) fn begin_read(&self) -> Result<()> {
        self.broken()?;
        // Acquire, with the Release in `look_for_libraries`: this read sees the variables that another one has put in
        // place. A thread that calls into a library has synchronised with the one that loaded it.
        if self.awaits_libraries.load(Ordering::Acquire) {
            self.look_for_libraries()?;
        }
        Ok(())
    }

    #[cold]
    fn look_for_libraries(&self) -> Result<()> {
        let still = self.backing().look_for_libraries()?;
        if !still {
            // Release, with the Acquire in `begin_read`.
            self.awaits_libraries.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Keeps the first failure and returns it.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let kept = lasting(error);
        if matches!(kept, Error::Broken { .. }) {
            self.broken.store(true, Ordering::Release);
        }
        if let Some(backing) = &self.backing {
            backing.note_failure();
        }
        let first = self.failure.get_or_init(|| kept).clone();
        // Release, with the Acquire in `failure`.
        self.failed.store(true, Ordering::Release);
        first
    }

    /// Remembers that the medium failed before something was durable.
    pub(crate) fn fail_medium(&self, error: Error) -> Error {
        // Release, with the Acquire in `medium_failed`.
        self.medium_failed.store(true, Ordering::Release);
        self.fail(error)
    }

    pub(crate) fn medium_failed(&self) -> bool {
        // Acquire, with the Release in `fail_medium`.
        self.medium_failed.load(Ordering::Acquire)
    }

    /// The newest durable ticket that was given out. A commit that failed may have left a greater number durable.
    #[inline]
    pub(crate) fn durable(&self) -> Ticket {
        self.backing().durable().min(self.last())
    }

    /// Abandons the present command half done: its batch is not committed, and nothing after it.
    pub(crate) fn abandon(&self) {
        // Relaxed: this thread itself reads it, when the batch has run.
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Runs every command of every job and commits what they wrote as one atomic group.
    ///
    /// # Safety
    /// The caller is alone (the combiner's `execute`), and each job's command is sound to call with each of its
    /// arguments, which stay valid.
    pub(crate) unsafe fn execute(&self, jobs: &[NonNull<Job>]) {
        let result = match self.refusal() {
            Some(error) => Err(error),
            // SAFETY: passed on.
            None => unsafe { self.run_and_commit(jobs) }.map_err(|e| self.fail(e)),
        };
        for job in jobs {
            // SAFETY: a job is the combiner's until it is DONE.
            unsafe { (*job.as_ptr()).outcome = Some(result.clone()) };
        }
    }

    unsafe fn run_and_commit(&self, jobs: &[NonNull<Job>]) -> Result<Ticket> {
        // SAFETY: the caller is alone.
        let writes = unsafe { &mut *self.writes.get() };
        let mut commands = 0;
        let ran = self.enter(writes, |writes| {
            for job in jobs {
                // SAFETY: as in `execute`.
                let job = unsafe { job.as_ref() };
                for at in 0..job.count {
                    // SAFETY: `args` has `count` elements; the rest is passed on.
                    unsafe { self.call(writes, job.command, *job.args.add(at)) }?;
                    if self.not_abandoned().is_err() {
                        // Memory holds half a command: no other may see it.
                        return Ok(());
                    }
                    commands += 1;
                }
            }
            Ok(())
        })?;
        if let Err(error) = ran {
            let error: mangrove_tracker::Error = error;
            // Even if the failed command changed nothing itself: earlier commands of the batch have run.
            writes.clear();
            return Err(Error::Broken { what: error.to_string() });
        }
        self.counters.count(commands);
        if let Err(error) = self.not_abandoned() {
            writes.clear();
            return Err(error);
        }
        self.commit(writes)
    }

    /// One tracked call.
    ///
    /// # Safety
    /// As `Tracker::call`.
    #[inline]
    unsafe fn call(
        &self,
        writes: &mut WriteSet,
        command: Command,
        arg: *mut c_void,
    ) -> mangrove_tracker::Result<()> {
        loop {
            // SAFETY: passed on.
            match unsafe { self.tracker.call(writes, command, arg) } {
                // Nothing has run: a thread that opens another state is setting up its tracker.
                Err(mangrove_tracker::Error::Busy) => std::thread::yield_now(),
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        if writes.keeps_calls_apart() {
            writes.seal();
        }
        Ok(())
    }

    /// Runs `work` with the calling thread inside: what it allocates is persistent.
    #[inline]
    fn enter<R>(&self, writes: &mut WriteSet, work: impl FnOnce(&mut WriteSet) -> R) -> Result<R> {
        let backing = self.backing();
        let mut forgotten = tracked().lock();
        // SAFETY: valid until `leave`.
        let entered = unsafe { backing.enter(writes) }?;
        if entered.unloaded > *forgotten {
            *forgotten = entered.unloaded;
            split_allocation::outside(|| self.tracker.forget_code());
        }
        let result = work(writes);
        backing.leave();
        Ok(result)
    }

    #[inline]
    fn not_abandoned(&self) -> Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Error::Broken { what: "it panicked, or gave up".into() });
        }
        Ok(())
    }

    fn commit(&self, writes: &mut WriteSet) -> Result<Ticket> {
        let ticket = self.backing().commit(writes)?;
        // Release, with the Acquire in `last`.
        self.last.store(ticket.0, Ordering::Release);
        Ok(ticket)
    }

    /// Runs one command into the open batch. After an error the batch has ended: nothing of it is committed.
    ///
    /// # Safety
    /// The caller is alone since the batch was opened, and the command is sound to call with `arg`.
    pub(crate) unsafe fn call_in_batch(&self, command: Command, arg: *mut c_void) -> Result<()> {
        // SAFETY: the caller is alone.
        let writes = unsafe { &mut *self.writes.get() };
        // SAFETY: passed on.
        let ran = unsafe { self.run_one(writes, command, arg) };
        ran.map_err(|error| {
            // Earlier commands of the batch have run: it can neither be committed nor undone.
            writes.clear();
            self.fail(error)
        })
    }

    unsafe fn run_one(&self, writes: &mut WriteSet, command: Command, arg: *mut c_void) -> Result<()> {
        self.enter(writes, |writes| {
            // SAFETY: passed on.
            unsafe { self.call(writes, command, arg) }
        })?
        .map_err(|error| Error::Broken { what: error.to_string() })?;
        self.not_abandoned()
    }

    /// Whether blocks that were freed outside commands wait for a batch.
    pub(crate) fn has_deferred(&self) -> bool {
        self.backing().has_deferred()
    }

    /// Commits the open batch of `commands` calls, with the blocks that were freed outside commands.
    ///
    /// # Safety
    /// The caller is alone since the batch was opened.
    pub(crate) unsafe fn commit_batch(&self, commands: u64) -> Result<Ticket> {
        // SAFETY: the caller is alone.
        let writes = unsafe { &mut *self.writes.get() };
        let committed = match self.refusal() {
            Some(error) => Err(error),
            None => self.commit_with_deferred(writes, commands),
        };
        committed.map_err(|error| {
            writes.clear();
            self.fail(error)
        })
    }

    fn commit_with_deferred(&self, writes: &mut WriteSet, commands: u64) -> Result<Ticket> {
        if self.has_deferred() {
            self.enter(writes, |_| ())?;
        }
        self.counters.count(commands);
        self.commit(writes)
    }

    /// Ends the open batch without a commit: memory holds what nothing will make durable.
    ///
    /// # Safety
    /// The caller is alone since the batch was opened.
    pub(crate) unsafe fn lose_batch(&self, error: Error) {
        // SAFETY: the caller is alone.
        let writes = unsafe { &mut *self.writes.get() };
        writes.clear();
        self.fail(error);
    }

    /// Gives the backing up, whatever was committed.
    pub(crate) fn give_up(mut self) {
        if let Some(backing) = self.backing.take() {
            backing.give_up();
        }
    }

    /// Closes the backing. After half a command it stays as it is: something of the process may point there.
    pub(crate) fn close(mut self) -> Result<()> {
        let backing = self.backing.take();
        if let Err(error) = self.broken() {
            std::mem::forget(backing);
            return Err(error);
        }
        let failure = self.failure();
        let closed = backing.map_or(Ok(()), Backing::close);
        failure.map_or(closed, Err)
    }
}

impl Drop for BatchExecutor {
    /// As `give_up`, after half a command.
    fn drop(&mut self) {
        if self.broken.load(Ordering::Acquire)
            && let Some(backing) = self.backing.take()
        {
            backing.give_up();
        }
    }
}
