//! How a heap is opened or created.

use super::choice::{Choice, Executor};
use crate::commit::Protocol;
use mangrove_shadow::{AddressChoice, FlushInstruction, MediumKind, Order, PoolConfig, Start, Storage};
use std::path::Path;
use std::sync::Arc;

/// The kind of a heap's pool: who owns its bytes.
pub const KIND: &str = "heap";
/// Logs of a new heap, unless there are more CPUs.
const LOG_COUNT_MIN: usize = 4;

/// The least that [`HeapOptions::memory_bytes_max`] may be: 4 MiB.
pub const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// How a heap is opened or created. Start from [`Heap::options`](crate::Heap::options).
#[derive(Clone, Debug)]
pub struct HeapOptions {
    shadow: mangrove_shadow::Options,
    pub(super) executor: Executor,
    pub(super) protocol: Protocol,
    pub(super) config: PoolConfig,
    pub(super) order: Option<Order>,
    pub(super) memory_bytes_max: Option<u64>,
}

impl Default for HeapOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let logs = cpus.clamp(LOG_COUNT_MIN, mangrove_shadow::LOG_COUNT_MAX);
        Self {
            shadow: mangrove_shadow::Options::new().kind(KIND).log_count(logs),
            executor: Executor::default(),
            protocol: Protocol::Automatic,
            config: PoolConfig::default(),
            memory_bytes_max: None,
            order: None,
        }
    }
}

impl HeapOptions {
    /// Options that do what [`Heap::open`](crate::Heap::open) does: create the heap when it is missing, and acknowledge
    /// what is durable.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    mangrove_pool::pool_config_setters! { config:
        config, create, read_only, medium, devdax, durability, nowait_within, busy_wait,
        capacity("Address space of a new heap, up to 16 TiB; nothing is used before it is needed. Default: 256 GiB. That of an existing heap cannot be changed, and another one is refused."),
        log_bytes, domain,
    }

    /// Logs of a new heap on dax or emulated, 1 to 64: so many threads commit at the same time. On the file medium
    /// all threads share one. Default: the number of CPUs, at least 4.
    #[must_use]
    pub fn log_count(mut self, count: usize) -> Self {
        self.shadow = self.shadow.log_count(count);
        self
    }

    /// What a commit waits for, on dax and emulated. [`Order::Gaps`] is for platforms with persistent caches (eADR)
    /// only, and refused elsewhere: a commit there is durable when it is in the log, without flush, fence or wait.
    /// Default: `Gaps` on such a platform, and [`Order::Dense`], which is right everywhere, on all others.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }

    /// How the heap comes into memory: read and verified (default), or mapped copy on write, which takes no time. On
    /// the file medium the pages of a mapped heap are compared with their checksums afterwards, and one that does not
    /// match poisons the heap; on dax and emulated nothing compares them: a damaged page is read as it is, and closing
    /// may give it a new checksum. `mangrove pool check` compares a heap that is closed.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.shadow = self.shadow.start(start);
        self
    }

    /// How much memory the heap shall take, in bytes, at least [`MEMORY_BYTES_MIN`]: so it can be larger than the
    /// machine's memory. The heap is mapped copy on write ([`Start::CopyOnWrite`]); a thread brings the durable copy up
    /// to date when transactions have written more pages, and gives the memory of some back while no transaction runs:
    /// a pause of milliseconds, see [`HeapStat`](crate::HeapStat). Those pages come back from the file when they are
    /// touched. What running transactions write may exceed the limit for that long, and what cannot be given back now
    /// stays for longer (the process has no file descriptor left, say). With a limit only transactions store to the
    /// heap, also to memory that [`Tx::privatise`](crate::Tx::privatise) has made private. A heap opened read-only is
    /// read into memory as a whole; opening refuses it afterwards if it takes more than the limit. Default: no limit.
    #[must_use]
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        // 0 stands for a limit of the address space in the error of what exceeds it.
        self.memory_bytes_max = Some(bytes.max(1));
        self.start(Start::CopyOnWrite)
    }

    /// Where a new heap shall lie in every process. Chosen by default.
    #[must_use]
    pub fn address(mut self, address: AddressChoice) -> Self {
        self.shadow = self.shadow.address(address);
        self
    }

    /// Which instruction flushes a line (dax and emulated).
    #[must_use]
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.shadow = self.shadow.flush_instruction(instruction);
        self
    }

    /// How transactions are isolated; see [`Executor`]. A choice of each opening. A heap opened read-only uses
    /// ownership records, whatever is chosen. Default: ownership records.
    #[must_use]
    pub fn executor(mut self, executor: impl Into<Executor>) -> Self {
        self.executor = executor.into();
        self
    }

    /// How a commit becomes durable; see [`Protocol`]. A choice of each opening: recovery follows the one that wrote.
    /// The protocols with time stamps need [`Executor::OneLock`], [`Executor::Rtm`] or [`Executor::HardwareModel`], on
    /// dax or emulated, and choose the [`Order`] themselves. Default: by executor, medium and persistence domain; with
    /// ownership records and one lock, dense numbers (one fence), with hardware SPHT or, on eADR, SPHT-eADR.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// False: no background thread replays; a thread that finds its log full does. Deterministic; for tests.
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.shadow = self.shadow.background(yes);
        self
    }

    /// Where the files live, instead of the operating system's file systems.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.shadow = self.shadow.storage(storage);
        self
    }

    /// The medium that the heap at `path` lies on, or that a new one there would get.
    pub(super) fn medium_at(&self, path: &Path) -> MediumKind {
        self.shadow.clone().config(self.config.clone()).medium_at(path)
    }

    /// The shadow's options, for a choice.
    pub(super) fn shadow(&self, choice: &Choice) -> mangrove_shadow::Options {
        let shadow = self.shadow.clone().config(self.config.clone());
        match choice.order {
            Some(order) => shadow.order(order).stamped(choice.protocol.is_stamped()),
            None => shadow.order_by_domain(),
        }
    }
}
