//! The recompiler as a [`Tracker`].

use super::state::{CallFailure, NativeLeaf, RecompilerState, STACKS_KNOWN};
use crate::active::{Turn, in_tracked_call, thread_number, will_write};
use crate::error::{Error, Result};
use crate::own_memory;
use crate::recompiler::code_cache::blocks::Mode;
use crate::recompiler::kernel::syscall_table::ENDS;
use crate::recompiler::run::context::{
    EXACT, GRANULES, LARGE, LIST, LOW, LOW_BYTES, STACK_BLOCKS, TARGETS, VICTIMS, context,
};
use crate::recompiler::run::dispatch::{publish, state};
use crate::recompiler::run::raw_syscall::{failed, syscall};
use crate::recompiler::run::stack_bounds::{Stack, find_stack, fs_base};
use crate::recompiler::run::stubs;
use crate::recompiler::run::{exact_bytes, store_filter};
use crate::recompiler::translate::masked_stores::{cpuid, learn_state_components, xcr0};
use crate::tracker::{SyscallHook, Tracker};
use crate::write_set::write_set::WriteSet;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bytes of the dispatcher's own stack.
const HOST_STACK_BYTES: usize = 512 << 10;
/// x87, SSE, AVX, opmask, ZMM: what the dispatcher's own code, and libc under it, may change.
const STATE_COMPONENTS: u64 = 0xe7;
/// libc functions that run natively and write [rdi, rdi + rdx).
const COPIES: [&std::ffi::CStr; 4] = [c"memcpy", c"memmove", c"memset", c"mempcpy"];
/// libc functions that run natively and write nothing.
const READERS: [&std::ffi::CStr; 14] = [
    c"strlen",
    c"strnlen",
    c"strcmp",
    c"strncmp",
    c"memcmp",
    c"bcmp",
    c"memchr",
    c"memrchr",
    c"rawmemchr",
    c"strchr",
    c"strrchr",
    c"strchrnul",
    c"strspn",
    c"strcspn",
];

/// Serialises the creation of the one state.
static MAKING: Mutex<()> = Mutex::new(());

/// Tracks calls by translating the code that they reach, block by block, as they reach it (x86-64 Linux).
///
/// All recompilers of a process share one code cache. The recompiler sees everything that the call reaches: the
/// program, libc, any library. What it cannot follow it refuses with [`Error::Refused`]; `docs/tracker.md` has the
/// list.
#[derive(Clone, Copy, Debug)]
pub struct Recompiler(());

impl Recompiler {
    /// Prepares the process for translated calls: a few mappings, no code yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the CPU or the process lacks something, and names it.
    pub fn new() -> Result<Self> {
        crate::panic_notice::install();
        let _making = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state().is_null() {
            make_state()?;
            // SAFETY: registers a handler that only touches atomics of this crate.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        }
        Ok(Self(()))
    }

    /// Figures about the recompiler's work so far, for people: (name, value).
    #[must_use]
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        // SAFETY: plain counters of a state that is never freed; a torn view of them does no harm.
        let counts = unsafe { (*state()).counts };
        vec![
            ("blocks translated", counts.blocks),
            ("instructions translated", counts.instructions),
            ("dispatches", counts.dispatches),
            ("records by hand", counts.records_by_hand),
            ("flushes", counts.flushes),
            ("stacks looked up", counts.stacks),
        ]
    }

    /// Switches recording off or on, to measure what translation alone costs. While it is off, calls report
    /// nothing.
    #[doc(hidden)]
    pub fn set_recording(&self, on: bool) {
        with_turn(|state| {
            state.recording = on;
            state.flush();
        });
    }
}

/// State of the parent process: a forked child takes its leaves and its hook.
static INHERITED: AtomicPtr<RecompilerState> = AtomicPtr::new(std::ptr::null_mut());

/// A forked child has neither code cache nor low region, because both are excluded from fork. Its first tracked
/// call makes a new state.
unsafe extern "C" fn after_fork_in_child() {
    own_memory::forget_lock();
    crate::active::forget_turn();
    let state = crate::recompiler::run::dispatch::withdraw();
    if !state.is_null() {
        INHERITED.store(state, Ordering::Release);
    }
}

