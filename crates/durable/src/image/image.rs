//! A program's durable state: everything persistent in one region, as the runtime's [`Backing`].
//!
//! Invariants:
//! 1. The header's magic word is committed together with everything that initialisation made: a region without it is
//!    all zero and new, or damaged.
//! 2. What a command wrote is in its commit if it lies in the region or is a variable of a program module that was
//!    loaded before its batch began; everything else (stacks, the process's heap, libc's own data) is not persistent.
//! 3. Nothing durable changes between opening and the first commit, nor after a failed commit.
//! 4. A command runs only when the state's table of modules is that of the process, or its atomic group makes it so:
//!    the group may hold addresses of every module that is loaded, and mirrors name modules by their places there.
//! 5. Closing a state leaves its memory mapped until another state is opened, so that destructors may still read it.
//!    `returns_memory(true)` unmaps it at once. It stays mapped for the life of the process if a panic payload that
//!    left a command lies in it (`keep_memory`).

use crate::alloc::reports::Reports;
use crate::alloc::split_allocation;
use crate::alloc::split_allocation::Registration;
use crate::alloc::thread_keys;
use crate::alloc::write_fence::{FenceReport, WriteFence};
use crate::image::aslr::MovingModules;
use crate::image::audit::Audit;
use crate::image::free_space;
use crate::image::gather::Gatherer;
use crate::image::layout::{ARENA_OFFSET, MAGIC, ROOT_COUNT, StateHeader, VERSION};
use crate::image::left_states::{in_the_way, leave, left_states, unmap};
use crate::image::modules::{Gone, Modules};
use crate::image::pointers::{points_nowhere, points_there};
use crate::image::space::ImageSpace;
use crate::image::variables::Globals;
use crate::runtime::backing::{Backing, EnterReport};
use crate::silence::{SilencedWrites, is_silent};
use crate::stat::{ImageStat, StateCounts};
use crate::{Error, Result};
use mangrove_arena::{ArenaHeap, ArenaStat, ArenaView, Writes};
use mangrove_shadow::{Shadow, Ticket};
use mangrove_sys::{ModulesWatch, Parked, park};
use mangrove_tracker::{BLOCK_BYTES_DEFAULT, WriteSet};
use parking_lot::Mutex;
use std::io;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How a state is opened.
#[derive(Clone, Debug)]
pub(crate) struct StateOptions {
    pub(crate) shadow: mangrove_shadow::Options,
    /// Variables of program modules that commands write are part of the state.
    pub(crate) keeps_variables: bool,
    /// The state points only into itself: modules do not matter.
    pub(crate) self_contained: bool,
    /// Closing unmaps the state's memory at once.
    pub(crate) returns_memory: bool,
    /// Commands run as translations of their code.
    pub(crate) translates: bool,
    /// Writes outside commands are reported.
    pub(crate) fence: Option<FenceReport>,
    /// Modules lie elsewhere at each start.
    pub(crate) moving: Option<MovingModules>,
}

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The state's initialisation never finished.
    pub(crate) new: bool,
}

/// What a state consists of while it is opened.
struct Found {
    heap: ArenaHeap,
    modules: Modules,
    globals: Globals,
    /// See `CommitParts`.
    table_is_old: bool,
}

pub(crate) struct State {
    registration: Registration,
    heap: Box<ArenaHeap>,
    view: Box<ArenaView>,
    header: *mut StateHeader,
    shadow: Arc<Shadow>,
    parts: Mutex<CommitParts>,
    returns_memory: bool,
    translates: bool,
    fence: Option<WriteFence>,
    committed_ranges: AtomicU64,
    committed_bytes: AtomicU64,
    /// None where neither modules nor code matter.
    watch: Option<ModulesWatch>,
    /// The set of variables has changed: the next write set must be given the new one.
    variables_changed: AtomicBool,
    /// A commit failed, or a batch ended without one: memory holds what no atomic group may take.
    failed: AtomicBool,
}

// SAFETY: the heap, and the header's words, are used inside a command and by a commit only, and `Backing` allows one
// of these at a time.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

