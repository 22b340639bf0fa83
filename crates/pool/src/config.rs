//! The choices about a pool that every door offers: creation, medium, durability, sizes. All doors use the same
//! names, and the same spelling as commands and environment variables.

use crate::mapped::latency::{FlushCost, Latency};
use crate::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// See [`PoolConfig::nowait_within`].
const NOWAIT_WITHIN_DEFAULT: Duration = Duration::from_millis(100);

/// What to do when there is, or is not, a pool at the path. A read-only opening never creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// Fail when there is none.
    Never,
    /// Create it when there is none.
    #[default]
    IfMissing,
    /// Fail when there is one.
    New,
}

/// What a new pool shall lie on. An existing pool keeps its medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Medium {
    /// The medium of an existing pool; for a new one dax where the directory's file system maps with MAP_SYNC, else
    /// file.
    #[default]
    Auto,
    /// Any file system: a working copy in DRAM, a redo log, and the data file that the log is applied to.
    File,
    /// Persistent memory mapped with MAP_SYNC, or a devdax character device.
    Dax,
    /// DRAM in place of persistent memory, with real flushes and injected latencies, for figures and tests.
    /// Survives the process on tmpfs, never the machine.
    Emulated(Latency),
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::File => f.write_str("file"),
            Self::Dax => f.write_str("dax"),
            Self::Emulated(l) if *l == Latency::default() => f.write_str("emulated"),
            Self::Emulated(l) => {
                write!(f, "emulated={}/{}", l.write_ns, l.read_ns)?;
                match l.flushes {
                    FlushCost::Waited => Ok(()),
                    FlushCost::Queued { line_ns } => write!(f, "/{line_ns}"),
                }
            }
        }
    }
}

impl FromStr for Medium {
    type Err = Error;

    /// `auto`, `file`, `dax`, `emulated`, `emulated=WRITE/READ` (nanoseconds), or `emulated=WRITE/READ/LINE`, with
    /// which flushes queue ([`FlushCost::Queued`]).
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => return Ok(Self::Auto),
            "file" => return Ok(Self::File),
            "dax" => return Ok(Self::Dax),
            "emulated" => return Ok(Self::Emulated(Latency::default())),
            _ => {}
        }
        let latency = |numbers: &str| {
            let numbers =
                numbers.split('/').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()?;
            let (write_ns, read_ns, flushes) = match numbers[..] {
                [write_ns, read_ns] => (write_ns, read_ns, FlushCost::Waited),
                [write_ns, read_ns, line_ns] => (write_ns, read_ns, FlushCost::Queued { line_ns }),
                _ => return None,
            };
            Some(Latency { write_ns, read_ns, flushes })
        };
        s.strip_prefix("emulated=").and_then(latency).map(Self::Emulated).ok_or_else(|| Error::Unsupported {
            what: format!(
                "'{s}' is no medium; use auto, file, dax, emulated, emulated=W/R or emulated=W/R/L (nanoseconds)"
            ),
        })
    }
}

/// The least interval of durability.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// When a write is acknowledged (file medium; on dax an acknowledged write is always durable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A write returns once it is durable. One device write serves every thread that waits.
    #[default]
    Sync,
    /// A write returns at once. This long after it, 1 ms or more, a thread of the pool writes it; it is durable when
    /// the device has it. That is later where the system runs the thread late: with more busy threads than processors,
    /// writes were 50 to 80 ms old with an interval of 1 ms. A crash keeps a prefix of the writes in the order in which
    /// they took effect; waiting for everything so far is a call of its own.
    Interval(Duration),
}

impl Durability {
    /// An interval of so many milliseconds, at least 1: opening refuses 0.
    #[must_use]
    pub const fn interval_ms(milliseconds: u32) -> Self {
        Self::Interval(Duration::from_millis(milliseconds as u64))
    }