#[cold]
fn remake_state() -> Result<()> {
    let _making = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !state().is_null() {
        return Ok(());
    }
    make_state()?;
    let inherited = INHERITED.load(Ordering::Acquire);
    if !inherited.is_null() {
        // SAFETY: the parent's state as it was at the fork, and a fresh one that only this thread uses yet.
        let (old, new) = unsafe { (&*inherited, &mut *state()) };
        old.leaves.iter().for_each(|leaf| new.add_leaf(leaf.0, leaf.1));
        new.hook = old.hook;
    }
    Ok(())
}

/// Runs `work` on the state when no thread is in a tracked call. Panics in a tracked call, because it would wait
/// for its own end.
fn with_turn<T>(work: impl FnOnce(&mut RecompilerState) -> T) -> T {
    assert!(!in_tracked_call(), "a tracked call cannot change its tracker");
    let turn = loop {
        match Turn::take(std::ptr::null_mut()) {
            Ok(turn) => break turn,
            Err(_) => std::thread::yield_now(),
        }
    };
    // SAFETY: the turn makes it exclusive; the state exists as long as a recompiler does.
    let result = work(unsafe { &mut *state() });
    drop(turn);
    result
}

impl Tracker for Recompiler {
    fn name(&self) -> &'static str {
        "recompiler"
    }

    #[inline]
    unsafe fn call(
        &self,
        writes: &mut WriteSet,
        f: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    ) -> Result<()> {
        if state().is_null() {
            remake_state()?;
        }
        let writes = std::ptr::from_mut(writes);
        let turn = Turn::take(writes)?;
        let marker = 0u8;
        let here = std::ptr::from_ref(&marker).addr();
        // SAFETY: the turn makes state and context exclusive; references to them end before translated code runs
        // and are made anew after it.
        let left = unsafe {
            let state = &mut *state();
            state.begin(writes, here);
            let mode = state.mode;
            stubs::mangrove_tracker_enter(f as usize, arg.expose_provenance(), TARGETS[mode as usize])
        };
        // SAFETY: as above.
        let result = unsafe { (*state()).finish(left) };
        drop(turn);
        result
    }

    fn add_leaf(&self, address: usize) {
        with_turn(|state| state.add_leaf(address, NativeLeaf::Silent));
    }

    fn add_marked_leaf(&self, address: usize, mark: &'static AtomicUsize) -> bool {
        with_turn(|state| state.add_leaf(address, NativeLeaf::Marked(mark.as_ptr() as usize)));
        true
    }

    fn refuse(&self, address: usize, why: &'static str) {
        with_turn(|state| state.add_leaf(address, NativeLeaf::Refused(why)));
    }

    fn set_syscall_hook(&self, hook: &'static dyn SyscallHook) {
        with_turn(|state| state.hook = Some(hook));
    }

    fn forget_code(&self) {
        if state().is_null() {
            // A forked child, before its first call.
            return;
        }
        with_turn(|state| {
            // Between calls the direction flag is clear and no flags are live (System V ABI).
            state.direction_known = true;
            state.flags_cross = false;
            let _ = state.maps.refresh();
            state.sources.clear();
            state.pinned = 0;
            state.flush();
        });
    }
}

impl RecompilerState {
    /// Before translated code runs.
    #[inline]
    fn begin(&mut self, writes: *mut WriteSet, here: usize) {
        self.writes = writes;
        self.failure = CallFailure::None;
        self.denied = None;
        let thread = thread_number();
        if self.thread != thread {
            self.change_thread(thread, here);
        }
        // SAFETY: the caller lends the set for the call.
        if self.version != unsafe { (*writes).version() } {
            self.attach();
        }
        // SAFETY: the context is mapped.
        let context = unsafe { &mut *context() };
        // The stack counts as the call's up to the caller's frame: a stack pointer above it has jumped out.
        let offset = (here as u64).wrapping_sub(context.stack_lo);
        self.mode = if offset < context.stack_all { Mode::OwnStack } else { Mode::ForeignStack };
        context.stack_len = if self.mode == Mode::OwnStack { offset } else { context.stack_all };
    }

