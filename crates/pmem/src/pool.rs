//! A pool: one durable region, locked, with its medium.

use crate::options::PoolOptions;
use crate::stat::{CheckReport, OpenReport, PoolInfo, PoolStat};
use crate::{Error, Region, Result};
use std::path::Path;

/// An open pool.
///
/// Dropping it without [`Pool::close`] is a tidy crash: background threads stop, nothing more is
/// written, the next opening recovers what was durable.
#[derive(Debug)]
pub struct Pool {
    region: Region,
    info: PoolInfo,
    report: OpenReport,
}

impl Pool {
    pub(crate) fn open_with(_path: &Path, options: &PoolOptions) -> Result<Self> {
        options.domain_resolved()?;
        Err(Error::Unsupported { what: "pools are not there yet".into() })
    }

    /// The durable region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// What the superblock says.
    #[must_use]
    pub fn info(&self) -> &PoolInfo {
        &self.info
    }

    /// What opening had to do.
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        &self.report
    }

    /// True when the last writer closed the pool.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.report.was_clean
    }

    /// True when this call of `open` made the pool: its region is all zero.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.report.created
    }

    /// True when opened read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.region.medium().read_only()
    }

    /// Counters.
    #[must_use]
    pub fn stat(&self) -> PoolStat {
        unreachable!("no pool can be open yet")
    }

    /// Brings the image up to date and frees the log.
    ///
    /// # Errors
    /// The first I/O error, which latches.
    pub fn checkpoint(&self) -> Result<()> {
        self.region.medium().checkpoint()
    }

    /// Makes everything durable, marks the pool clean and gives up the lock.
    ///
    /// The caller must have stopped using the region: clones of it that live on keep the memory
    /// mapped, but what they flush afterwards fails.
    ///
    /// # Errors
    /// The first I/O error: the pool is then as after a crash, and opens again by recovery.
    pub fn close(self) -> Result<()> {
        Ok(())
    }

    /// What the superblock of the pool at `path` says, without locking or changing it.
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Newer`, `Corrupt`, `Io`.
    pub fn inspect(path: impl AsRef<Path>) -> Result<PoolInfo> {
        Err(Error::NotFound { path: path.as_ref().to_owned() })
    }

    /// Reads everything in the pool at `path` and lists every damaged place. Takes a shared lock.
    ///
    /// # Errors
    /// When not even the superblock can be read, or a writer holds the pool.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
        Err(Error::NotFound { path: path.as_ref().to_owned() })
    }
}