    /// Refuses an interval of zero: the caller may mean that each write waits.
    pub(crate) fn validate(self) -> Result<()> {
        match self {
            Self::Interval(t) if t < INTERVAL_MIN => Err(Error::Unsupported {
                what: format!(
                    "an interval of durability is 1 millisecond or more, not {t:?}; to wait for each write, use sync"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The interval in whole milliseconds, at least 1; 0 for [`Durability::Sync`].
    #[must_use]
    pub fn milliseconds(self) -> u32 {
        match self {
            Self::Sync => 0,
            Self::Interval(t) => u32::try_from(t.as_millis()).unwrap_or(u32::MAX).max(1),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Interval(_) => write!(f, "interval={}", self.milliseconds()),
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
            .and_then(|ms| ms.parse::<u32>().ok())
            .filter(|ms| (1..=60_000).contains(ms))
            .map(Self::interval_ms)
            .ok_or_else(|| Error::Unsupported {
                what: format!(
                    "'{s}' is no durability; use sync, or interval=MS with 1 to 60000 milliseconds"
                ),
            })
    }
}

/// Which stores survive a power cut on persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Domain {
    /// The domain that `MANGROVE_DOMAIN` (`adr` or `eadr`) names, else the one that the platform reports, else ADR.
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

/// The choices about a pool that every door offers. [`pool_config_setters`](crate::pool_config_setters) makes the
/// setters of each door's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// What to do when there is, or is not, a pool at the path.
    pub create: Create,
    /// Open without writing anything anywhere; on the file medium also beside a writer.
    pub read_only: bool,
    /// What a new pool shall lie on.
    pub medium: Medium,
    /// The devdax device that holds the region of a new pool on dax.
    pub devdax: Option<PathBuf>,
    /// When a write is acknowledged: a property of the opening, not of the pool.
    pub durability: Durability,
    /// With [`Durability::Sync`] on the medium file, a write that no thread waits for is durable after at most about
    /// this long; zero: when something else makes it so.
    pub nowait_within: Duration,
    /// How long an opening waits for another one that has the pool, before it fails.
    pub busy_wait: Duration,
    /// On the medium file, a write that returned before it is durable survives the death of the process.
    pub keeps_recent: bool,
    /// A pool that this opening creates on the medium file is filled without a log: see
    /// [`PoolOptions::bulk_load`](crate::PoolOptions::bulk_load).
    pub bulk_load: bool,
    /// On the medium file, the most memory that this process may have for the region to be loaded or to grow. `None`:
    /// as much as it gets.
    pub memory_bytes_max: Option<u64>,
    /// Address space of a new pool in bytes: what its region may ever grow to. `None`: the default of the door.
    pub capacity: Option<u64>,
    /// What the redo log of a pool on the file medium may grow to, in bytes. `None`: as the pool was made or, for a new
    /// one, the default of the door.
    pub log_bytes: Option<u64>,
    /// Bytes that the log of a new pool begins with, for tests.
    #[doc(hidden)]
    pub log_bytes_first: Option<u64>,
    /// The persistence domain to assume on persistent memory.
    pub domain: Domain,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            create: Create::IfMissing,
            read_only: false,
            medium: Medium::Auto,
            devdax: None,
            durability: Durability::Sync,
            nowait_within: NOWAIT_WITHIN_DEFAULT,
            busy_wait: Duration::ZERO,
            keeps_recent: false,
            bulk_load: false,
            memory_bytes_max: None,
            capacity: None,
            log_bytes: None,
            log_bytes_first: None,
            domain: Domain::Auto,
        }
    }
}

impl PoolConfig {
    /// With the default limit on memory, unless another one was chosen.
    #[must_use]
    pub fn memory_limited(mut self) -> Self {
        self.memory_bytes_max.get_or_insert_with(|| mangrove_sys::memory_allowed() / 10 * 9);
        self
    }

    /// What an opening does about creation: a read-only one never creates.
    #[must_use]
    pub fn creates(&self) -> Create {
        if self.read_only { Create::Never } else { self.create }
    }
}

/// Makes the named setters of a builder that holds a [`PoolConfig`] in the field given first.
///
/// `capacity` takes the text of the door's range and default.
#[macro_export]
#[doc(hidden)]
macro_rules! pool_config_setters {
    ($field:ident:) => {};
    ($field:ident: config, $($rest:tt)*) => {
        /// Replaces everything that the setters below choose.
        #[must_use]
        pub fn config(mut self, config: $crate::PoolConfig) -> Self {
            self.$field = config;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: create, $($rest:tt)*) => {
        /// What to do when there is, or is not, a pool at the path. Default: create it when it is missing. A
        /// read-only opening never creates.
        #[must_use]
        pub fn create(mut self, create: $crate::Create) -> Self {
            self.$field.create = create;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: read_only, $($rest:tt)*) => {
        /// Opens without writing a byte: recovery happens in private memory, and writes fail with
        /// `Error::ReadOnly`. On the file medium another process may have the pool open for writing: what is read
        /// is one durable instant, with all that was durable before this opening. Default: false.
        #[must_use]
        pub fn read_only(mut self, yes: bool) -> Self {
            self.$field.read_only = yes;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: medium, $($rest:tt)*) => {
        /// What a new pool lies on; for an existing pool, what it is expected to lie on (the latencies of an
        /// emulated one are those given at each opening). Default: `Medium::Auto`.
        #[must_use]
        pub fn medium(mut self, medium: $crate::Medium) -> Self {
            self.$field.medium = medium;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: devdax, $($rest:tt)*) => {
        /// The devdax device (`/dev/dax0.0`) that holds the region of a new pool on dax; directory and other files of
        /// the pool may lie on any file system. Creation zeroes the device, and fails if its first page is not blank.
        /// An existing pool keeps its device, and another one is refused.
        #[must_use]
        pub fn devdax(mut self, device: impl Into<std::path::PathBuf>) -> Self {
            self.$field.devdax = Some(device.into());
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: durability, $($rest:tt)*) => {
        /// When a write is acknowledged. A property of this opening, not of the pool. Default:
        /// `Durability::Sync`.
        #[must_use]
        pub fn durability(mut self, durability: $crate::Durability) -> Self {
            self.$field.durability = durability;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: nowait_within, $($rest:tt)*) => {
        /// How soon a write that no thread waits for becomes durable by itself, with `Durability::Sync` on the medium
        /// file: after at most about this long. Zero: never; then a wait for it or for a later write makes it so,
        /// closing, or the end of the process by `exit` or a return from `main`. Default: 100 ms.
        #[must_use]
        pub fn nowait_within(mut self, limit: std::time::Duration) -> Self {
            self.$field.nowait_within = limit;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: busy_wait, $($rest:tt)*) => {
        /// How long opening waits until another opener, of this process or another one, has closed the pool; then it
        /// fails with `Error::Busy`. Default: not at all.
        #[must_use]
        pub fn busy_wait(mut self, limit: std::time::Duration) -> Self {
            self.$field.busy_wait = limit;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: keeps_recent, $($rest:tt)*) => {
        /// Whether a write that returned before it is durable (with `Durability::Interval`, or because its caller
        /// does not wait) survives the death of the process, however it ends, on the medium file: the call writes it
        /// to a file, without a sync. It is a ring of 128 KiB, which becomes up to 8 MiB where that is too short; a
        /// call that finds no room makes its write durable. After a power cut a prefix is there, as without it.
        /// Default: false.
        #[must_use]
        pub fn keeps_recent(mut self, yes: bool) -> Self {
            self.$field.keeps_recent = yes;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: memory_bytes_max, $($rest:tt)*) => {
        /// On the medium file, the most memory that this process may have (what it uses elsewhere counts too).
        /// Opening a pool that needs more, and a write that would make it grow beyond, fail with `Error::MemoryLimit`
        /// before the system would end the process. What a map's snapshots keep is no growth: it may come to a quarter
        /// of this, and lie beyond it. Default: nine tenths of what the machine and the process's control groups have,
        /// swap space included.
        #[must_use]
        pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
            // 0 stands for a limit of the address space in the error of what exceeds it.
            self.$field.memory_bytes_max = Some(bytes.max(1));
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: capacity($words:literal), $($rest:tt)*) => {
        /// The most bytes that a new pool can grow to: address space, not disk space; the files grow as data
        /// comes.
        #[doc = $words]
        #[must_use]
        pub fn capacity(mut self, bytes: u64) -> Self {
            self.$field.capacity = Some(bytes);
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: log_bytes, $($rest:tt)*) => {
        /// Bytes that the redo log may grow to, 16 KiB to 1 GiB. It begins small and grows with use: freely up to
        /// 64 MiB, beyond that while it is shorter than the data. It bounds recovery time and the burst of writes that
        /// is absorbed without waiting for the checkpointer. Kept by the pool; where the engine keeps logs of its own
        /// (persistent memory), the size of each. Default: 1 GiB, of which a pool that is opened copy on write uses
        /// 256 MiB; and 64 MiB for logs of an engine.
        #[must_use]
        pub fn log_bytes(mut self, bytes: u64) -> Self {
            self.$field.log_bytes = Some(bytes);
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: bulk_load, $($rest:tt)*) => {
        /// Fills a pool that this opening creates on the medium file without a redo log: what is written goes into the
        /// data file once, in the background, page by page. Until a checkpoint or closing has returned, nothing is
        /// durable, whatever the durability says, and there is no pool: a crash, a drop without closing or an error
        /// leaves nothing, or a directory that an opening which may create makes anew and any other refuses. The
        /// checkpoint ends the load; what is written afterwards is refused. Has no effect on a pool that is there, and
        /// on persistent memory. Default: false.
        #[must_use]
        pub fn bulk_load(mut self, yes: bool) -> Self {
            self.$field.bulk_load = yes;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
    ($field:ident: domain, $($rest:tt)*) => {
        /// The persistence domain to assume on persistent memory; also the environment variable
        /// `MANGROVE_DOMAIN`. Default: `Domain::Auto`.
        #[must_use]
        pub fn domain(mut self, domain: $crate::Domain) -> Self {
            self.$field.domain = domain;
            self
        }
        $crate::pool_config_setters!($field: $($rest)*);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_written_as_they_are_read() {
        let queued = Latency { write_ns: 200, read_ns: 0, flushes: FlushCost::Queued { line_ns: 32 } };
        let free = Latency { flushes: FlushCost::Queued { line_ns: 0 }, ..Latency::default() };
        let waited = Latency { write_ns: 200, read_ns: 7, flushes: FlushCost::Waited };
        for (text, medium) in [
            ("auto", Medium::Auto),
            ("file", Medium::File),
            ("dax", Medium::Dax),
            ("emulated", Medium::Emulated(Latency::default())),
            ("emulated=200/7", Medium::Emulated(waited)),
            ("emulated=200/0/32", Medium::Emulated(queued)),
            ("emulated=0/0/0", Medium::Emulated(free)),
        ] {
            assert_eq!((text.parse::<Medium>().unwrap(), medium.to_string().as_str()), (medium, text));
        }
        for bad in
            ["", "paper", "emulated=", "emulated=1", "emulated=1/", "emulated=1/2/3/4", "emulated=1/2/-3"]
        {
            let text = bad.parse::<Medium>().unwrap_err().to_string();
            assert!(text.contains("no medium") && text.contains("emulated=W/R/L"), "{text}");
        }
    }
}
