//! The state of the recompiler, and how it is discarded.

use crate::recompiler::code_cache::blocks::{CodeBlocks, Mode};
use crate::recompiler::code_cache::cache::CodeCache;
use crate::recompiler::code_cache::proc_maps::Maps;
use crate::recompiler::run::context::{TARGET_SLOTS, TARGETS, context};
use crate::recompiler::run::stack_bounds::Stack;
use crate::recompiler::run::stubs;
use crate::tracker::SyscallHook;
use crate::write_set::own_vec::OwnVec;
use crate::write_set::write_set::WriteSet;
use iced_x86::InstructionInfoFactory;

/// How many threads' stacks are remembered, by their numbers modulo this.
pub(crate) const STACKS_KNOWN: usize = 1024;

/// Why translated code enters the dispatcher. The exit number is an index into the list of these.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExitReason {
    /// A jump whose target was not translated: the dispatcher patches the displacement at `site`.
    Direct { target: usize, site: usize, stub: usize, mode: Mode },
    /// A system call; the program continues at `next`.
    Syscall { next: usize },
    /// A store that only the dispatcher can work out; the program continues at `resume`.
    Rare { pc: usize, resume: usize },
    /// The same for a masked store; the program continues at the context's `resume`.
    Masked { pc: usize },
    /// rsp left the stack for which the code at `next` was going to be translated.
    Stack { next: usize },
    /// An instruction that cannot be run translated.
    Refused { why: &'static str },
}

/// How a function that runs natively reports what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeLeaf {
    /// It writes nothing, or reports its writes itself.
    Silent,
    /// It writes [rdi, rdi + rdx).
    Copy,
    /// Its writes are not wanted. The word at this address is one greater while it runs.
    Marked(usize),
    /// It must not run at all; why.
    Refused(&'static str),
}

/// Why the call was abandoned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallFailure {
    None,
    Refused(&'static str),
    /// A system call by number.
    Syscall(i64),
    /// Code made at run time, at this address.
    MadeCode(usize),
    LongJump,
    /// A jump to memory that holds no code. Made natively, the jump faults there.
    NoCode(usize),
    /// No memory or address space for translated code.
    NoSpace,
    /// The list of mappings cannot be read.
    NoMaps,
}

/// The recompiler. One per process; only the thread that has the turn uses it.
pub(crate) struct RecompilerState {
    pub(crate) cache: CodeCache,
    pub(crate) maps: Maps,
    pub(crate) blocks: CodeBlocks,
    pub(crate) exits: OwnVec<ExitReason>,
    /// (cache address, original address) of every translated instruction, in order of translation.
    pub(crate) origins: OwnVec<(usize, usize)>,
    pub(crate) leaves: OwnVec<(usize, NativeLeaf)>,
    /// Mappings that code was translated from: (lo, hi).
    pub(crate) sources: OwnVec<(usize, usize)>,
    /// How many of them are pinned.
    pub(crate) pinned: usize,
    pub(crate) factory: InstructionInfoFactory,
    pub(crate) block_bytes: u32,
    pub(crate) bmi2: bool,
    /// False only to measure what translation alone costs.
    pub(crate) recording: bool,
    /// Some code passes flags through a call or a return.
    pub(crate) flags_cross: bool,
    /// None of the code seen so far sets the direction flag.
    pub(crate) direction_known: bool,
    /// The translator found something that requires a flush while it was translating a piece of code.
    pub(crate) flush_wanted: bool,
    pub(crate) mode: Mode,
    pub(crate) failure: CallFailure,
    /// The first thing that the program was denied; the call ends with this message.
    pub(crate) denied: Option<&'static str>,
    pub(crate) hook: Option<&'static dyn SyscallHook>,
    pub(crate) writes: *mut WriteSet,
    /// The write set whose blocks the tables hold.
    pub(crate) version: (u64, u64),
    pub(crate) exact_version: u64,
    /// How many entries of the block list the write set has already.
    pub(crate) handed: usize,
    /// Number of the thread that the context was set up for, 0: none.
    pub(crate) thread: u64,
    /// Stacks of threads that called, with their numbers.
    pub(crate) stacks: [(u64, Stack); STACKS_KNOWN],
    pub(crate) heap_end: usize,
    /// glibc's area of restartable sequences: distance from the thread pointer (0: none), and its address.
    pub(crate) restartable_offset: isize,
    pub(crate) restartable: usize,
    pub(crate) counts: WorkCounts,
}