    #[cold]
    fn change_thread(&mut self, thread: u64, here: usize) {
        let stack = self.stack_of_thread(thread, here);
        // SAFETY: the context is mapped.
        let context = unsafe { &mut *context() };
        store_filter::forget_stack_blocks(context);
        context.stack_lo = stack.lo as u64;
        context.stack_all = (stack.hi - stack.lo) as u64;
        context.fs_base = fs_base() as u64;
        if self.restartable_offset != 0 {
            self.restartable = fs_base().wrapping_add_signed(self.restartable_offset);
            store_filter::mark_page(self.restartable);
        }
        // The next call may find a stack that this one could not determine.
        self.thread = if stack.hi == 0 { 0 } else { thread };
    }

    /// The calling thread's stack, remembered: reading the list of mappings takes long.
    fn stack_of_thread(&mut self, thread: u64, here: usize) -> Stack {
        let slot = thread as usize % STACKS_KNOWN;
        let (of, known) = self.stacks[slot];
        if of == thread && (known.lo..known.hi).contains(&here) {
            return known;
        }
        self.counts.stacks += 1;
        let found = find_stack(&mut self.maps, here, fs_base());
        self.stacks[slot] = (thread, found);
        found
    }

    /// From now on the tables serve another write set, or the same set after a clear.
    fn attach(&mut self) {
        // SAFETY: the set is lent for the call; the context is mapped.
        let (writes, context) = unsafe { (&mut *self.writes, &mut *context()) };
        store_filter::forget(context);
        self.handed = 0;
        self.version = writes.version();
        let exact = writes.exact_ranges();
        if exact.version() != self.exact_version {
            store_filter::mark_exact_pages(exact, self.restartable);
            exact_bytes::make(context, exact, self.restartable);
            self.exact_version = exact.version();
        }
        if writes.block_bytes() as u32 != self.block_bytes {
            self.block_bytes = writes.block_bytes() as u32;
            // Emptied with the shift by which it was filled.
            store_filter::forget_filter(context);
            set_block_bytes(self.block_bytes);
            self.flush();
        }
    }

    /// After translated code ran.
    #[inline]
    fn finish(&mut self, left: u64) -> Result<()> {
        self.hand_over();
        // SAFETY: the context is mapped.
        let (lo, all) = unsafe { ((*context()).stack_lo as usize, (*context()).stack_all as usize) };
        if all > 0 {
            self.writes().add_stack(lo, lo + all);
        }
        self.writes = std::ptr::null_mut();
        if left == stubs::LEFT_NORMALLY && self.denied.is_none() { Ok(()) } else { Err(self.why(left)) }
    }

    #[cold]
    fn why(&self, left: u64) -> Error {
        let refused = |what: String| Error::Refused { what };
        match (left, self.denied, self.failure) {
            (stubs::LEFT_ESCAPED, ..) => Error::Escaped {
                how: "something jumped into it from outside (a signal handler that does not return?)".into(),
            },
            // However the call ended after that, this was the first cause.
            (_, Some(what), _) => refused(what.into()),
            (stubs::LEFT_BY_EXCEPTION, ..) => Error::Exception,
            (.., CallFailure::Refused(what)) => refused(what.into()),
            (.., CallFailure::Syscall(number)) => {
                refused(format!("it makes system call {number}, whose writes the recompiler does not know"))
            }
            (.., CallFailure::MadeCode(pc)) => refused(format!(
                "it runs code that was made at run time or can be written (at {pc:#x}), which the recompiler does not follow"
            )),
            (.., CallFailure::LongJump) => Error::LongJump,
            (.., CallFailure::NoMaps) => refused(NO_MAPS.into()),
            (.., CallFailure::NoSpace | CallFailure::NoCode(_) | CallFailure::None) => {
                refused(NO_ROOM.into())
            }
        }
    }
}

const NO_ROOM: &str = "there is no memory or address space near the program for translated code: raise its limit \
                       (ulimit -v)";
const NO_MAPS: &str = "/proc/self/maps cannot be read, by which the recompiler knows what is code: mount /proc, \
                       and leave the process a free descriptor";