struct CommitParts {
    globals: Globals,
    modules: Modules,
    /// The state's table of modules is not that of `modules`; the next `enter` replaces it.
    table_is_old: bool,
    commits: u64,
    /// [`ArenaHeap::frees`] at the last commit.
    frees: u64,
    /// Written by this file since the last commit, as (address, bytes).
    early: HeaderWrites,
    gatherer: Gatherer,
    ranges: Vec<(usize, usize)>,
    written: Vec<(usize, usize)>,
    audit: Audit,
    moving: Option<MovingModules>,
    /// Where modules are that the next start has elsewhere: no commit takes a word that points there.
    movable: Vec<Gone>,
    /// The write set holds variables from before modules came or went.
    exact_is_mixed: bool,
}

impl CommitParts {
    /// For [`CommitParts::movable`]: libraries that came after opening, and, where addresses are random, every module.
    fn what_may_move(&self) -> Vec<Gone> {
        let moving = self
            .moving
            .iter()
            .flat_map(|moving| self.modules.movable().map(|(entry, span)| moving.gone(&entry.path, span)));
        self.modules.late().chain(moving).collect()
    }
}

/// Collects ranges for the next commit.
#[derive(Default)]
struct HeaderWrites(Vec<(usize, usize)>);

impl Writes for HeaderWrites {
    #[track_caller]
    fn wrote(&mut self, ptr: usize, len: usize) {
        if !is_silent(Location::caller()) {
            self.0.push((ptr, len));
        }
    }
}

impl State {
    /// Opens the state at `path`, or makes one. When this returns, memory is back at its addresses, and variables in
    /// their modules.
    ///
    /// # Errors
    /// The pool's errors; `Foreign` and `Moved` when the state cannot live in this process.
    pub(crate) fn open(path: &Path, options: &StateOptions) -> Result<(Self, Opened)> {
        if options.shadow.is_read_only() {
            return Err(Error::Invalid { what: "durable state cannot be opened read-only".into() });
        }
        thread_keys::settle_own_key();
        let mut left = left_states();
        unmap(&mut left);
        let shadow = options.shadow.clone().kind("durable").open(path).map_err(|error| match error {
            mangrove_shadow::Error::AddressTaken { address, .. } => {
                in_the_way(&left, address).unwrap_or(error.into())
            }
            error => error.into(),
        })?;
        drop(left);
        Self::over(shadow, options)
    }

