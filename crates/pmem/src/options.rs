//! How a pool is opened or created.

use crate::domain::Domain;
use crate::emulated::Latency;
use crate::os_storage::OsStorage;
use crate::storage::Storage;
use crate::{Error, Pool, Result};
use mangrove_sys::FlushInstruction;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Address space of a new file pool unless asked otherwise: 1 TiB.
pub const CAPACITY_BYTES_DEFAULT: u64 = 1 << 40;
/// Least and greatest address space of a pool, in bytes.
pub const CAPACITY_BYTES_MIN: u64 = 64 << 10;
/// See [`CAPACITY_BYTES_MIN`].
pub const CAPACITY_BYTES_MAX: u64 = 1 << 46;
/// Size of the log of a new file pool unless asked otherwise: 64 MiB.
pub const LOG_BYTES_DEFAULT: u64 = 64 << 20;
/// Least size of a log. Sensible logs are 1 MiB and more; the simulator likes small ones.
pub const LOG_BYTES_MIN: u64 = 16 << 10;
/// Greatest size of a log.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// Longest engine kind tag, in bytes.
pub const KIND_BYTES_MAX: usize = 16;

/// What to do when there is, or is not, a pool at the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreateMode {
    /// Fail when there is none.
    #[default]
    OpenOnly,
    /// Create it when there is none.
    CreateIfMissing,
    /// Fail when there is one.
    CreateNew,
}

/// What a new pool shall lie on. An existing pool keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediumChoice {
    /// dax where the path is on a file system that maps with MAP_SYNC, file elsewhere.
    #[default]
    Auto,
    /// A DRAM working copy with a redo log on an ordinary file system.
    File,
    /// Persistent memory mapped with MAP_SYNC, or a devdax device.
    Dax,
    /// A shared mapping with real flushes and injected latencies; survives SIGKILL, not power.
    Emulated(Latency),
}

/// When an acknowledged write is durable (file medium; on dax it always is at once).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Acknowledged is durable.
    #[default]
    Sync,
    /// Made durable in order by a background thread every so many milliseconds: a crash loses at
    /// most about that much, always a suffix.
    Interval(u32),
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Interval(ms) => write!(f, "interval={ms}"),
        }
    }
}

/// Where in the address space a new file pool's region shall lie, in this and every later process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressChoice {
    /// Anywhere, elsewhere each time: the region holds offsets, not pointers.
    #[default]
    Anywhere,
    /// At an address that the pool chooses when it is made and keeps: the region may hold pointers into itself.
    Chosen,
    /// At this address (whole pages).
    At(u64),
}

/// How the image comes into memory when a file pool is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// It is read, and every page compared with its sum, before anybody sees it.
    #[default]
    Read,
    /// It is mapped, copy on write: ready at once, whatever its size. Every page is compared with its sum by a
    /// thread behind (with `background`); one that does not fit poisons the pool, but may have been seen. A page
    /// that cannot be read ends the process with SIGBUS instead of an error.
    CopyOnWrite,
}

/// What the persistence domain holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainChoice {
    /// What `MANGROVE_DOMAIN` (`adr` or `eadr`) says, else what the platform reports, else ADR.
    #[default]
    Auto,
    /// The memory controllers' queues: cache lines must be flushed.
    Adr,
    /// The CPU caches too: flushes are nothing.
    Eadr,
}

/// How a pool is opened or created.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(crate) create: CreateMode,
    pub(crate) read_only: bool,
    pub(crate) medium: MediumChoice,
    pub(crate) devdax: Option<PathBuf>,
    pub(crate) durability: Durability,
    pub(crate) capacity: u64,
    pub(crate) log_bytes: u64,
    pub(crate) domain: DomainChoice,
    pub(crate) instruction: Option<FlushInstruction>,
    pub(crate) kind: String,
    pub(crate) address: AddressChoice,
    pub(crate) start: Start,
    pub(crate) background: bool,
    pub(crate) finish_later: bool,
    pub(crate) storage: Arc<dyn Storage>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            create: CreateMode::OpenOnly,
            read_only: false,
            medium: MediumChoice::Auto,
            devdax: None,
            durability: Durability::Sync,
            capacity: CAPACITY_BYTES_DEFAULT,
            log_bytes: LOG_BYTES_DEFAULT,
            domain: DomainChoice::Auto,
            instruction: None,
            kind: String::new(),
            address: AddressChoice::Anywhere,
            start: Start::Read,
            background: true,
            finish_later: false,
            storage: Arc::new(OsStorage),
        }
    }
}

impl PoolOptions {
    /// Open an existing pool, read and write, durable at each acknowledgement.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What to do when there is, or is not, a pool.
    #[must_use]
    pub fn create(mut self, mode: CreateMode) -> Self {
        self.create = mode;
        self
    }

