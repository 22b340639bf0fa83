//! How a shadow is opened or created.

use crate::{Error, Result, Shadow};
use mangrove_pmem::{
    AddressChoice, CreateMode, DomainChoice, Durability, FlushInstruction, MediumChoice, PoolOptions, Start,
    Storage,
};
use std::path::Path;
use std::sync::Arc;

/// Address space of a new shadow unless asked otherwise: 256 GiB.
pub const CAPACITY_BYTES_DEFAULT: u64 = 256 << 30;
/// Greatest address space of a shadow in bytes.
pub const CAPACITY_BYTES_MAX: u64 = 1 << 44;
/// Most logs that a shadow can have.
pub const LOG_COUNT_MAX: usize = 64;

/// How a shadow is opened or created.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) pool: PoolOptions,
    pub(crate) address: AddressChoice,
    pub(crate) capacity: u64,
    pub(crate) log_bytes: u64,
    pub(crate) log_count: usize,
    pub(crate) background: bool,
    pub(crate) start: Start,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool: PoolOptions::new(),
            address: AddressChoice::Chosen,
            capacity: CAPACITY_BYTES_DEFAULT,
            log_bytes: mangrove_pmem::LOG_BYTES_DEFAULT,
            log_count: 1,
            background: true,
            start: Start::Read,
        }
    }
}

impl Options {
    /// Open an existing shadow, durable at each acknowledgement.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, change: impl FnOnce(PoolOptions) -> PoolOptions) -> Self {
        self.pool = change(self.pool);
        self
    }

    /// What to do when there is, or is not, a shadow at the path.
    #[must_use]
    pub fn create(self, mode: CreateMode) -> Self {
        self.with(|p| p.create(mode))
    }

    /// What a new shadow shall lie on; an existing one keeps its medium.
    #[must_use]
    pub fn medium(self, medium: MediumChoice) -> Self {
        self.with(|p| p.medium(medium))
    }

    /// When a waited-for unit is durable (file medium; elsewhere it always is at once).
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        self.with(|p| p.durability(durability))
    }

    /// What the persistence domain holds (dax and emulated).
    #[must_use]
    pub fn domain(self, domain: DomainChoice) -> Self {
        self.with(|p| p.domain(domain))
    }

    /// Which instruction flushes a line (dax and emulated).
    #[must_use]
    pub fn flush_instruction(self, instruction: FlushInstruction) -> Self {
        self.with(|p| p.flush_instruction(instruction))
    }

    /// The engine that owns the bytes, up to 16 bytes: recorded in a new shadow, compared in an existing one.
    #[must_use]
    pub fn kind(self, kind: &str) -> Self {
        self.with(|p| p.kind(kind))
    }

    /// Where a new shadow shall lie in every process. An existing one keeps its address. `Chosen` unless asked
    /// otherwise; `Anywhere` is for owners that hold offsets instead of pointers.
    #[must_use]
    pub fn address(mut self, address: AddressChoice) -> Self {
        self.address = address;
        self
    }

    /// Address space of a new shadow in bytes: what it may ever grow to.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Size of a new shadow's log in bytes (of each log, on dax and emulated).
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// Number of logs of a new shadow, at most [`LOG_COUNT_MAX`]: as many threads commit side by side. On the
    /// file medium all of them share one.
    #[must_use]
    pub fn log_count(mut self, count: usize) -> Self {
        self.log_count = count;
        self
    }

    /// How the image comes into the working copy: read by all processors (on file, and in a closed pool,
    /// compared with its sums), or mapped copy on write, which takes no time and verifies later or, on dax and
    /// emulated, not at all.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self.with(|p| p.start(start))
    }

    /// False: no background thread; whoever finds a log full applies it. Deterministic; for tests.
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.background = yes;
        self
    }

    /// Where the files live, instead of the operating system's file systems.
    #[must_use]
    pub fn storage(self, storage: Arc<dyn Storage>) -> Self {
        self.with(|p| p.storage(storage))
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let unsupported = |what| Err(Error::Unsupported { what });
        if !(1..=LOG_COUNT_MAX).contains(&self.log_count) {
            return unsupported(format!("a shadow has 1 to {LOG_COUNT_MAX} logs, not {}", self.log_count));
        }
        if self.capacity == 0 || self.capacity > CAPACITY_BYTES_MAX {
            return unsupported(format!(
                "a shadow's capacity is 1 to {CAPACITY_BYTES_MAX} bytes, not {}",
                self.capacity
            ));
        }
        if let AddressChoice::At(address) = self.address
            && (address == 0 || !address.is_multiple_of(4096) || address > 1 << 56)
        {
            return unsupported(format!("a shadow cannot lie at address {address:#x}: it is not a page's"));
        }
        Ok(())
    }

    /// Opens or creates the shadow in the folder `path`.
    ///
    /// # Errors
    /// See [`crate::Error`]; `AddressTaken` when this process has something else at the recorded address.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Shadow> {
        Shadow::open(path, self)
    }
}
