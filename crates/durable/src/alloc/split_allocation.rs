//! Split allocation: a thread inside a write command gets persistent memory, every other thread the process's own.
//! Blocks are freed and resized by address. Section 4.4 of the Mangosteen paper, without a second copy of the
//! allocator and without instrumentation of the rest of the process.
//!
//! Invariants:
//! 1. At most one thread of the process is inside a command. Only that thread touches an arena or, while no thread is
//!    inside, a thread that commits.
//! 2. A persistent block that is freed outside a command is freed when the next command begins. So the free is part
//!    of a batch: it is never durable by itself, and never lost while the process lives. When the process ends
//!    (`watch_end`) such frees do nothing: destructors of globals free what the next start has to find. Nor do those of
//!    a library's destructors while it is unloaded, also inside a command.
//! 3. The code that malloc runs here allocates nothing, takes no lock and uses no thread-local storage: each of the
//!    three may call malloc. Growing the arena, which does all three, is the exception: it runs in `outside`, so its
//!    own allocations are the process's. A free outside commands may wait until memory has been given back; the thread
//!    that gives it back waits for no other.

use crate::alloc::reports::Reports;
use crate::alloc::write_fence;
use crate::image::layout::{KEY_COUNT, StateHeader, ThreadKey};
use mangrove_arena::{ArenaHeap, ArenaView, BadFree, MovePlan, SlabSurvey, Writes};
use mangrove_sys::{EventCount, thread_mark};
use mangrove_tracker::WriteSet;
pub use mangrove_tracker::in_tracked_call;
use std::ops::Range;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Durable applications that one process can have open at a time.
pub(crate) const REGION_COUNT_MAX: usize = 64;

/// One open arena.
struct Region {
    /// First address; 0: the entry is free.
    base: AtomicUsize,
    /// Address space reserved for it.
    len: AtomicUsize,
    heap: AtomicPtr<ArenaHeap>,
    view: AtomicPtr<ArenaView>,
    /// Blocks freed outside commands: a stack linked through their first words.
    deferred: AtomicUsize,
    deferred_count: AtomicU64,
    /// Those of them that are free by now.
    deferred_freed: AtomicU64,
    /// Threads that put a block on that stack, and [`FREES_WAIT`] while none may.
    freeing: AtomicUsize,
    /// Opened when they may again.
    frees_go_on: EventCount,
    /// A command keeps its memory for the life of the process.
    is_kept: AtomicBool,
}

impl Region {
    const fn free() -> Self {
        Self {
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            heap: AtomicPtr::new(std::ptr::null_mut()),
            view: AtomicPtr::new(std::ptr::null_mut()),
            deferred: AtomicUsize::new(0),
            deferred_count: AtomicU64::new(0),
            deferred_freed: AtomicU64::new(0),
            freeing: AtomicUsize::new(0),
            frees_go_on: EventCount::new(),
            is_kept: AtomicBool::new(false),
        }
    }
}

/// In [`Region::freeing`], above every number of threads.
const FREES_WAIT: usize = 1 << (usize::BITS - 1);

impl Region {
    /// The calling thread may put a block on the stack until `end_free`. Waits while `without_frees` runs.
    fn begin_free(&self) {
        loop {
            let event = self.frees_go_on.ticket();
            // Acquire, with the Release in `without_frees`.
            if self.freeing.fetch_add(1, Ordering::Acquire) & FREES_WAIT == 0 {
                return;
            }
            self.end_free();
            self.frees_go_on.wait(event);
        }
    }

    fn end_free(&self) {
        // Release, with the Acquire in `without_frees`.
        self.freeing.fetch_sub(1, Ordering::Release);
    }
}

