//! What can be asked about a pool: its superblock, its counters, and the reports of opening and of a check.

use crate::config::Durability;
use crate::mapped::domain::PersistenceDomain;
use crate::{Error, Lsn, Result};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a pool lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediumKind {
    /// A DRAM working copy with a redo log on an ordinary file system.
    File,
    /// Persistent memory.
    Dax,
    /// DRAM in place of persistent memory.
    Emulated,
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Dax => "dax",
            Self::Emulated => "emulated",
        })
    }
}

/// The superblock of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// Directory of the pool.
    pub path: PathBuf,
    /// Format version.
    pub version: u32,
    /// Identity.
    pub uuid: [u8; 16],
    /// Tag of the engine that owns the region.
    pub kind: String,
    /// What it lies on.
    pub medium: MediumKind,
    /// The devdax device, if the region lies on one.
    pub devdax: Option<PathBuf>,
    /// Where the region lies in every process; 0 for anywhere.
    pub address: u64,
    /// Address space in bytes.
    pub capacity: u64,
    /// Bytes of the data file in use at the last checkpoint.
    pub image_bytes: u64,
    /// Size of the log in bytes; 0 where there is none.
    pub log_bytes: u64,
    /// What the log grows to at most.
    pub log_bytes_max: u64,
    /// Start of the log at the last checkpoint.
    pub tail: Lsn,
    /// True when the last writer closed it.
    pub clean: bool,
    /// True when the owner has made its object; see [`Pool::set_made`](crate::Pool::set_made).
    pub made: bool,
}

impl PoolInfo {
    /// The UUID in the usual notation.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        let mut text = String::with_capacity(36);
        for (i, byte) in self.uuid.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }
}

/// Counters of an open pool, since it was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolStat {
    /// What it lies on.
    pub medium: MediumKind,
    /// Persistence domain and flush instruction (dax and emulated).
    pub domain: Option<PersistenceDomain>,
    /// When acknowledged writes are durable.
    pub durability: Durability,
    /// True when opened read-only.
    pub read_only: bool,
    /// Address space that the pool was created for, in bytes.
    pub capacity: u64,
    /// Address space that this process could reserve for it, in bytes.
    pub reserved: u64,
    /// Bytes of the region made usable by `grow`.
    pub grown: u64,
    /// Size of the log; 0 where there is none.
    pub log_bytes: u64,
    /// Bytes of the log in use.
    pub log_used: u64,
    /// True when log writes bypass the page cache.
    pub log_direct: bool,
    /// Everything before this position has been flushed.
    pub appended: Lsn,
    /// Everything before this position is durable.
    pub durable: Lsn,
    /// Everything before this position is in the data file.
    pub tail: Lsn,
    /// Calls of `flush` that were logged; 0 in a child of fork.
    pub flushes: u64,
    /// Bytes that callers flushed; 0 in a child of fork.
    pub flushed_bytes: u64,
    /// Log groups written.
    pub groups: u64,
    /// Bytes written to the log, headers and padding included.
    pub log_written: u64,
    /// Bytes written to the data file, the page checksums and the superblock.
    pub image_written: u64,
    /// Durable log writes and file syncs.
    pub syncs: u64,
    /// Time since the last checkpoint ended, or the pool was opened; zero where there are none.
    pub checkpoint_age: Duration,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Times a flush waited for log space.
    pub log_full_waits: u64,
    /// The error that poisoned the pool, if any.
    pub poisoned: Option<String>,
}

impl PoolStat {
    pub(crate) fn new(medium: MediumKind, durability: Durability) -> Self {
        Self {
            medium,
            domain: None,
            durability,
            read_only: false,
            capacity: 0,
            reserved: 0,
            grown: 0,
            log_bytes: 0,
            log_used: 0,
            log_direct: false,
            appended: 0,
            durable: 0,
            tail: 0,
            flushes: 0,
            flushed_bytes: 0,
            groups: 0,
            log_written: 0,
            image_written: 0,
            syncs: 0,
            checkpoint_age: Duration::ZERO,
            checkpoints: 0,
            log_full_waits: 0,
            poisoned: None,
        }
    }
}

/// What opening did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// This call created the pool.
    pub created: bool,
    /// The last writer closed the pool.
    pub was_clean: bool,
    /// Bytes of the data file read and verified.
    pub image_bytes: u64,
    /// Log groups applied.
    pub groups: u64,
    /// Log records applied.
    pub records: u64,
    /// Time that opening took, in nanoseconds.
    pub nanoseconds: u64,
}

/// One damaged place that [`Pool::check`](crate::Pool::check) found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Which file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// What an error says is damaged: bytes that are wrong, or that the medium cannot read.
    ///
    /// # Errors
    /// Any other error, as it was.
    pub(crate) fn of(error: Error) -> Result<Self> {
        match error {
            Error::Corrupt { path, offset, what } => Ok(Self { path, offset, what }),
            Error::Io { path, doing: "read", code: Some(libc::EIO), .. } => {
                Ok(Self { path, offset: 0, what: "the medium cannot read the file".into() })
            }
            other => Err(other),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// Result of [`Pool::check`](crate::Pool::check).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Every damaged place.
    pub damage: Vec<Damage>,
    /// Pages of the data file verified.
    pub pages: u64,
    /// Log groups verified.
    pub groups: u64,
    /// The last writer closed the pool.
    pub clean: bool,
    /// Why parts could not be verified (a pool on dax that was not closed has no current page checksums).
    pub notes: Vec<String>,
}