fn set_block_bytes(block_bytes: u32) {
    // SAFETY: the context is mapped.
    let context = unsafe { &mut *context() };
    context.block_bytes = block_bytes.into();
    context.block_mask = (-i64::from(block_bytes)) as u64;
    context.filter_shift = u64::from(block_bytes.trailing_zeros() - 3);
}

#[cold]
fn make_state() -> Result<()> {
    let unsupported = |what: &str| Error::Unsupported { what: what.into() };
    if !std::is_x86_feature_detected!("xsave") {
        return Err(unsupported("the CPU has no XSAVE"));
    }
    if shadow_stacks_enabled() {
        return Err(unsupported("hardware shadow stacks (CET) are enabled; start the program without them"));
    }
    map_low_region()?;
    learn_state_components();
    let components = xcr0() & STATE_COMPONENTS;
    // Leaf 0xD exists where XSAVE does.
    let area_bytes = cpuid(0xd, 0).ecx as usize;
    let area = map_anonymous(area_bytes)?;
    let stack = map_anonymous(HOST_STACK_BYTES)?;
    // SAFETY: the region was just mapped.
    let context = unsafe { &mut *context() };
    context.xsave_area = area as u64;
    context.xsave_mask = components;
    context.host_rsp = (stack + HOST_STACK_BYTES - 64) as u64;
    context.list_ptr = LIST as u64;
    context.large_ptr = LARGE as u64;
    context.exact_ptr = EXACT as u64;
    context.stack_blocks_ptr = STACK_BLOCKS as u64;
    context.victims_ptr = VICTIMS as u64;
    context.granules_ptr = GRANULES as u64;
    context.dispatch = stubs::mangrove_tracker_dispatch as *const () as u64;
    context.slow = stubs::mangrove_tracker_slow as *const () as u64;
    context.slow_exact = stubs::mangrove_tracker_slow_exact as *const () as u64;
    context.slow_masked = stubs::mangrove_tracker_slow_masked as *const () as u64;
    context.slow_copy = stubs::mangrove_tracker_slow_copy as *const () as u64;
    context.slow_range = stubs::mangrove_tracker_slow_range as *const () as u64;
    context.check_stack = [
        stubs::mangrove_tracker_check_own_stack as *const () as u64,
        stubs::mangrove_tracker_check_foreign_stack as *const () as u64,
    ];
    set_block_bytes(32);
    let place = map_anonymous(size_of::<RecompilerState>().next_multiple_of(4096))?;
    let state: *mut RecompilerState = std::ptr::with_exposed_provenance_mut(place);
    // SAFETY: fresh memory, page-aligned and large enough; nothing else refers to it yet.
    let state = unsafe {
        state.write(RecompilerState::new(std::is_x86_feature_detected!("bmi2")));
        &mut *state
    };
    warm_up(state)?;
    for (names, leaf) in [(&COPIES[..], NativeLeaf::Copy), (&READERS[..], NativeLeaf::Silent)] {
        for name in names {
            // SAFETY: asks the dynamic linker for a symbol.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr();
            if address != 0 {
                state.add_leaf(address, leaf);
            }
        }
    }
    for name in [c"pthread_exit", c"thrd_exit"] {
        // SAFETY: as above. Both functions end in a forced unwinding, which nothing may stop.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr();
        if address != 0 {
            state.add_leaf(address, NativeLeaf::Refused(ENDS));
        }
    }
    // SAFETY: a symbol of glibc 2.35 and later, a ptrdiff_t that never changes.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        state.restartable_offset = if symbol.is_null() { 0 } else { symbol.read() };
    }
    state.add_leaf(will_write as *const () as usize, NativeLeaf::Silent);
    state.flush();
    publish(std::ptr::from_mut(state));
    crate::recompiler::run::signals::install();
    Ok(())
}