static REGIONS: [Region; REGION_COUNT_MAX] = [const { Region::free() }; REGION_COUNT_MAX];
/// The lowest address that a region ever had, and the highest end. They rule most other pointers out at once. Each
/// only ever widens, so that any mix of old and new that a thread sees contains every region that it has pointers
/// into.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The mark of the thread that is inside a command, plus one while that thread runs the runtime's own code there. 0
/// in a forked child.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The arena and the write set of that command; only its thread touches them.
static HEAP: AtomicPtr<ArenaHeap> = AtomicPtr::new(std::ptr::null_mut());
static WRITES: AtomicPtr<WriteSet> = AtomicPtr::new(std::ptr::null_mut());

/// An entry among the open arenas; freed on drop.
pub(crate) struct Registration(&'static Region);

/// Registers an arena, so that frees find it. `None` when there are too many.
///
/// # Safety
/// `heap` and `view` stay where they are until the registration is dropped, and only a thread that is inside a
/// command, or commits, uses the heap.
pub(crate) unsafe fn register(
    heap: *mut ArenaHeap,
    view: *mut ArenaView,
    base: usize,
    len: usize,
) -> Option<Registration> {
    static HANDLER: Once = Once::new();
    // SAFETY: registers a handler that only touches atomics of this module.
    HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) });
    let region = REGIONS.iter().find(|region| {
        // Acquire: the last owner's use of the entry is over.
        region.base.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })?;
    region.heap.store(heap, Ordering::Relaxed);
    region.view.store(view, Ordering::Relaxed);
    region.deferred.store(0, Ordering::Relaxed);
    region.deferred_count.store(0, Ordering::Relaxed);
    region.deferred_freed.store(0, Ordering::Relaxed);
    region.is_kept.store(false, Ordering::Relaxed);
    // Release, with the Acquire in `owner`: a thread that sees the length sees the rest.
    region.len.store(len, Ordering::Release);
    // Relaxed: a thread gets a pointer into the region only after this.
    LOWEST.fetch_min(base, Ordering::Relaxed);
    HIGHEST.fetch_max(base + len, Ordering::Relaxed);
    Some(Registration(region))
}

/// How many forks lie between the first process that opened a state and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Tells a process from a child that it forks: the child has another number.
pub(crate) fn forks() -> usize {
    // Relaxed: changes only in a child, before any code of it runs.
    FORKS.load(Ordering::Relaxed)
}

/// The thread inside a command belongs to the parent; another thread of the child may get its stack, and with it its
/// mark.
unsafe extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // The threads that were freeing blocks, or made frees wait, are the parent's.
    REGIONS.iter().for_each(|region| region.freeing.store(0, Ordering::Relaxed));
    // So is the thread in a tracked call; trackers but the recompiler have no handler of their own.
    mangrove_tracker::forget_turn();
    if !is_unloading() {
        UNLOADS.store(0, Ordering::Relaxed);
        UNLOADER.store(0, Ordering::Relaxed);
    }
    leave();
}

/// The process ends, by `exit` or a return from `main`.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Notices the end of the process before the destructors of those globals run that were made before the first call:
/// what they free stays in use, and what a command commits meanwhile, or closing, has it. The caller is outside
/// commands.
pub(crate) fn watch_end() {
    static HOOKED: Once = Once::new();
    // SAFETY: registers a function that only touches an atomic of this module. (It fails when there is no memory; then
    // the end goes unnoticed.)
    HOOKED.call_once(|| _ = unsafe { libc::atexit(process_ends) });
}

/// As `watch_end`, when a library has come: globals of it were made later than the first call, and what the latest call
/// registered runs first. The caller is outside commands.
pub(crate) fn watch_end_again() {
    // SAFETY: as in `watch_end`.
    unsafe { libc::atexit(process_ends) };
}

extern "C" fn process_ends() {
    // Relaxed: the destructors run on this thread. What others free may be freed or not.
    ENDS.store(true, Ordering::Relaxed);
}

/// The mark of the thread that unloads a library, and in how many calls it does; 0: none.
static UNLOADER: AtomicUsize = AtomicUsize::new(0);
static UNLOADS: AtomicUsize = AtomicUsize::new(0);