    /// As `open`, in a working copy that is open already.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn over(shadow: Shadow, options: &StateOptions) -> Result<(Self, Opened)> {
        thread_keys::prepare();
        let shadow = Arc::new(shadow);
        Self::in_shadow(Arc::clone(&shadow), options).inspect_err(|_| {
            // What still has it keeps its memory, as after a failed initialisation.
            if let Some(shadow) = Arc::into_inner(shadow) {
                shadow.undo_creation();
            }
        })
    }

    fn in_shadow(shadow: Arc<Shadow>, options: &StateOptions) -> Result<(Self, Opened)> {
        let header = shadow.base().cast::<StateHeader>();
        let mut early = HeaderWrites::default();
        let watch = (!options.self_contained || options.translates).then(ModulesWatch::begin);
        let new = is_new(&shadow)?;
        let Found { heap, modules, globals, table_is_old } = if new {
            Self::make(&shadow, header, options, &mut early)?
        } else {
            Self::find(&shadow, header, options)?
        };
        let mut heap = Box::new(heap);
        let mut view = Box::new(heap.view());
        let (base, reach) = (shadow.base() as usize, shadow.capacity() as usize);
        // SAFETY: both are boxes in this struct and live as long as the registration; the heap is used as `register`
        // demands.
        let registration = unsafe { split_allocation::register(&raw mut *heap, &raw mut *view, base, reach) };
        let registration = registration.ok_or_else(|| Error::Invalid {
            what: "too many durable applications are open in this process; close one".into(),
        })?;
        let fence = WriteFence::wanted(base, options.fence)?;
        let parts = CommitParts {
            globals,
            modules,
            table_is_old,
            commits: 0,
            frees: 0,
            early,
            gatherer: Gatherer::default(),
            ranges: Vec::new(),
            written: Vec::new(),
            audit: Audit::new(),
            moving: options.moving.clone(),
            movable: Vec::new(),
            exact_is_mixed: false,
        };
        let state = Self {
            registration,
            heap,
            view,
            header,
            shadow,
            parts: Mutex::new(parts),
            returns_memory: options.returns_memory,
            translates: options.translates,
            fence,
            committed_ranges: AtomicU64::new(0),
            committed_bytes: AtomicU64::new(0),
            watch,
            variables_changed: AtomicBool::new(true),
            failed: AtomicBool::new(false),
        };
        Ok((state, Opened { new }))
    }

    fn make(
        shadow: &Arc<Shadow>,
        header: *mut StateHeader,
        options: &StateOptions,
        early: &mut HeaderWrites,
    ) -> Result<Found> {
        let (ground, refusal) = ImageSpace::new(Arc::clone(shadow));
        let mut heap = ArenaHeap::format(Box::new(ground), ARENA_OFFSET, early)
            .map_err(|what| refusal.or(Error::Invalid { what }))?;
        let modules =
            if options.self_contained { Modules::none() } else { Modules::present(options.keeps_variables) };
        if let Some(moving) = &options.moving {
            moving.check(&modules, "no state is made here")?;
        }
        // SAFETY: the region's first page, which `format` grew and leaves to us.
        let head = unsafe { &mut *header };
        head.version = VERSION;
        head.header_bytes = size_of::<StateHeader>() as u32;
        head.base = shadow.base() as u64;
        let placed = place_table(&mut heap, &modules.encode(), early);
        (head.modules, head.modules_bytes) = placed.map_err(|error| refusal.or(error))?;
        early.wrote(header as usize, size_of::<StateHeader>());
        Ok(Found { heap, modules, globals: Globals::new(), table_is_old: false })
    }

    fn find(shadow: &Arc<Shadow>, header: *mut StateHeader, options: &StateOptions) -> Result<Found> {
        // SAFETY: the region's first page.
        let head = unsafe { &*header };
        if head.version != VERSION || head.header_bytes as usize != size_of::<StateHeader>() {
            return Err(Error::Invalid {
                what: format!(
                    "this state has format {} and this library knows format {VERSION}; use the library that wrote it",
                    head.version
                ),
            });
        }
        let damaged = |what: String| Error::Damaged { what };
        if head.base != shadow.base() as u64 {
            return Err(damaged(format!(
                "the state says it lies at {:#x}, but its pool says {:p}",
                head.base,
                shadow.base()
            )));
        }
        let (ground, refusal) = ImageSpace::new(Arc::clone(shadow));
        // It grows to its length, if a crash has left the working copy shorter.
        let mut heap =
            ArenaHeap::open(Box::new(ground), ARENA_OFFSET).map_err(|what| refusal.or(damaged(what)))?;
        free_space::provide_again(shadow, &mut heap)?;
        let recorded = bytes_at(&heap, head.modules, head.modules_bytes);
        let table = recorded
            .and_then(Modules::decode)
            .ok_or_else(|| damaged("the state's table of modules cannot be read".into()))?;
        let (mut modules, gone) = if options.self_contained {
            (Modules::none(), Vec::new())
        } else {
            Modules::compare(table, options.keeps_variables)?
        };
        if let Some(moving) = &options.moving {
            moving.check(&modules, "the state cannot be used here")?;
        }
        if let Some(what) = points_there(&heap, head, &gone).map_err(damaged)? {
            let advice = options.moving.as_ref().map_or(String::new(), MovingModules::advice);
            return Err(Error::Moved { what: what + &advice });
        }
        modules.forget_places_of_missing();
        // A module is new, or lies elsewhere, or is missing, or is another build that the state does not point to.
        let table_is_old = !options.self_contained && recorded != Some(&modules.encode());
        thread_keys::make_again(&head.keys).map_err(|what| Error::Moved { what })?;
        // SAFETY: the program opens its state before any thread uses it.
        let globals = unsafe { Globals::restore(header, &heap, &mut modules) }?;
        Ok(Found { heap, modules, globals, table_is_old })
    }

    /// The next commit ends initialisation: a crash after it finds the state, a crash before it nothing. Called
    /// once, before the very first commit, which takes the whole header.
    pub(crate) fn mark_initialised(&self) {
        debug_assert_eq!(self.parts.lock().commits, 0);
        // SAFETY: the region's first page; no thread is inside a command.
        unsafe { (*self.header).magic = MAGIC };
    }

    /// Words of the state for the runtime and its user: a command may write them like any memory.
    pub(crate) fn roots(&self) -> *mut [usize; ROOT_COUNT] {
        // SAFETY: only computes an address in the region's first page.
        unsafe { &raw mut (*self.header).roots }
    }

    /// Counts everything. O(spans of the arena). No command may run.
    pub(crate) fn stat(&self) -> ImageStat {
        ImageStat {
            arena: self.heap.stat(),
            variable_pages: self.parts.lock().globals.pages() as u64,
            freed_outside: self.registration.deferred_count(),
        }
    }

    #[cfg(test)]
    pub(super) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// The faults of the state's own structures, as messages. No command may run.
    pub(crate) fn check(&self) -> Vec<String> {
        self.heap.check()
    }

    #[expect(clippy::mut_from_ref, reason = "one caller at a time, see SAFETY")]
    fn heap(&self) -> &mut ArenaHeap {
        // SAFETY: only `commit` and the code before `enter` call this, one at a time, and no thread is inside a
        // command then (`Backing`). The box is reached through the same pointer that commands use.
        unsafe { &mut *(&raw const *self.heap).cast_mut() }
    }
}