/// Counts of what happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkCounts {
    pub(crate) blocks: u64,
    pub(crate) instructions: u64,
    pub(crate) dispatches: u64,
    pub(crate) records_by_hand: u64,
    pub(crate) flushes: u64,
    pub(crate) stacks: u64,
}

impl RecompilerState {
    pub(crate) fn new(bmi2: bool) -> Self {
        Self {
            cache: CodeCache::new(),
            maps: Maps::new(),
            blocks: CodeBlocks::new(),
            exits: OwnVec::new(),
            origins: OwnVec::new(),
            leaves: OwnVec::new(),
            sources: OwnVec::new(),
            pinned: 0,
            factory: InstructionInfoFactory::new(),
            block_bytes: 32,
            bmi2,
            recording: true,
            flags_cross: false,
            direction_known: true,
            flush_wanted: false,
            mode: Mode::OwnStack,
            failure: CallFailure::None,
            denied: None,
            hook: None,
            writes: std::ptr::null_mut(),
            version: (0, 0),
            exact_version: 0,
            handed: 0,
            thread: 0,
            stacks: [(0, Stack::default()); STACKS_KNOWN],
            heap_end: 0,
            restartable_offset: 0,
            restartable: 0,
            counts: WorkCounts::default(),
        }
    }

    /// Discards all translations. Translated code may be running: the dispatcher sends it to a fresh translation,
    /// and no cache address is on the program's stack.
    pub(crate) fn flush(&mut self) {
        self.cache.reset();
        self.blocks.clear();
        self.exits.clear();
        self.origins.clear();
        self.flush_wanted = false;
        self.counts.flushes += 1;
        let miss = stubs::mangrove_tracker_branch_miss as *const () as usize;
        for table in TARGETS {
            for slot in 0..TARGET_SLOTS {
                // SAFETY: the two tables of the low region.
                unsafe { std::ptr::with_exposed_provenance_mut::<usize>(table).add(slot).write(miss) };
            }
        }
    }

    /// How the function at `pc` runs natively; `None` if it is translated.
    pub(crate) fn leaf(&self, pc: usize) -> Option<NativeLeaf> {
        let idx = self.leaves.binary_search_by_key(&pc, |leaf| leaf.0).ok()?;
        Some(self.leaves[idx].1)
    }

    /// As `leaf`, but only for a function that may be called.
    pub(crate) fn native_leaf(&self, pc: usize) -> Option<NativeLeaf> {
        self.leaf(pc).filter(|leaf| !matches!(leaf, NativeLeaf::Refused(_)))
    }

    pub(crate) fn add_leaf(&mut self, pc: usize, leaf: NativeLeaf) {
        match self.leaves.binary_search_by_key(&pc, |leaf| leaf.0) {
            Ok(idx) => self.leaves[idx].1 = leaf,
            Err(_) => {
                self.leaves.push((pc, leaf));
                self.leaves.sort_unstable_by_key(|leaf| leaf.0);
            }
        }
        if self.blocks.len() > 0 {
            self.flush();
        }
    }

    /// The original address of the instruction at cache address `at`, or of the next one there.
    pub(crate) fn origin(&self, at: usize) -> Option<usize> {
        self.origins
            .iter()
            .filter(|origin| origin.0 <= at)
            .max_by_key(|origin| origin.0)
            .map(|origin| origin.1)
    }

    pub(crate) fn abandon(&mut self, failure: CallFailure) -> usize {
        self.failure = failure;
        stubs::mangrove_tracker_abandon as *const () as usize
    }

    /// The batch's write set.
    pub(crate) fn writes(&mut self) -> &mut WriteSet {
        // SAFETY: set at the start of the call, whose caller lends the set until it ends.
        unsafe { &mut *self.writes }
    }

    pub(crate) fn register(&self, reg: u8) -> u64 {
        // SAFETY: the context is mapped, and this thread has the turn.
        unsafe { (*context()).regs[usize::from(reg)] }
    }
}