/// Runs `work`, which unloads a library. What the library's destructors free stays in use: its variables stay part of
/// the state as commands left them, and may lead there.
pub fn unloading<R>(work: impl FnOnce() -> R) -> R {
    mangrove_arena_begin_unloading();
    let result = work();
    mangrove_arena_end_unloading();
    result
}

/// Whether the calling thread runs the destructors of a library that is unloaded.
#[inline]
fn is_unloading() -> bool {
    // Relaxed: a thread finds its own mark only if it stored that.
    let unloader = UNLOADER.load(Ordering::Relaxed);
    unloader != 0 && unloader == thread_mark()
}

/// The registration of a closed state: its memory is still there, and frees of its blocks do nothing.
pub(crate) struct Retired {
    registration: Registration,
    _view: Box<ArenaView>,
}

impl Retired {
    /// Where its memory is.
    pub(crate) fn span(&self) -> Range<usize> {
        let region = self.registration.0;
        let base = region.base.load(Ordering::Relaxed);
        base..base + region.len.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::Release);
        self.0.heap.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.0.view.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.0.base.store(0, Ordering::Release);
    }
}

impl Registration {
    /// From now on blocks are recognized by their addresses, but freeing them does nothing. `view` is the one that
    /// was registered.
    pub(crate) fn retire(self, view: Box<ArenaView>) -> Retired {
        self.0.heap.store(std::ptr::null_mut(), Ordering::Release);
        Retired { registration: self, _view: view }
    }

    /// Whether the memory has to stay mapped for the life of the process: see [`keep_memory`].
    pub(crate) fn is_kept(&self) -> bool {
        // Relaxed: set in a command of this state, which has ended.
        self.0.is_kept.load(Ordering::Relaxed)
    }

    /// Whether blocks that were freed outside commands wait for the next one.
    pub(crate) fn has_deferred(&self) -> bool {
        self.0.deferred.load(Ordering::Relaxed) != 0
    }

    /// From now on the calling thread is inside a command: what it allocates is persistent. Frees the blocks that
    /// were freed outside commands since the last time.
    ///
    /// # Safety
    /// No thread is inside; `writes` stays valid until [`leave`].
    #[inline]
    pub(crate) unsafe fn enter(&self, writes: *mut WriteSet) {
        debug_assert_eq!(INSIDE.load(Ordering::Relaxed), 0, "one command at a time");
        let heap = self.0.heap.load(Ordering::Relaxed);
        if self.0.deferred.load(Ordering::Relaxed) != 0 {
            // SAFETY: no thread is inside, so the heap is free to use; the writes are the caller's.
            unsafe { self.free_deferred(&mut *heap, &mut Reports(&mut *writes)) };
        }
        HEAP.store(heap, Ordering::Relaxed);
        WRITES.store(writes, Ordering::Relaxed);
        // Relaxed: only this thread finds its own mark here, and sees its own stores.
        INSIDE.store(thread_mark(), Ordering::Relaxed);
    }

    /// Frees the blocks that were freed outside commands, as `enter` does, but without the mark of a command: one of
    /// another state may run meanwhile. `heap` is the registered one, and no command of its state runs.
    pub(crate) fn free_waiting(&self, heap: &mut ArenaHeap, writes: &mut WriteSet) {
        if self.has_deferred() {
            self.free_deferred(heap, &mut Reports(writes));
        }
    }