impl Backing for State {
    #[inline]
    unsafe fn enter(&self, writes: *mut WriteSet) -> Result<EnterReport> {
        self.lower_fence();
        if self.modules_changed() {
            self.look_at_modules(&mut self.parts.lock())?;
        }
        // Relaxed: set while opening, or by an earlier `enter` or read, which the runtime orders before this.
        if self.variables_changed.load(Ordering::Relaxed) {
            let mut parts = self.parts.lock();
            parts.modules.is_usurped()?;
            self.record_modules(&mut parts)?;
            if let Some(moving) = &parts.moving {
                // A library may have come since the state was opened.
                moving.check(&parts.modules, "no command runs any more")?;
            }
            parts.movable = parts.what_may_move();
            self.variables_changed.store(false, Ordering::Relaxed);
            // SAFETY: the caller's write set.
            parts.exact_is_mixed |= unsafe { !(*writes).exact().is_empty() };
            // SAFETY: as above. Blocks that it has lie in the state, or nowhere.
            unsafe { (*writes).set_exact(&parts.modules.variables()) };
        }
        // SAFETY: passed on.
        unsafe { self.registration.enter(writes) };
        let watch = self.watch.as_ref().filter(|_| self.translates);
        Ok(EnterReport { unloaded: watch.map_or(0, ModulesWatch::unloaded) })
    }

    fn awaits_libraries(&self) -> bool {
        self.parts.lock().modules.awaits_any()
    }

    fn look_for_libraries(&self) -> Result<bool> {
        let mut parts = self.parts.lock();
        if self.modules_changed() {
            // The next `enter` records them: a read writes nothing to the region.
            self.find_modules(&mut parts)?;
        }
        parts.modules.is_usurped()?;
        Ok(parts.modules.awaits_any())
    }

    #[inline]
    fn leave(&self) {
        split_allocation::leave();
        self.raise_fence();
    }

    fn has_deferred(&self) -> bool {
        self.registration.has_deferred()
    }

    fn commit(&self, writes: &mut WriteSet) -> Result<Ticket> {
        self.lower_fence();
        let committed = self.take(writes);
        self.raise_fence();
        if committed.is_err() {
            // Relaxed: read only while no command runs.
            self.failed.store(true, Ordering::Relaxed);
        }
        committed
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        Ok(self.shadow.wait(ticket)?)
    }

    fn durable(&self) -> Ticket {
        self.shadow.durable()
    }

    fn sync(&self) -> Result<()> {
        Ok(self.shadow.sync()?)
    }

