//! How to open a map.

use crate::{Error, Map, Result};
use mangrove_pmem::{CreateMode, DomainChoice, MediumChoice, PoolOptions};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Tag of this engine in a pool's superblock.
const KIND: &str = "map";

/// A map on the file medium lives in DRAM: this is more than most machines have, and its directory of
/// segments takes 4 MiB.
const CAPACITY_BYTES_DEFAULT: u64 = 128 << 30;
/// With less a map has no room for its directory.
const CAPACITY_BYTES_MIN: u64 = 1 << 20;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A write returns once it is durable. One device write serves every thread that waits.
    #[default]
    Sync,
    /// A write returns at once and is durable after at most this long. A crash keeps a prefix of the
    /// writes in the order in which they took effect. [`Map::sync`] waits for everything so far.
    Interval(Duration),
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Interval(t) => write!(f, "interval={}", t.as_millis()),
        }
    }
}

impl FromStr for Durability {
    type Err = Error;

    /// `sync` or `interval=MILLISECONDS`.
    fn from_str(s: &str) -> Result<Self> {
        if s == "sync" {
            return Ok(Self::Sync);
        }
        s.strip_prefix("interval=")
            .and_then(|ms| ms.parse::<u64>().ok())
            .filter(|ms| (1..=60_000).contains(ms))
            .map(|ms| Self::Interval(Duration::from_millis(ms)))
            .ok_or_else(|| Error::Unsupported {
                what: format!(
                    "'{s}' is no durability; use sync, or interval=MS with 1 to 60000 milliseconds"
                ),
            })
    }
}

/// Nanoseconds that the emulated medium adds to DRAM's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Added to each flushed cache line.
    pub write_ns: u32,
    /// Added to each line read that misses a model of the last-level cache.
    pub read_ns: u32,
}

/// What a pool lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Medium {
    /// What the pool says; for a new pool dax where the directory can, else file.
    #[default]
    Auto,
    /// Any file system: DRAM working copy, redo log, image behind it.
    File,
    /// Persistent memory mapped with MAP_SYNC, or a devdax character device.
    Dax,
    /// DRAM that pretends to be persistent memory, for figures and tests. Survives the process on
    /// tmpfs, never the machine.
    Emulated(Latency),
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::File => f.write_str("file"),
            Self::Dax => f.write_str("dax"),
            Self::Emulated(l) if *l == Latency::default() => f.write_str("emulated"),
            Self::Emulated(l) => write!(f, "emulated={}/{}", l.write_ns, l.read_ns),
        }
    }
}

impl FromStr for Medium {
    type Err = Error;

    /// `auto`, `file`, `dax`, `emulated` or `emulated=WRITE/READ` (nanoseconds).
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => return Ok(Self::Auto),
            "file" => return Ok(Self::File),
            "dax" => return Ok(Self::Dax),
            "emulated" => return Ok(Self::Emulated(Latency::default())),
            _ => {}
        }
        s.strip_prefix("emulated=")
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(w, r)| Some(Latency { write_ns: w.parse().ok()?, read_ns: r.parse().ok()? }))
            .map(Self::Emulated)
            .ok_or_else(|| Error::Unsupported {
                what: format!(
                    "'{s}' is no medium; use auto, file, dax, emulated, or emulated=W/R in nanoseconds"
                ),
            })
    }
}

/// Which stores survive a power cut on persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Domain {
    /// What the platform says.
    #[default]
    Auto,
    /// Only what was written back from the caches (clwb and fence).
    Adr,
    /// The caches too: write-backs are left out.
    Eadr,
}

impl FromStr for Domain {
    type Err = Error;

    /// `auto`, `adr` or `eadr`.
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self::Auto),
            "adr" => Ok(Self::Adr),
            "eadr" => Ok(Self::Eadr),
            _ => Err(Error::Unsupported {
                what: format!("'{s}' is no persistence domain; use auto, adr or eadr"),
            }),
        }
    }
}

/// How writers of one tree exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locking {
    /// Optimistic lock coupling: readers take no lock, writers lock single nodes.
    #[default]
    Optimistic,
    /// One reader-writer lock a tree (all keys that share their first two bytes), as in the HART paper.
    PerTree,
}

/// Options to open a [`Map`] with. Start from [`Map::options`].
///
/// ```
/// # fn main() -> mangrove::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("mangrove-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// use mangrove::{Durability, Map};
/// use std::time::Duration;
///
/// let map = Map::options()
///     .create(true)
///     .durability(Durability::Interval(Duration::from_millis(10)))
///     .capacity(1 << 30)
///     .open(dir.join("pool"))?;
/// map.put("k", "v")?; // durable within 10 ms
/// map.sync()?; // durable now
/// # drop(map);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MapOptions {
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) medium: Medium,
    pub(crate) durability: Durability,
    pub(crate) capacity: Option<u64>,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) domain: Domain,
    pub(crate) locking: Locking,
    pub(crate) snapshot_bytes_max: Option<u64>,
    pub(crate) recovery_threads: Option<usize>,
}