    #[cold]
    fn free_deferred(&self, heap: &mut ArenaHeap, writes: &mut Reports<'_>) {
        // Acquire, with the Release in `defer`: the links are there.
        let mut next = self.0.deferred.swap(0, Ordering::Acquire);
        while next != 0 {
            let block = next;
            // SAFETY: `defer` put a link into this block, which no thread has used since.
            next = unsafe { (block as *const usize).read() };
            if let Err(why) = heap.free(writes, block) {
                fatal("free", block, why);
            }
            self.0.deferred_freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs `work`, which may undo stores that were not committed, while no thread frees blocks outside commands: such
    /// frees wait. The list of those that were freed so before lies in the blocks themselves; it is as before when this
    /// returns. No command may run.
    pub(crate) fn without_frees<R>(&self, work: impl FnOnce() -> R) -> R {
        let region = self.0;
        region.freeing.fetch_or(FREES_WAIT, Ordering::Relaxed);
        // Acquire, with the Release in `end_free`: the list is whole.
        while region.freeing.load(Ordering::Acquire) != FREES_WAIT {
            std::thread::yield_now();
        }
        let mut blocks = Vec::new();
        let mut next = region.deferred.load(Ordering::Relaxed);
        while next != 0 {
            blocks.push(next);
            // SAFETY: `defer` put a link into this block, which no thread has used since.
            next = unsafe { (next as *const usize).read() };
        }
        let result = work();
        for (at, &block) in blocks.iter().enumerate() {
            write_fence::let_through(block);
            let next = blocks.get(at + 1).copied().unwrap_or(0);
            // SAFETY: as above.
            unsafe { (block as *mut usize).write(next) };
        }
        // Release, with the Acquire in `begin_free`.
        region.freeing.fetch_and(!FREES_WAIT, Ordering::Release);
        region.frees_go_on.notify_all();
        result
    }

    /// Blocks that were freed outside commands, ever.
    pub(crate) fn deferred_count(&self) -> u64 {
        self.0.deferred_count.load(Ordering::Relaxed)
    }

    /// Those of them that wait for the next command.
    pub(crate) fn waiting_frees(&self) -> u64 {
        // Relaxed: counters. Freed first, or it could be the greater one.
        let freed = self.0.deferred_freed.load(Ordering::Relaxed);
        self.deferred_count().saturating_sub(freed)
    }
}

/// Ends what [`Registration::enter`] began.
#[inline]
pub(crate) fn leave() {
    INSIDE.store(0, Ordering::Relaxed);
    HEAP.store(std::ptr::null_mut(), Ordering::Relaxed);
    WRITES.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Runs the runtime's own code inside a command: what it allocates is not persistent.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    struct Again(usize);
    impl Drop for Again {
        fn drop(&mut self) {
            INSIDE.store(self.0, Ordering::Relaxed);
        }
    }
    if !is_inside() {
        return work();
    }
    let _again = Again(INSIDE.load(Ordering::Relaxed));
    // Marks are multiples of eight, so no thread has this one.
    INSIDE.store(thread_mark() + 1, Ordering::Relaxed);
    work()
}

/// The word that says which thread is inside. While it is one greater, that thread is not.
pub(crate) fn inside_mark() -> &'static AtomicUsize {
    &INSIDE
}

/// The region of the state whose command the calling thread runs, if it runs one.
fn my_region() -> Option<&'static Region> {
    let heap = HEAP.load(Ordering::Relaxed);
    if !is_inside() || heap.is_null() {
        return None;
    }
    REGIONS.iter().find(|region| region.heap.load(Ordering::Relaxed) == heap)
}

/// Keeps the memory of the state whose command the calling thread runs mapped for the life of the process, should
/// the state end without being closed.
pub(crate) fn keep_memory() {
    if let Some(region) = my_region() {
        region.is_kept.store(true, Ordering::Relaxed);
    }
}

/// Calls `find` with the keys of the state whose command the calling thread runs, if it runs one.
pub(crate) fn with_keys<R>(find: impl FnOnce(&'static mut [ThreadKey; KEY_COUNT]) -> Option<R>) -> Option<R> {
    let region = my_region()?;
    let header = std::ptr::with_exposed_provenance_mut::<StateHeader>(region.base.load(Ordering::Relaxed));
    // SAFETY: the first page of an open region; a command is alone, and no other borrow of these words exists.
    find(unsafe { &mut (*header).keys })
}

/// Whether the calling thread runs a write command: what it allocates now is persistent.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    let inside = INSIDE.load(Ordering::Relaxed);
    inside != 0 && inside == thread_mark()
}