    fn sync_to(&self, ticket: Ticket) -> Result<()> {
        Ok(self.shadow.sync_to(ticket)?)
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.shadow.checkpoint()?)
    }

    fn is_loading(&self) -> bool {
        self.shadow.is_loading()
    }

    fn page_out_loaded(&self) -> Result<()> {
        // SAFETY: only commands and frees outside them store, only commands commit, and none of them runs.
        Ok(self.registration.without_frees(|| unsafe { self.shadow.page_out_loaded() })?)
    }

    #[inline]
    fn poisoned(&self) -> Option<Error> {
        self.shadow.poisoned().map(Error::from)
    }

    fn examine(&self) -> (ImageStat, Vec<String>) {
        (self.stat(), self.check())
    }

    fn raise_fence(&self) {
        if let Some(fence) = &self.fence {
            fence.raise(self.shadow.len() as usize);
        }
    }

    fn arena(&self) -> ArenaStat {
        self.heap.stat()
    }

    fn counts(&self) -> StateCounts {
        let stat = self.shadow.stat();
        StateCounts {
            // Relaxed: counters.
            ranges: self.committed_ranges.load(Ordering::Relaxed),
            bytes: self.committed_bytes.load(Ordering::Relaxed),
            log_bytes: stat.log_bytes,
            log_used: stat.log_used,
            checkpoint_age: stat.pool.map_or(Duration::ZERO, |pool| pool.checkpoint_age),
            waiting_frees: self.registration.waiting_frees(),
        }
    }

    fn note_failure(&self) {
        // Relaxed: read only while no command runs.
        self.failed.store(true, Ordering::Relaxed);
    }

    fn release_free_pages(&self) -> Result<u64> {
        // SAFETY: no command runs, and every batch is committed.
        if self.has_failed() { Ok(0) } else { unsafe { free_space::release(&self.shadow, self.heap()) } }
    }

    fn close(self: Box<Self>) -> Result<()> {
        let freed = self.commit_deferred().and_then(|()| self.release_at_closing());
        let (returns_memory, is_lost) = (self.returns_memory, self.has_failed());
        let (mut shadow, registration, view) = self.without_heap()?;
        if is_lost || !returns_memory {
            // The end of a load writes the working copy, which has what a failed batch did. Closing returns the error.
            if shadow.is_loading() && !is_lost {
                let _ = shadow.checkpoint();
            }
            shadow.end_load();
        }
        // SAFETY: no command runs.
        let parked = if returns_memory { None } else { unsafe { park_working_copy(&shadow) }.ok() };
        let Some(parked) = parked else {
            // Destructors at exit must not read the memory: the options say so, or there was no memory to park it in.
            drop(registration);
            return freed.and(shadow.close().map_err(Error::from));
        };
        let closed = shadow.close();
        leave(registration.retire(view), parked, false);
        freed.and(closed.map_err(Error::from))
    }

    fn give_up(self: Box<Self>) {
        // The caller reports the error that led here, so this one is dropped.
        let Ok((mut shadow, registration, view)) = self.without_heap() else { return };
        // Its threads read the working copy.
        shadow.end_load();
        let is_kept = registration.is_kept();
        let retired = registration.retire(view);
        // SAFETY: no command runs.
        let Ok(parked) = (unsafe { park_working_copy(&shadow) }) else {
            // The memory then stays mapped, with the pool open.
            return std::mem::forget((retired, shadow));
        };
        drop(shadow);
        leave(retired, parked, is_kept);
    }
}

impl State {
    #[inline]
    fn lower_fence(&self) {
        if let Some(fence) = &self.fence {
            fence.lower();
        }
    }

