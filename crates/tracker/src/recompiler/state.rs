//! Everything the recompiler knows, and how it is thrown away.

use super::blocks::{Blocks, Mode};
use super::cache::Cache;
use super::context::{TARGET_SLOTS, TARGETS, context};
use super::gate;
use super::maps::Maps;
use super::thread::Stack;
use crate::map_vec::MapVec;
use crate::tracker::SyscallHook;
use crate::write_set::WriteSet;
use iced_x86::InstructionInfoFactory;

/// Threads whose stacks are remembered, by the last of their numbers.
pub(crate) const STACKS_KNOWN: usize = 1024;

/// Why translated code comes to the dispatcher; the exit number is the index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    /// A jump whose target was not translated: patch the displacement at `site`.
    Direct { target: usize, site: usize, stub: usize, mode: Mode },
    /// A system call; the program goes on at `next`.
    Syscall { next: usize },
    /// A store that needs a closer look; back to `resume`.
    Rare { pc: usize, resume: usize },
    /// The same for a masked store; back to the context's `resume`.
    Masked { pc: usize },
    /// rsp left the stack that the code at `next` was to be translated for.
    Stack { next: usize },
    /// An instruction that cannot be run.
    Refused { why: &'static str },
}

/// How a function is run natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// It writes nothing, or reports it itself.
    Silent,
    /// It writes [rdi, rdi + rdx).
    Copy,
    /// Not at all.
    Refused(&'static str),
}

/// Why the call was abandoned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    None,
    Refused(&'static str),
    /// A system call by number.
    Syscall(i64),
    /// Code made at run time, at this address.
    MadeCode(usize),
    LongJump,
    /// A jump to what is no code: made natively, it faults there.
    NoCode(usize),
    /// No memory or address space for translated code.
    NoRoom,
    /// The list of mappings cannot be read.
    NoMaps,
}

/// The recompiler. One per process; used by whoever has the turn.
pub(crate) struct State {
    pub(crate) cache: Cache,
    pub(crate) maps: Maps,
    pub(crate) blocks: Blocks,
    pub(crate) exits: MapVec<Exit>,
    /// (cache address, original address) of every translated instruction, in order of translation.
    pub(crate) origins: MapVec<(usize, usize)>,
    pub(crate) leaves: MapVec<(usize, Leaf)>,
    /// Mappings that code was translated from: (lo, hi).
    pub(crate) sources: MapVec<(usize, usize)>,
    /// How many of them are pinned.
    pub(crate) pinned: usize,
    pub(crate) factory: InstructionInfoFactory,
    pub(crate) block_bytes: u32,
    pub(crate) bmi2: bool,
    /// False only to measure what translation alone costs.
    pub(crate) recording: bool,
    /// Some code passes flags through a call or a return.
    pub(crate) flags_cross: bool,
    /// No code seen sets the direction flag.
    pub(crate) direction_known: bool,
    /// A flush was asked for while a piece of code was being translated.
    pub(crate) flush_wanted: bool,
    pub(crate) mode: Mode,
    pub(crate) failure: Failure,
    /// What the program was told it cannot have, and will end the call with.
    pub(crate) denied: Option<&'static str>,
    pub(crate) hook: Option<&'static dyn SyscallHook>,
    pub(crate) writes: *mut WriteSet,
    /// The write set whose blocks the tables hold.
    pub(crate) version: (u64, u64),
    pub(crate) exact_version: u64,
    /// Entries of the block list that the write set has already.
    pub(crate) handed: usize,
    /// Number of the thread that the context was set up for, 0: none.
    pub(crate) thread: u64,
    /// Stacks of threads that called, with their numbers.
    pub(crate) stacks: [(u64, Stack); STACKS_KNOWN],
    pub(crate) heap_end: usize,
    /// glibc's area of restartable sequences: distance from the thread pointer (0: none), and its address.
    pub(crate) restartable_offset: isize,
    pub(crate) restartable: usize,
    pub(crate) counts: Counts,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) blocks: u64,
    pub(crate) instructions: u64,
    pub(crate) dispatches: u64,
    pub(crate) records_by_hand: u64,
    pub(crate) flushes: u64,
    pub(crate) stacks: u64,
}

impl State {
    pub(crate) fn new(bmi2: bool) -> Self {
        Self {
            cache: Cache::new(),
            maps: Maps::new(),
            blocks: Blocks::new(),
            exits: MapVec::new(),
            origins: MapVec::new(),
            leaves: MapVec::new(),
            sources: MapVec::new(),
            pinned: 0,
            factory: InstructionInfoFactory::new(),
            block_bytes: 32,
            bmi2,
            recording: true,
            flags_cross: false,
            direction_known: true,
            flush_wanted: false,
            mode: Mode::OwnStack,
            failure: Failure::None,
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
            counts: Counts::default(),
        }
    }

    /// Forgets all translations. Translated code may be running: the dispatcher sends it to a fresh one, and no
    /// cache address is on the program's stack.
    pub(crate) fn flush(&mut self) {
        self.cache.reset();
        self.blocks.clear();
        self.exits.clear();
        self.origins.clear();
        self.flush_wanted = false;
        self.counts.flushes += 1;
        let miss = gate::mangrove_tracker_branch_miss as *const () as usize;
        for table in TARGETS {
            for slot in 0..TARGET_SLOTS {
                // SAFETY: the two tables of the low region.
                unsafe { std::ptr::with_exposed_provenance_mut::<usize>(table).add(slot).write(miss) };
            }
        }
    }

    /// How a function at `pc` is run natively, if it is.
    pub(crate) fn leaf(&self, pc: usize) -> Option<Leaf> {
        let idx = self.leaves.binary_search_by_key(&pc, |leaf| leaf.0).ok()?;
        Some(self.leaves[idx].1)
    }

    /// As `leaf`, for one that can be called.
    pub(crate) fn native_leaf(&self, pc: usize) -> Option<Leaf> {
        self.leaf(pc).filter(|leaf| !matches!(leaf, Leaf::Refused(_)))
    }

    pub(crate) fn add_leaf(&mut self, pc: usize, leaf: Leaf) {
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

    /// The original address of the instruction at cache address `at`, or of the one that comes next there.
    pub(crate) fn origin(&self, at: usize) -> Option<usize> {
        self.origins
            .iter()
            .filter(|origin| origin.0 <= at)
            .max_by_key(|origin| origin.0)
            .map(|origin| origin.1)
    }

    pub(crate) fn abandon(&mut self, failure: Failure) -> usize {
        self.failure = failure;
        gate::mangrove_tracker_abandon as *const () as usize
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