/// Whether an address belongs to an open durable application.
#[inline]
#[must_use]
pub fn is_persistent(address: usize) -> bool {
    // Relaxed: a thread has a pointer into a region only after the region was opened.
    (LOWEST.load(Ordering::Relaxed)..HIGHEST.load(Ordering::Relaxed)).contains(&address)
        && owner(address).is_some()
}

#[inline]
fn owner(address: usize) -> Option<&'static Region> {
    REGIONS.iter().find(|region| {
        // Acquire, with the Release in `register`.
        let len = region.len.load(Ordering::Acquire);
        address.wrapping_sub(region.base.load(Ordering::Relaxed)) < len
    })
}

/// The arena and the write set of the command that the calling thread is in.
///
/// # Safety
/// `is_inside()`, and no other reference from here lives.
#[inline]
unsafe fn mine<'a>() -> (&'a mut ArenaHeap, Reports<'a>) {
    // SAFETY: set by `enter` on this thread, valid until `leave`; the caller has the only references.
    unsafe { (&mut *HEAP.load(Ordering::Relaxed), Reports(&mut *WRITES.load(Ordering::Relaxed))) }
}

/// Whether a range overlaps an open durable application.
pub(crate) fn overlaps(address: usize, len: usize) -> bool {
    REGIONS.iter().any(|region| {
        let (base, bytes) = (region.base.load(Ordering::Relaxed), region.len.load(Ordering::Acquire));
        bytes != 0 && address < base + bytes && base < address.saturating_add(len)
    })
}

/// Lends the arena of the command that the calling thread is in.
///
/// # Panics
/// Outside commands.
pub(crate) fn with_heap<R>(work: impl FnOnce(&mut ArenaHeap) -> R) -> R {
    assert!(is_inside(), "outside commands there is no arena");
    // SAFETY: inside, and nothing that runs here has another reference: commands' code is not running.
    work(unsafe { &mut *HEAP.load(Ordering::Relaxed) })
}

