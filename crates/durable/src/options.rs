//! How a durable application is opened.

use crate::alloc::mmap::MAPPINGS;
use crate::alloc::split_allocation;
use crate::alloc::write_fence::FenceReport;
use crate::image::aslr::{Addresses, MovingModules};
use crate::image::image::StateOptions;
use crate::{Error, Result};
use mangrove_shadow::{Durability, PoolConfig, Start};
use mangrove_tracker::{BLOCK_BYTES_DEFAULT, Compiler, Explicit, Tracker, WriteSet};

/// How the runtime learns what commands write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrackerChoice {
    /// The recompiler where there is one for this machine, else the compiler's.
    #[default]
    Auto,
    /// Translates what commands reach, while they run; nothing has to be rebuilt. x86-64.
    Recompiler,
    /// The program was built by clang with `-fsanitize-coverage=func,trace-stores` and the tracker's header. Code
    /// that was not built so (libraries) is not seen, and what it writes is not durable.
    Compiler,
    /// The program calls `will_write` before it writes. What it forgets is not durable.
    Explicit,
}

/// How a durable application is opened.
#[derive(Clone, Debug)]
pub struct Options {
    config: PoolConfig,
    new_capacity: Option<u64>,
    start: Start,
    tracker: TrackerChoice,
    block_bytes: usize,
    deduplicates: bool,
    keeps_variables: bool,
    self_contained: bool,
    returns_memory: bool,
    random_addresses: bool,
    addresses: Addresses,
    leaves: Vec<usize>,
    native: Vec<usize>,
    fence: Option<FenceReport>,
    refused: Vec<(usize, &'static str)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: PoolConfig::default(),
            new_capacity: None,
            start: Start::default(),
            tracker: TrackerChoice::Auto,
            block_bytes: BLOCK_BYTES_DEFAULT,
            deduplicates: true,
            keeps_variables: true,
            self_contained: false,
            returns_memory: false,
            random_addresses: false,
            addresses: Addresses::Same,
            leaves: Vec::new(),
            native: Vec::new(),
            fence: None,
            refused: Vec::new(),
        }
    }
}