    /// See [`Backing::commit`].
    fn take(&self, writes: &mut WriteSet) -> Result<Ticket> {
        let mut parts = self.parts.lock();
        let parts = &mut *parts;
        parts.written.clear();
        let changed = self.modules_changed();
        if changed {
            // A thread may have loaded what a command points to, while that ran.
            self.look_at_modules(parts)?;
            parts.movable = parts.what_may_move();
        }
        if !writes.exact().is_empty() {
            parts.written.extend_from_slice(writes.exact());
            if changed || parts.exact_is_mixed {
                // A command may have unloaded what it, or one before it, wrote to.
                parts.exact_is_mixed = false;
                let CommitParts { modules, written, .. } = parts;
                written.retain(|&(from, len)| {
                    modules.is_variable(from) && modules.is_variable(from + len.max(1) - 1)
                });
            }
            parts
                .globals
                .keep(
                    self.header,
                    self.heap(),
                    &parts.modules,
                    &parts.written,
                    &mut SilencedWrites(&mut Reports(writes)),
                )
                .map_err(|_| full())?;
        }
        let (base, len) = (self.shadow.base() as usize, self.shadow.len() as usize);
        let frees = self.heap().frees();
        let free = (frees != parts.frees).then(|| self.heap.bytes_freed_since(parts.frees));
        parts.frees = frees;
        parts.gatherer.gather(writes, base, len, free, &mut parts.ranges);
        self.heap().forget_freed();
        let sealed = writes.sealed().iter();
        parts.ranges.extend(sealed.filter(|range| range.0 >= base && range.0 + range.1 <= base + len));
        // The whole reserved range: what looks like an address in its unused part is a number or a text.
        let reserve = base..base + self.shadow.capacity() as usize;
        parts.audit.look(&parts.modules, &parts.globals, &parts.written, &parts.ranges, &reserve);
        points_nowhere(&parts.ranges, &parts.movable)?;
        parts.ranges.append(&mut parts.early.0);
        writes.clear();
        if parts.ranges.is_empty() {
            // Nothing changed: the results depend on what was committed before.
            return Ok(self.shadow.committed());
        }
        let ticket = self.shadow.commit(0, &parts.ranges)?;
        count(&self.committed_ranges, parts.ranges.len());
        count(&self.committed_bytes, parts.ranges.iter().map(|range| range.1).sum());
        parts.commits += 1;
        Ok(ticket)
    }

    /// Frees, in an atomic group of its own, what was freed outside commands. After a failed commit it frees nothing,
    /// as a crash would: memory around those blocks holds what the failed batch did.
    fn commit_deferred(&self) -> Result<()> {
        if self.has_failed() || !self.registration.has_deferred() {
            return Ok(());
        }
        let mut writes =
            WriteSet::new(BLOCK_BYTES_DEFAULT).map_err(|e| Error::Tracker { what: e.to_string() })?;
        self.lower_fence();
        // Not by `enter`: a command of another state may be under way.
        self.registration.free_waiting(self.heap(), &mut writes);
        self.commit(&mut writes).map(drop)
    }

    /// Whether memory may hold what no atomic group took. The caller is alone.
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.shadow.poisoned().is_some()
    }

    /// Gives back what is free, if this opening has changed something.
    fn release_at_closing(&self) -> Result<()> {
        if self.has_failed() || self.parts.lock().commits == 0 {
            return Ok(());
        }
        // SAFETY: no command runs any more, and every batch is committed.
        unsafe { free_space::release_at_closing(&self.shadow, self.heap()) }
    }

    /// What is left when the arena has ended.
    fn without_heap(self) -> Result<(Shadow, Registration, Box<ArenaView>)> {
        let Self { registration, heap, view, shadow, .. } = self;
        drop(heap);
        let Ok(shadow) = Arc::try_unwrap(shadow).map_err(drop) else {
            return Err(Error::Invalid { what: "the state is still in use; close it last".into() });
        };
        Ok((shadow, registration, view))
    }

    /// Whether libraries were loaded or unloaded since the last time. One caller at a time.
    #[inline]
    fn modules_changed(&self) -> bool {
        self.watch.as_ref().is_some_and(ModulesWatch::has_changed)
    }

    /// Records libraries that were loaded since, before a command may call them: the state may get their addresses,
    /// and what it writes to their variables is part of it. Libraries that were unloaded have no variables.
    #[cold]
    fn look_at_modules(&self, parts: &mut CommitParts) -> Result<()> {
        self.find_modules(parts)?;
        self.record_modules(parts)
    }

    /// Finds the libraries that were loaded and unloaded since, and puts the variables of awaited ones in place.
    fn find_modules(&self, parts: &mut CommitParts) -> Result<()> {
        let refreshed = parts.modules.refresh();
        parts.table_is_old |= refreshed.came;
        if refreshed.came || refreshed.went {
            self.variables_changed.store(true, Ordering::Relaxed);
            split_allocation::watch_end_again();
            let arrived = parts.modules.arrived()?;
            // SAFETY: no command runs; nothing uses a library's variables between its load and the next call, by the
            // contract of loading it late.
            unsafe { parts.globals.find_again(self.header, &parts.modules, &arrived) };
        }
        Ok(())
    }

    /// Makes the table of modules part of the next commit, if the state has an old one.
    fn record_modules(&self, parts: &mut CommitParts) -> Result<()> {
        if parts.table_is_old {
            // SAFETY: the region's first page; no command runs.
            let head = unsafe { &mut *self.header };
            replace_table(head, self.heap(), &parts.modules, &mut parts.early)?;
            parts.table_is_old = false;
        }
        Ok(())
    }
}