    /// Open without writing anything anywhere, together with other readers.
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// What a new pool shall lie on. Opening a pool that lies on something else fails, unless `Auto`;
    /// latencies of an emulated pool are those given at each opening.
    #[must_use]
    pub fn medium(mut self, medium: MediumChoice) -> Self {
        self.medium = medium;
        self
    }

    /// The devdax device that holds the region of a new dax pool. It is zeroed, unless its first page is not blank:
    /// then it is refused.
    #[must_use]
    pub fn devdax(mut self, device: impl Into<PathBuf>) -> Self {
        self.devdax = Some(device.into());
        self
    }

    /// When an acknowledged write is durable.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Address space of a new pool in bytes: what its region may ever grow to.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Size of the log of a new file pool in bytes.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// What the persistence domain holds.
    #[must_use]
    pub fn domain(mut self, domain: DomainChoice) -> Self {
        self.domain = domain;
        self
    }

    /// Which instruction flushes a line, instead of what `MANGROVE_FLUSH` (`clwb`, `clflushopt`,
    /// `clflush`) says or the CPU does best.
    #[must_use]
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.instruction = Some(instruction);
        self
    }

    /// The engine that owns the region, up to 16 bytes (`"map"`): recorded in a new pool, compared
    /// in an existing one. Empty: any, when opening.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        kind.clone_into(&mut self.kind);
        self
    }

    /// Where a new pool's region shall lie. An existing pool keeps its address. File medium only: elsewhere
    /// the region is the medium itself, and `mangrove-shadow` puts a working copy at an address of its own.
    #[must_use]
    pub fn address(mut self, address: AddressChoice) -> Self {
        self.address = address;
        self
    }

    /// How the image comes into memory. Read-only openings always read it; on dax and emulated the region is
    /// the image, and `CopyOnWrite` means that a closed pool's pages are not compared with their sums first.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// False: no background thread. A log that is full is then checkpointed by whoever flushes,
    /// and `Interval` syncs only at `sync`. Deterministic; for tests and the simulator.
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.background = yes;
        self
    }

    /// True: opening a file pool (with `background`) returns as soon as the region is there; the rest of the log is
    /// searched, and what the last process may have left in a cache is written again, by a thread meanwhile. Who
    /// opens so calls [`Pool::finish`] before he shows anybody what the region holds.
    #[must_use]
    pub fn finish_later(mut self, yes: bool) -> Self {
        self.finish_later = yes;
        self
    }

    /// Where the files live, instead of the operating system's file systems.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = storage;
        self
    }

    /// What the superblock of the pool at `path` says; see [`Pool::inspect`].
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self, path: impl AsRef<Path>) -> Result<crate::PoolInfo> {
        Pool::inspect_in(&*self.storage, path.as_ref())
    }

    /// Resolves `Auto` for a pool to be made at `path`, by the mount options of its file system: true when it is
    /// then dax or emulated, and its region the medium itself.
    #[must_use]
    pub fn settle_medium(&mut self, path: impl AsRef<Path>) -> bool {
        if self.medium == MediumChoice::Auto {
            let dax = self.devdax.is_some() || crate::open_mapped::is_on_dax_mount(path.as_ref());
            self.medium = if dax { MediumChoice::Dax } else { MediumChoice::File };
        }
        self.medium != MediumChoice::File
    }

    /// A number that nobody can guess or repeat, from the storage.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.storage.random()
    }

    /// Opens or creates the pool in the folder `path`.
    ///
    /// # Errors
    /// See [`Error`]; each says what to do about it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.validate()?;
        Pool::open_with(path.as_ref(), self)
    }

    fn validate(&self) -> Result<()> {
        let unsupported = |what: String| Err(Error::Unsupported { what });
        if self.kind.len() > KIND_BYTES_MAX {
            return unsupported(format!(
                "the kind tag {:?} is longer than {KIND_BYTES_MAX} bytes",
                self.kind
            ));
        }
        if !(CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&self.capacity) {
            return unsupported(format!(
                "a pool's capacity is {CAPACITY_BYTES_MIN} to {CAPACITY_BYTES_MAX} bytes, not {}",
                self.capacity
            ));
        }
        if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&self.log_bytes) {
            return unsupported(format!(
                "a log has {LOG_BYTES_MIN} to {LOG_BYTES_MAX} bytes, not {}",
                self.log_bytes
            ));
        }
        if let AddressChoice::At(address) = self.address
            && (address == 0 || !address.is_multiple_of(4096))
        {
            return unsupported(format!("a region cannot lie at address {address:#x}: it is not a page's"));
        }
        if self.read_only && self.create != CreateMode::OpenOnly {
            return unsupported("a pool cannot be created read-only; open it for writing first".into());
        }
        Ok(())
    }

    pub(crate) fn domain_resolved(&self) -> Result<Domain> {
        Domain::resolve(self.domain, self.instruction)
    }
}