/// Lets the decoder allocate what it keeps, and opens the files that the recompiler reads. Later it must do
/// neither.
fn warm_up(state: &mut RecompilerState) -> Result<()> {
    // vzeroall, vzeroupper, fxsave, fxrstor, xsave, xrstor, xsavec, fnsave, frstor, fninit, emms, syscall, a scatter
    const GREEDY: [&[u8]; 13] = [
        &[0xc5, 0xfc, 0x77],
        &[0xc5, 0xf8, 0x77],
        &[0x0f, 0xae, 0x00],
        &[0x0f, 0xae, 0x08],
        &[0x0f, 0xae, 0x20],
        &[0x0f, 0xae, 0x28],
        &[0x0f, 0xc7, 0x20],
        &[0xdd, 0x30],
        &[0xdd, 0x20],
        &[0xdb, 0xe3],
        &[0x0f, 0x77],
        &[0x0f, 0x05],
        &[0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x08],
    ];
    for bytes in GREEDY {
        let mut decoder = iced_x86::Decoder::with_ip(64, bytes, 0, iced_x86::DecoderOptions::NONE);
        let raw = decoder.decode();
        let _ = decoder.get_constant_offsets(&raw);
        let _ = crate::recompiler::translate::decode::analyse(&raw, &mut state.factory, true);
    }
    // The decoder's own lists lie in the heap; a verifier must skip them.
    let raw = iced_x86::Decoder::with_ip(64, GREEDY[0], 0, iced_x86::DecoderOptions::NONE).decode();
    let info = state.factory.info(&raw);
    for list in [info.used_registers().as_ptr().addr(), info.used_memory().as_ptr().addr()] {
        // SAFETY: a piece of the process heap, if the global allocator is libc's. Only the verifier of tests
        // depends on that.
        let len = unsafe { libc::malloc_usable_size(std::ptr::with_exposed_provenance_mut(list)) };
        own_memory::note_heap(list, len);
    }
    if state.maps.refresh() { Ok(()) } else { Err(Error::Unsupported { what: NO_MAPS.into() }) }
}

fn map_low_region() -> Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping that replaces nothing.
    let at = unsafe {
        syscall(libc::SYS_mmap, [LOW as u64, LOW_BYTES as u64, prot as u64, flags as u64, u64::MAX, 0])
    };
    if at != LOW as i64 {
        if !failed(at) {
            // SAFETY: a kernel without MAP_FIXED_NOREPLACE put it elsewhere: it is our own mapping.
            unsafe { syscall(libc::SYS_munmap, [at as u64, LOW_BYTES as u64, 0, 0, 0, 0]) };
        }
        return Err(Error::Unsupported {
            what: format!(
                "the addresses from {LOW:#x} on, which the recompiler needs, are taken by something else"
            ),
        });
    }
    own_memory::note(LOW, LOW_BYTES);
    // SAFETY: our own mapping; a forked child makes a state of its own.
    unsafe {
        syscall(libc::SYS_madvise, [LOW as u64, LOW_BYTES as u64, libc::MADV_DONTFORK as u64, 0, 0, 0])
    };
    Ok(())
}

fn map_anonymous(len: usize) -> Result<usize> {
    own_memory::map(len).ok_or_else(|| Error::Unsupported { what: "there is no memory left to map".into() })
}