/// Moves the working copy out of the shadow's way, to be put back when the shadow has ended.
///
/// # Safety
/// No thread touches it until then. A shadow does not either: it ends from its log, and no load is under way.
unsafe fn park_working_copy(shadow: &Shadow) -> io::Result<Parked> {
    let base = shadow.base() as usize;
    // SAFETY: the caller's promise.
    unsafe { park(base..base + shadow.len() as usize) }
}

/// Adds to a counter of commits, of which one runs at a time.
fn count(counter: &AtomicU64, more: usize) {
    // Relaxed: a counter.
    counter.store(counter.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
}

fn full() -> Error {
    Error::Full {
        what:
            "the durable state's address space is in use; make room, or create it anew with a larger capacity"
                .into(),
    }
}

/// Puts the table of modules into the block of the last one, or into a longer one instead of that.
fn replace_table(
    head: &mut StateHeader,
    heap: &mut ArenaHeap,
    modules: &Modules,
    w: &mut HeaderWrites,
) -> Result<()> {
    let table = modules.encode();
    let old = head.modules as usize;
    if heap.usable_bytes(old).is_some_and(|bytes| table.len() <= bytes) {
        // SAFETY: a block in use of at least this many bytes, which nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), old as *mut u8, table.len()) };
        w.wrote(old, table.len());
        head.modules_bytes = table.len() as u64;
    } else {
        (head.modules, head.modules_bytes) = place_table(heap, &table, w)?;
        StateHeader::report(w, &head.modules);
        // A table that is no block would have been refused at opening.
        let _ = heap.free(w, old);
    }
    StateHeader::report(w, &head.modules_bytes);
    Ok(())
}

/// The table of modules in a new block: its address and its bytes.
fn place_table(heap: &mut ArenaHeap, table: &[u8], w: &mut HeaderWrites) -> Result<(u64, u64)> {
    let block = heap.alloc(w, table.len());
    if block.is_null() {
        return Err(full());
    }
    // SAFETY: a fresh block of this many bytes.
    unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), block, table.len()) };
    w.wrote(block as usize, table.len());
    Ok((block as u64, table.len() as u64))
}

/// The first `len` bytes of the block at `address`, if it is a block in use that has as many.
fn bytes_at(heap: &ArenaHeap, address: u64, len: u64) -> Option<&[u8]> {
    let usable = heap.usable_bytes(address as usize)?;
    if usable < len as usize {
        return None;
    }
    // SAFETY: a block in use, in the region; no command writes while the state is opened.
    Some(unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) })
}

/// Whether the state's initialisation never finished: then nothing of it is there.
///
/// # Errors
/// `Damaged`, when something is there that does not begin as a state does.
fn is_new(shadow: &Shadow) -> Result<bool> {
    // SAFETY: whole pages, all of the region; no other thread uses it yet.
    let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), shadow.len() as usize / 8) };
    match words.first() {
        Some(&MAGIC) => Ok(false),
        _ if words.iter().all(|&word| word == 0) => Ok(true),
        _ => Err(Error::Damaged { what: "its first page does not begin as that of a state".into() }),
    }
}