impl Options {
    /// The state is made when missing; a result is reported once it is durable; the tracker is the best there is.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    mangrove_shadow::pool_config_setters! { config:
        config, create, medium, devdax, durability, nowait_within, busy_wait, keeps_recent, memory_bytes_max,
        capacity("Up to 16 TiB. Default: 256 GiB. Another one than an existing state has is refused."),
        log_bytes, bulk_load,
    }

    /// The capacity of a state that is created, where [`capacity`](Options::capacity) asks for none; an existing one
    /// keeps its own. Default: 256 GiB.
    #[must_use]
    pub fn new_capacity(mut self, bytes: u64) -> Self {
        self.new_capacity = Some(bytes);
        self
    }

    /// How the state comes into memory: read and verified first, or mapped copy on write, which is ready at once
    /// whatever the size of the state. On the file medium a mapped state is compared with its checksums afterwards; on
    /// dax and emulated only by a check of the closed pool. A child of fork must not read a mapped state: a page that
    /// its parent stores to only later shows what the parent makes durable. Default: read.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// How the runtime learns what commands write.
    #[must_use]
    pub fn tracker(mut self, tracker: TrackerChoice) -> Self {
        self.tracker = tracker;
        self
    }

    /// The block in which writes are deduplicated: 16, 32, 64 or 128 bytes. Default: 32, as in the paper.
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Whether a block that several commands of a batch wrote goes to the log once. Default: true. Without it the log
    /// has what each command wrote: for measurements.
    #[must_use]
    pub fn deduplicates(mut self, yes: bool) -> Self {
        self.deduplicates = yes;
        self
    }

    /// Whether variables of the program and of its libraries (.data, .bss) that commands write are part of the
    /// state. Default: true.
    #[must_use]
    pub fn keeps_variables(mut self, yes: bool) -> Self {
        self.keeps_variables = yes;
        self
    }

    /// Promises that the state points only into itself, not to code, constants or variables of any module:
    /// then any program and any build of it may open it, and no variables are kept. A state that was made so is opened
    /// so: without this promise opening it fails with `Foreign`. Default: false.
    #[must_use]
    pub fn self_contained(mut self, yes: bool) -> Self {
        self.self_contained = yes;
        self
    }

    /// Whether closing returns the state's memory to the system at once. Default: false: what the program destroys
    /// afterwards (C++ globals, at exit) still finds it, until the process opens a state again.
    #[must_use]
    pub fn returns_memory(mut self, yes: bool) -> Self {
        self.returns_memory = yes;
        self
    }

    /// Promises that the state depends on no address of code, constants or variables of the program: neither by
    /// pointing there (a commit that does is refused), nor by hashing such an address. Then it can be made and opened
    /// where the program cannot have the same addresses at each start, because a sandbox forbids personality(2).
    /// Default: false: there, such states are refused unless the program is linked at a fixed address.
    #[must_use]
    pub fn random_addresses(mut self, yes: bool) -> Self {
        self.random_addresses = yes;
        self
    }

    /// Where [`settle_addresses`](crate::settle_addresses) found the process's modules. Default: the same in each run.
    #[doc(hidden)]
    #[must_use]
    pub fn addresses(mut self, found: Addresses) -> Self {
        self.addresses = found;
        self
    }

    /// Addresses of functions that run untranslated wherever commands call them, and report what they write
    /// (`will_write`): an allocator, for instance. They neither throw nor jump out.
    #[must_use]
    pub fn leaves(mut self, addresses: &[usize]) -> Self {
        self.leaves.extend_from_slice(addresses);
        self
    }

    /// Addresses of functions that run natively wherever commands call them, as if they were called outside commands:
    /// what they allocate comes from the process's own heap, and what they write is not tracked. They neither throw
    /// nor jump out. Only the recompiler can do that; opening is refused with another tracker.
    #[must_use]
    pub fn native(mut self, addresses: &[usize]) -> Self {
        self.native.extend_from_slice(addresses);
        self
    }

    /// For tests: outside commands the state's memory is read-only, and each write there is reported, once for each
    /// backtrace, and let through. System calls that would write there fail with EFAULT.
    #[must_use]
    pub fn write_fence(mut self, report: FenceReport) -> Self {
        self.fence = Some(report);
        self
    }

    /// Addresses of functions that no command may reach, each with the reason that the refusal states.
    #[must_use]
    pub fn refused(mut self, functions: &[(usize, &'static str)]) -> Self {
        self.refused.extend_from_slice(functions);
        self
    }

    pub(crate) fn state(&self) -> StateOptions {
        let mut shadow =
            mangrove_shadow::Options::new().config(self.config.clone().memory_limited()).start(self.start);
        if let Some(bytes) = self.new_capacity {
            shadow = shadow.new_capacity(bytes);
        }
        StateOptions {
            shadow,
            keeps_variables: self.keeps_variables && !self.self_contained,
            self_contained: self.self_contained,
            returns_memory: self.returns_memory,
            moving: MovingModules::found(self.addresses.clone(), self.random_addresses)
                .filter(|_| !self.self_contained),
            fence: self.fence,
            translates: matches!(self.tracker, TrackerChoice::Auto | TrackerChoice::Recompiler),
        }
    }

    /// True when results wait for durability.
    pub(crate) fn gated(&self) -> bool {
        self.config.durability == Durability::Sync
    }

    pub(crate) fn write_set(&self) -> Result<WriteSet> {
        let mut set = WriteSet::new(self.block_bytes).map_err(|e| Error::Invalid { what: e.to_string() })?;
        set.keep_calls_apart(!self.deduplicates);
        Ok(set)
    }

    /// The tracker, set up with what it must not translate and with the handler of mappings.
    pub(crate) fn make_tracker(&self) -> Result<Box<dyn Tracker>> {
        let tracker = self.choose_tracker()?;
        for address in split_allocation::leaves().iter().map(|leaf| leaf.0).chain(self.leaves.iter().copied())
        {
            tracker.add_leaf(address);
        }
        for &address in &self.native {
            if !tracker.add_marked_leaf(address, split_allocation::inside_mark()) {
                let what = "functions that run natively inside commands need the recompiler".into();
                return Err(Error::Tracker { what });
            }
        }
        for &(address, why) in &self.refused {
            tracker.refuse(address, why);
        }
        tracker.set_syscall_hook(&MAPPINGS);
        Ok(tracker)
    }

    fn choose_tracker(&self) -> Result<Box<dyn Tracker>> {
        match self.tracker {
            TrackerChoice::Explicit => Ok(Box::new(Explicit)),
            TrackerChoice::Auto | TrackerChoice::Recompiler => recompiler(),
            TrackerChoice::Compiler => Ok(Box::new(Compiler)),
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn recompiler() -> Result<Box<dyn Tracker>> {
    let tracker = mangrove_tracker::Recompiler::new().map_err(|e| Error::Tracker { what: e.to_string() })?;
    Ok(Box::new(tracker))
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn recompiler() -> Result<Box<dyn Tracker>> {
    Err(Error::Tracker { what: "there is no recompiler for this machine".into() })
}