/// Asks the kernel (6.6 and later) whether this thread has a user shadow stack.
fn shadow_stacks_enabled() -> bool {
    const ARCH_SHSTK_STATUS: u64 = 0x5005;
    let mut features = 0u64;
    let to = std::ptr::from_mut(&mut features).expose_provenance() as u64;
    // SAFETY: writes the features into our variable, or fails.
    let result = unsafe { syscall(libc::SYS_arch_prctl, [ARCH_SHSTK_STATUS, to, 0, 0, 0, 0]) };
    !failed(result) && features & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::{Recompiler, Tracker, WriteSet};
    use crate::error::Error;
    use crate::recompiler::run::context::{FILTER_SLOTS, LARGE, LIST, LIST_END};
    use std::ffi::c_void;
    use std::os::fd::AsRawFd;
    use std::sync::{Barrier, Mutex};

    unsafe extern "C" fn write_one(arg: *mut c_void) {
        // SAFETY: the test passes a byte.
        unsafe { arg.cast::<u8>().write(7) };
    }

    fn lookups(tracker: &Recompiler) -> u64 {
        tracker.statistics().iter().find(|(name, _)| *name == "stacks looked up").unwrap().1
    }

    /// Threads that take turns are remembered: a change of thread does not read the list of mappings.
    #[test]
    fn the_stacks_of_many_threads_are_remembered() {
        const THREADS: usize = 32;
        const ROUNDS: usize = 20;
        let tracker = Recompiler::new().unwrap();
        let writes = Mutex::new(WriteSet::new(32).unwrap());
        let barrier = Barrier::new(THREADS);
        let before = lookups(&tracker);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut byte = Box::new(0u8);
                    for _ in 0..ROUNDS {
                        barrier.wait();
                        let arg = std::ptr::from_mut(&mut *byte).cast();
                        let mut writes = writes.lock().unwrap();
                        // SAFETY: the function's argument.
                        while unsafe { tracker.call(&mut writes, write_one, arg) } == Err(Error::Busy) {}
                        assert!(writes.ranges().iter().any(|r| (r.0..r.0 + r.1).contains(&arg.addr())));
                    }
                });
            }
        });
        let looked_up = lookups(&tracker) - before;
        // Threads of other tests may add a few lookups.
        assert!((THREADS..2 * THREADS).contains(&(looked_up as usize)), "{looked_up} lookups");
    }

    /// After a change of thread the earlier caller's stack is ordinary memory.
    #[test]
    fn a_stack_is_memory_to_other_threads() {
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let call = |writes: &mut WriteSet, at: usize| {
            writes.clear();
            let arg = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: a byte of a frame that lives on.
            while unsafe { tracker.call(writes, write_one, arg) } == Err(Error::Busy) {}
            writes.ranges().iter().any(|r| (r.0..r.0 + r.1).contains(&at))
        };
        // Many blocks, and more than the list of them can hold.
        for bytes in [4 << 10, 64 << 10] {
            let mut here = [0u8; 64 << 10];
            let from = here.as_mut_ptr().expose_provenance();
            let places = || (0..bytes).step_by(32).map(|offset| from + offset);
            let own = places().filter(|at| call(&mut writes, *at)).count();
            let seen = std::thread::scope(|scope| {
                scope.spawn(|| places().filter(|at| call(&mut writes, *at)).count()).join().unwrap()
            });
            assert_eq!((own, seen), (0, bytes / 32));
        }
    }

    const ARRAY: usize = FILTER_SLOTS * 32;
    const ARRAYS: usize = 12;
    const ROWS: usize = 64;

    /// Writes rows of arrays that evict each other from the filter.
    unsafe extern "C" fn write_columns(arg: *mut c_void) {
        for round in 0..3 * ROWS {
            for array in 0..ARRAYS {
                // SAFETY: the test's memory holds them all.
                unsafe { arg.cast::<u8>().add(array * ARRAY + round * 7 % ROWS * 32).write(1) };
            }
        }
    }

    #[test]
    fn what_the_filter_loses_is_remembered() {
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut memory = vec![0u8; ARRAY * ARRAYS + 32];
        let from = memory.as_mut_ptr().expose_provenance().next_multiple_of(32);
        // Later rounds find nothing of the earlier ones.
        for _ in 0..3 {
            writes.clear();
            let arg = std::ptr::with_exposed_provenance_mut(from);
            // SAFETY: the function's argument.
            while unsafe { tracker.call(&mut writes, write_columns, arg) } == Err(Error::Busy) {}
            let within = |block: &&u64| (from..from + ARRAY * ARRAYS).contains(&(**block as usize));
            let mut blocks: Vec<_> = writes.blocks().iter().filter(within).copied().collect();
            blocks.sort_unstable();
            let rows = |array| (0..ROWS).map(move |row| (from + array * ARRAY + row * 32) as u64);
            // Blocks come each time where an array shares its mark in EXACT_PAGES with a page that is watched for a
            // thread of another test.
            let of_one =
                |left: &u64, right: &u64| (*left as usize - from) / ARRAY == (*right as usize - from) / ARRAY;
            let once = blocks.chunk_by(of_one).filter(|array| array.len() == ROWS).count();
            assert!(once >= ARRAYS - 2, "{once} of {ARRAYS} arrays have each block once");
            blocks.dedup();
            assert!(blocks.into_iter().eq((0..ARRAYS).flat_map(rows)));
        }
    }

    const LIST_BLOCKS: usize = (LIST_END - LIST) / 8;
    const FULL_ROWS: usize = 893;
    const FULL_REST: usize = 7_200;

    /// Writes a copy of 100 bytes; then eleven arrays row by row, nearly as many blocks as the list holds; then
    /// blocks of a twelfth array whose slots in the filter are empty.
    unsafe extern "C" fn fill_the_list(arg: *mut c_void) {
        let from = arg.cast::<u8>();
        // SAFETY: the test's memory holds them all.
        unsafe {
            let copied = from.add(ARRAYS * ARRAY);
            std::ptr::copy_nonoverlapping(from, copied, std::hint::black_box(100));
            for row in 0..FULL_ROWS {
                (0..ARRAYS - 1).for_each(|array| from.add(array * ARRAY + row * 32).write_volatile(1));
            }
            for row in FULL_ROWS..FULL_ROWS + FULL_REST {
                from.add((ARRAYS - 1) * ARRAY + row * 32).write_volatile(1);
            }
        }
    }

    #[test]
    fn a_list_that_is_full_does_not_run_over() {
        const {
            let in_turns = (ARRAYS - 1) * FULL_ROWS;
            assert!(in_turns < LIST_BLOCKS && in_turns + FULL_REST > LIST_BLOCKS + (LARGE - LIST_END) / 8);
        }
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut memory = vec![0u8; ARRAY * ARRAYS + 256];
        let from = memory.as_mut_ptr().expose_provenance().next_multiple_of(32);
        let arg = std::ptr::with_exposed_provenance_mut(from);
        // SAFETY: the function's argument.
        while unsafe { tracker.call(&mut writes, fill_the_list, arg) } == Err(Error::Busy) {}
        assert_eq!(writes.large(), [(from + ARRAY * ARRAYS, 100)]);
        let seen: std::collections::HashSet<_> =
            writes.blocks().iter().map(|&block| block as usize).collect();
        let turns = (0..FULL_ROWS).flat_map(|row| (0..ARRAYS - 1).map(move |array| array * ARRAY + row * 32));
        let rest = (FULL_ROWS..FULL_ROWS + FULL_REST).map(|row| (ARRAYS - 1) * ARRAY + row * 32);
        let lost = turns.chain(rest).filter(|offset| !seen.contains(&(from + offset))).count();
        assert_eq!(lost, 0);
    }

    unsafe extern "C" fn write_in_turns(arg: *mut c_void) {
        let words = arg.cast::<u64>();
        for turn in 0..300_000 {
            // SAFETY: the test's memory.
            unsafe { words.add(turn % 1000).write_volatile(turn as u64) };
        }
    }

    #[test]
    fn exact_bytes_written_again_and_again_are_kept_a_few_times() {
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut words = vec![0u64; 1000];
        let arg = words.as_mut_ptr();
        writes.set_exact(&[(arg.addr(), 8000)]);
        // SAFETY: the function's argument.
        while unsafe { tracker.call(&mut writes, write_in_turns, arg.cast()) } == Err(Error::Busy) {}
        assert!(writes.exact().len() <= 2 * 65_536, "{}", writes.exact().len());
        assert!(writes.ranges().contains(&(arg.expose_provenance(), 8000)));
    }

    #[target_feature(enable = "avx2")]
    unsafe extern "C" fn load_by_mask(arg: *mut c_void) {
        use std::arch::x86_64::{_mm256_maskload_epi32, _mm256_set1_epi32, _mm256_storeu_si256};
        // SAFETY: the test's memory: the bytes that are read, and the bytes after them that are written.
        unsafe {
            let loaded = _mm256_maskload_epi32(arg.cast(), std::hint::black_box(_mm256_set1_epi32(-1)));
            _mm256_storeu_si256(arg.cast::<std::arch::x86_64::__m256i>().add(64), loaded);
        }
    }

    #[test]
    fn a_masked_load_writes_nothing() {
        if !std::is_x86_feature_detected!("avx2") {
            return;
        }
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut memory = vec![7i32; 1024];
        let arg = memory.as_mut_ptr();
        writes.set_exact(&[(arg.expose_provenance(), 4096)]);
        // SAFETY: the function's argument, and a CPU that has its instructions.
        while unsafe { tracker.call(&mut writes, load_by_mask, arg.cast()) } == Err(Error::Busy) {}
        assert_eq!(writes.exact(), [(arg.addr() + 64 * 32, 32)]);
    }

    unsafe extern "C" fn store_by_a_new_mask(arg: *mut c_void) {
        // SAFETY: writes sixteen words of the test's memory.
        unsafe {
            std::arch::asm!(
                "kxorw k1, k1, k1",
                "cmp eax, eax",
                "kmovw k1, {mask:e}",
                "vmovdqu32 zmmword ptr [{to}]{{k1}}, zmm0",
                "jne 2f",
                "2:",
                mask = in(reg) 0xff0f,
                to = in(reg) arg,
                out("k1") _,
                options(nostack)
            );
        }
    }

    #[test]
    fn the_mask_of_a_store_is_looked_at_when_it_is_set() {
        if !std::is_x86_feature_detected!("avx512f") {
            return;
        }
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut memory = vec![0u32; 64];
        let arg = memory.as_mut_ptr();
        writes.set_exact(&[(arg.expose_provenance(), 256)]);
        // SAFETY: the function's argument, and a CPU that has its instructions.
        while unsafe { tracker.call(&mut writes, store_by_a_new_mask, arg.cast()) } == Err(Error::Busy) {}
        let inside: Vec<_> = writes.ranges().iter().filter(|range| range.0 >= arg.addr()).copied().collect();
        let words = |first: usize, count: usize| (arg.addr() + 4 * first, 4 * count);
        assert_eq!(inside.iter().filter(|range| range.0 < arg.addr() + 256).count(), 2);
        assert!(inside.contains(&words(0, 4)) && inside.contains(&words(8, 8)));
    }

    unsafe extern "C" fn change_the_tracker(arg: *mut c_void) {
        let caught = std::panic::catch_unwind(|| Recompiler(()).forget_code()).is_err();
        // SAFETY: the test's variable.
        unsafe { arg.cast::<bool>().write(caught) };
    }

    #[test]
    fn a_tracked_call_that_changes_its_tracker_does_not_hang() {
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut caught = false;
        let arg = std::ptr::from_mut(&mut caught).cast();
        // SAFETY: the function's argument.
        while unsafe { tracker.call(&mut writes, change_the_tracker, arg) } == Err(Error::Busy) {}
        assert!(caught);
    }

    #[test]
    fn memory_where_code_was_is_not_taken_for_it() {
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let path = std::env::temp_dir().join(format!("mangrove-tracker-code-{}", std::process::id()));
        std::fs::write(&path, [0xc3; 4096]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let map = |at: *mut c_void, protection, flags, fd| {
            // SAFETY: a page anywhere, or in place of the test's own.
            let got = unsafe { libc::mmap(at, 4096, protection, libc::MAP_PRIVATE | flags, fd, 0) };
            assert_ne!(got, libc::MAP_FAILED);
            got
        };
        let readable = libc::PROT_READ | libc::PROT_EXEC;
        let code = map(std::ptr::null_mut(), readable, 0, file.as_raw_fd());
        // SAFETY: the page is full of `ret` instructions.
        let function: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(code) };
        let mut call = || {
            loop {
                // SAFETY: as above.
                let called = unsafe { tracker.call(&mut writes, function, std::ptr::null_mut()) };
                if called != Err(Error::Busy) {
                    return called;
                }
            }
        };
        assert_eq!(call(), Ok(()));
        let flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        assert_eq!(map(code, readable | libc::PROT_WRITE, flags, -1), code);
        // SAFETY: the test's page.
        unsafe { code.cast::<u8>().write(0xc3) };
        tracker.forget_code();
        assert!(call().unwrap_err().to_string().contains("made at run time"));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(code, 4096) }, 0);
    }
}