/// As `with_heap`, with the write set of the command.
///
/// # Panics
/// Outside commands.
pub(crate) fn with_command<R>(work: impl FnOnce(&mut ArenaHeap, &mut Reports<'_>) -> R) -> R {
    assert!(is_inside(), "outside commands there is no arena");
    // SAFETY: inside, and nothing that runs here has another reference: commands' code is not running.
    let (heap, mut writes) = unsafe { mine() };
    work(heap, &mut writes)
}

/// Lends the write set of the command that the calling thread is in.
///
/// # Panics
/// Outside commands.
pub(crate) fn with_writes<R>(work: impl FnOnce(&mut Reports<'_>) -> R) -> R {
    assert!(is_inside(), "outside commands nothing is recorded");
    // SAFETY: as in `with_heap`.
    work(&mut Reports(unsafe { &mut *WRITES.load(Ordering::Relaxed) }))
}

/// The functions below are *leaves* for a tracker: they report what they write, and may run untracked. Each with its
/// name, for messages.
#[must_use]
pub fn leaves() -> [(usize, &'static str); 8] {
    [
        (mangrove_arena_alloc as *const () as usize, "mangrove_arena_alloc"),
        (mangrove_arena_alloc_zeroed as *const () as usize, "mangrove_arena_alloc_zeroed"),
        (mangrove_arena_resize as *const () as usize, "mangrove_arena_resize"),
        (mangrove_arena_adopt as *const () as usize, "mangrove_arena_adopt"),
        (mangrove_arena_free as *const () as usize, "mangrove_arena_free"),
        (mangrove_arena_usable as *const () as usize, "mangrove_arena_usable"),
        (mangrove_arena_begin_unloading as *const () as usize, "mangrove_arena_begin_unloading"),
        (mangrove_arena_end_unloading as *const () as usize, "mangrove_arena_end_unloading"),
    ]
}

/// A persistent block of `bytes` at a multiple of `align` (a power of two), or null when the region is full.
///
/// # Safety
/// The calling thread [is inside](is_inside) a command.
#[inline(never)]
pub unsafe extern "C" fn mangrove_arena_alloc(bytes: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller is inside; the references end with this call.
    let (heap, mut writes) = unsafe { mine() };
    heap.alloc_aligned(&mut writes, bytes, align)
}

/// As [`mangrove_arena_alloc`], every byte zero.
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe extern "C" fn mangrove_arena_alloc_zeroed(bytes: usize, align: usize) -> *mut u8 {
    // SAFETY: as in `mangrove_arena_alloc`.
    let (heap, mut writes) = unsafe { mine() };
    heap.alloc_zeroed(&mut writes, bytes, align)
}

/// Resizes a persistent block; it may move. Null when the region is full: the block is then as before.
///
/// # Safety
/// As [`mangrove_arena_alloc`]; `block` is persistent, and of alignment 16.
#[inline(never)]
pub unsafe extern "C" fn mangrove_arena_resize(block: *mut u8, bytes: usize) -> *mut u8 {
    // SAFETY: as in `mangrove_arena_alloc`.
    let (heap, mut writes) = unsafe { mine() };
    if !heap.holds(block as usize) {
        // The block belongs to another durable application and moves to this one.
        // SAFETY: as above, and the block is in use.
        unsafe {
            let used = mangrove_arena_usable(block).min(bytes);
            let new = mangrove_arena_adopt(block, used, bytes, 1);
            if !new.is_null() {
                defer(block as usize);
            }
            return new;
        }
    }
    match heap.resize(&mut writes, block as usize, bytes) {
        Ok(new) => new,
        Err(why) => fatal("realloc", block as usize, why),
    }
}

/// A persistent copy of `used` bytes of other memory, in a block of `bytes`.
///
/// # Safety
/// As [`mangrove_arena_alloc`]; `from` has `used` readable bytes, at most `bytes`.
#[inline(never)]
pub unsafe extern "C" fn mangrove_arena_adopt(
    from: *const u8,
    used: usize,
    bytes: usize,
    align: usize,
) -> *mut u8 {
    // SAFETY: as in `mangrove_arena_alloc`.
    let (heap, mut writes) = unsafe { mine() };
    let new = heap.alloc_aligned(&mut writes, bytes, align);
    if !new.is_null() {
        // SAFETY: the caller's promise, and a fresh block of at least `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(from, new, used) };
        writes.wrote(new as usize, used);
    }
    new
}

/// Frees a persistent block: at once inside a command of its application, else with the next command.
///
/// # Safety
/// The block is persistent and in use, and the program does not use it any more.
#[inline(never)]
pub unsafe extern "C" fn mangrove_arena_free(block: *mut u8) {
    if is_inside() {
        // SAFETY: as in `mangrove_arena_alloc`.
        let (heap, mut writes) = unsafe { mine() };
        if heap.holds(block as usize) {
            if is_unloading() {
                return;
            }
            if let Err(why) = heap.free(&mut writes, block as usize) {
                fatal("free", block as usize, why);
            }
            return;
        }
    }
    defer(block as usize);
}

/// Bytes that may be used of a persistent block.
///
/// # Safety
/// The block is persistent and in use.
#[inline(never)]
pub unsafe extern "C" fn mangrove_arena_usable(block: *const u8) -> usize {
    match view(block as usize).and_then(|view| view.usable_bytes(block as usize)) {
        Some(bytes) => bytes,
        None => fatal("malloc_usable_size", block as usize, BadFree::NotABlock),
    }
}

/// Continues a survey of the slabs of the command's arena by at most `spans` spans; returns whether any are left. What
/// the survey allocates is not persistent.
///
/// # Panics
/// Outside commands.
#[must_use]
pub fn survey_slabs(survey: &mut SlabSurvey, spans: usize) -> bool {
    with_heap(|heap| outside(|| heap.survey_slabs(survey, spans)))
}

/// Whether a block of the command's arena lies in a slab that `plan` is to empty.
///
/// # Panics
/// Outside commands.
#[must_use]
pub fn is_sparse(plan: &MovePlan, block: *const u8) -> bool {
    with_heap(|heap| heap.is_sparse(plan, block as usize))
}

/// A new block like `block` of the command's arena, in a fuller slab, if `plan` is to empty the slab of `block`; else
/// null. The caller copies the content, and frees `block`.
///
/// # Panics
/// Outside commands.
#[must_use]
pub fn alloc_denser(plan: &mut MovePlan, block: *const u8) -> *mut u8 {
    with_command(|heap, writes| heap.alloc_denser(writes, plan, block as usize))
}

/// Begins what `unloading` does. A leaf: where this library is linked statically, its variables are the program's, and
/// what a command writes to those is part of its state.
#[inline(never)]
extern "C" fn mangrove_arena_begin_unloading() {
    let me = thread_mark();
    // Another thread that unloads has the dynamic linker's lock, for which this one would wait, too. Acquire, with the
    // Release in `mangrove_arena_end_unloading`.
    while UNLOADER.load(Ordering::Relaxed) != me
        && UNLOADER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        std::thread::yield_now();
    }
    // Relaxed: only the thread that unloads counts. A destructor may unload another library.
    UNLOADS.fetch_add(1, Ordering::Relaxed);
}

/// Ends it. A leaf, too.
#[inline(never)]
extern "C" fn mangrove_arena_end_unloading() {
    if UNLOADS.fetch_sub(1, Ordering::Relaxed) == 1 {
        UNLOADER.store(0, Ordering::Release);
    }
}

fn view(address: usize) -> Option<&'static ArenaView> {
    // SAFETY: a registered view stays valid until its registration is dropped, after which no block of it is used.
    owner(address).and_then(|region| unsafe { region.view.load(Ordering::Relaxed).as_ref() })
}

#[cold]
fn defer(block: usize) {
    let Some(region) = owner(block) else { return };
    if region.heap.load(Ordering::Acquire).is_null() || ENDS.load(Ordering::Relaxed) || is_unloading() {
        // Its state was closed, or the process ends: most likely a destructor of a global runs at exit. Or of a library
        // that is unloaded.
        return;
    }
    if view(block).is_none_or(|view| view.usable_bytes(block).is_none()) {
        fatal("free", block, BadFree::NotABlock);
    }
    region.begin_free();
    region.deferred_count.fetch_add(1, Ordering::Relaxed);
    write_fence::let_through(block);
    let mut first = region.deferred.load(Ordering::Relaxed);
    loop {
        // SAFETY: the block is dead, at least 16 bytes long and aligned, and only this thread, its last user, has
        // it. Its content means nothing, in the data file too.
        unsafe { (block as *mut usize).write(first) };
        // Release, with the Acquire in `free_deferred`.
        match region.deferred.compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => first = now,
        }
    }
    region.end_free();
}

/// A program that frees what it does not have is wrong, and its next command would damage the state. So it ends, as
/// under any malloc, and the next start has the state before the command.
#[cold]
fn fatal(call: &str, address: usize, why: BadFree) -> ! {
    let why = match why {
        BadFree::Double => "is freed already",
        BadFree::NotABlock | BadFree::Outside => "is no block of the durable state",
    };
    // No formatting that allocates: a command may be running.
    let mut text = crate::alloc::stderr_line::StderrLine::new();
    text.push(call);
    text.push(": ");
    text.push_hex(address);
    text.push(" ");
    text.push(why);
    text.push("; the program is stopped, and restarts from before this command");
    text.print();
    std::process::abort()
}