impl MapOptions {
    /// Options that open an existing pool for reading and writing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the pool when there is none. Default: false.
    #[must_use]
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Creates the pool and fails with [`Error::Exists`] when there is one. Default: false.
    #[must_use]
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Opens without writing a byte: recovery happens in private memory, the lock is shared with
    /// other read-only openers, and writes fail with [`Error::ReadOnly`]. Default: false.
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// What a new pool lies on; for an existing pool, what it is expected to lie on. Default:
    /// [`Medium::Auto`].
    #[must_use]
    pub fn medium(mut self, medium: Medium) -> Self {
        self.medium = medium;
        self
    }

    /// When a write is acknowledged. A property of this opening, not of the pool. Default:
    /// [`Durability::Sync`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The most bytes that a new pool can grow to. Address space, not disk space: the files grow as
    /// data comes. 1 MiB to 64 TiB. Each GiB costs 32 KiB of the image. Default: 128 GiB.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Bytes of a new pool's redo log, preallocated (file medium). It bounds recovery time and the
    /// write burst that is absorbed without waiting for the checkpointer. Default: 64 MiB.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = Some(bytes);
        self
    }

    /// The persistence domain to assume on persistent memory; also the environment variable
    /// `MANGROVE_DOMAIN`. Default: [`Domain::Auto`].
    #[must_use]
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = domain;
        self
    }

    /// How writers exclude each other. Default: [`Locking::Optimistic`].
    #[must_use]
    pub fn locking(mut self, locking: Locking) -> Self {
        self.locking = locking;
        self
    }

    /// DRAM that a snapshot may hold for pre-images before it expires. Default: 1 GiB.
    #[must_use]
    pub fn snapshot_bytes_max(mut self, bytes: u64) -> Self {
        self.snapshot_bytes_max = Some(bytes);
        self
    }

    /// Threads that rebuild the index when the pool is opened. Default: one a CPU.
    #[must_use]
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads);
        self
    }

    /// Opens (or creates) the pool at `path`, a directory, and recovers the map in it.
    ///
    /// Time: reading the pool's image once plus its log, and about 100 ns a record and CPU.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::Busy`], [`Error::Foreign`],
    /// [`Error::Newer`], [`Error::WrongKind`], [`Error::Corrupt`], [`Error::ReadOnly`],
    /// [`Error::NoSpace`], [`Error::Unsupported`] or [`Error::Io`]. The pool is as it was.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Map> {
        Map::open_with(path.as_ref(), self)
    }

    pub(crate) fn pool(&self) -> PoolOptions {
        let mut pool = PoolOptions::new()
            .kind(KIND)
            .create(match (self.create_new, self.create) {
                (true, _) => CreateMode::CreateNew,
                (false, true) => CreateMode::CreateIfMissing,
                (false, false) => CreateMode::OpenOnly,
            })
            .read_only(self.read_only)
            .finish_later(true)
            .medium(match self.medium {
                Medium::Auto => MediumChoice::Auto,
                Medium::File => MediumChoice::File,
                Medium::Dax => MediumChoice::Dax,
                Medium::Emulated(Latency { write_ns, read_ns }) => {
                    MediumChoice::Emulated(mangrove_pmem::Latency { write_ns, read_ns })
                }
            })
            .durability(match self.durability {
                Durability::Sync => mangrove_pmem::Durability::Sync,
                Durability::Interval(t) => mangrove_pmem::Durability::Interval(milliseconds(t)),
            })
            .domain(match self.domain {
                Domain::Auto => DomainChoice::Auto,
                Domain::Adr => DomainChoice::Adr,
                Domain::Eadr => DomainChoice::Eadr,
            });
        pool = pool.capacity(self.capacity.unwrap_or(CAPACITY_BYTES_DEFAULT));
        if let Some(bytes) = self.log_bytes {
            pool = pool.log_bytes(bytes);
        }
        pool
    }

    /// Says what is wrong with the options themselves, before a pool is made with them.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn validate(&self) -> Result<()> {
        match self.capacity {
            Some(bytes) if bytes < CAPACITY_BYTES_MIN => Err(Error::Unsupported {
                what: format!("a map's capacity is at least {CAPACITY_BYTES_MIN} bytes, and {bytes} is less"),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn engine(&self, image_verified: bool) -> mangrove_hart::Options {
        let mut options = mangrove_hart::Options {
            locking: match self.locking {
                Locking::Optimistic => mangrove_hart::Locking::Optimistic,
                Locking::PerTree => mangrove_hart::Locking::PerTree,
            },
            read_only: self.read_only,
            // In interval durability nobody was promised that what he reads survives.
            gate_reads: matches!(self.durability, Durability::Interval(_)).then_some(false),
            verify_values: !image_verified,
            ..mangrove_hart::Options::default()
        };
        if let Some(bytes) = self.snapshot_bytes_max {
            options.snapshot_bytes_max = bytes;
        }
        if let Some(threads) = self.recovery_threads {
            options.recovery_threads = threads;
        }
        options
    }
}

fn milliseconds(t: Duration) -> u32 {
    u32::try_from(t.as_millis()).unwrap_or(u32::MAX).max(1)
}
