//! A pool: one durable region, locked, with its medium.

use crate::create;
use crate::file::bulk::{BulkMedium, open_bulk};
use crate::file::exit_hook::flush_at_exit;
use crate::file::medium::FileMedium;
use crate::file::recover::{Recovered, recover};
use crate::format::page_sums::PAGE_BYTES;
use crate::format::superblock;
use crate::format::superblock::Superblock;
use crate::log::recent::UnusedRecent;
use crate::mapped::medium::MappedRegion;
use crate::mapped::open::{OpenMapped, open_mapped};
use crate::open_files::{FoundPool, Made, OpenFiles, inspect, look};
use crate::options::PoolOptions;
use crate::pool_files::{
    DataFiles, LockedPool, PoolFile, PoolFiles, SuperblockFile, names_in, read_superblock_file,
};
use crate::read_only::ReadOnlyRegion;
use crate::stat::{MediumKind, OpenReport, PoolInfo, PoolStat};
use crate::storage::os::OsStorage;
use crate::storage::traits::{OpenHow, Storage};
use crate::undo::Creation;
use crate::{Error, Region, Result};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What keeps the region durable.
enum Backing {
    File(Arc<FileMedium>),
    /// A new pool, which is filled without a log.
    Bulk(Arc<BulkMedium>),
    Mapped(Arc<MappedRegion>),
    ReadOnly(Arc<ReadOnlyRegion>),
}

/// An open pool.
///
/// Dropping it without [`Pool::close`] is an orderly crash: background threads stop, nothing more is written, and
/// the next opening recovers what was durable. (Of a bulk load that has not ended nothing is: its files are removed.)
pub struct Pool {
    region: Region,
    info: PoolInfo,
    report: OpenReport,
    backing: Backing,
    threads: Vec<JoinHandle<()>>,
    /// What an opening for a salvage found.
    damage: Vec<String>,
    /// This call of `open` created it.
    pub(crate) creation: Option<Creation>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("info", &self.info).field("report", &self.report).finish_non_exhaustive()
    }
}

impl Pool {
    /// Reads what the files hold.
    pub(crate) fn of_files(directory: &Path, files: OpenFiles) -> Result<Self> {
        let OpenFiles { options, file, sb, made, files: PoolFiles { data, log }, recent } = files;
        let mut pool = match log {
            Some(_) if made == Made::ToLoad => Self::open_to_load(directory, &options, sb, file, data)?,
            Some(log) => Self::open_file(directory, &options, sb, file, (data, log), recent)?,
            None => Self::open_mapped(directory, &options, sb, file, data)?,
        };
        pool.report.created = made != Made::Before;
        Ok(pool)
    }

    /// A new pool, which is filled without a log.
    fn open_to_load(
        directory: &Path,
        options: &PoolOptions,
        sb: Superblock,
        file: LockedPool,
        data: DataFiles,
    ) -> Result<Self> {
        let info = sb.info(directory);
        let medium = open_bulk(options, directory, SuperblockFile::new(file, sb), data)?;
        let mut pool = Self {
            region: medium.region(),
            info,
            report: OpenReport::default(),
            backing: Backing::Bulk(Arc::clone(&medium)),
            threads: Vec::new(),
            damage: Vec::new(),
            creation: None,
        };
        if options.background {
            medium.start(&mut pool.threads)?;
        }
        Ok(pool)
    }

    fn open_file(
        directory: &Path,
        options: &PoolOptions,
        sb: Superblock,
        file: LockedPool,
        (data, log): (DataFiles, PoolFile),
        recent: Option<UnusedRecent>,
    ) -> Result<Self> {
        let storage = &*options.storage;
        let recovered = recover(options, directory, &sb, data, log)?;
        if options.config.read_only {
            recovered.check_for_reader(&sb, false)?;
            recovered.sync_for_reader(&sb)?;
            return Ok(Self::read_only(directory, &sb, recovered, Some(file)));
        }
        let (info, report) = (sb.info(directory), recovered.report);
        if options.config.keeps_recent || recovered.takes_recent() {
            recovered.remove_superfluous(storage, &sb)?;
        }
        let left = recovered.deferred(options, directory, &sb)?;
        let mut superblock = SuperblockFile::new(file, sb);
        superblock.save()?;
        let parts = recovered.into_parts(
            Arc::clone(&options.storage),
            directory,
            superblock,
            options.config.keeps_recent,
            recent,
        )?;
        let medium = Arc::new(FileMedium::new(parts, options));
        // From here on it is a pool, so that its drop ends the threads that have been started.
        let mut pool = Self {
            region: medium.region(),
            info,
            report,
            backing: Backing::File(Arc::clone(&medium)),
            threads: Vec::new(),
            damage: Vec::new(),
            creation: None,
        };
        if options.finish_later && options.background {
            medium.finish_later(left, &mut pool.threads)?;
        } else {
            medium.finish(&left)?;
        }
        medium.start(&mut pool.threads)?;
        if options.background {
            flush_at_exit(&medium);
        }
        Ok(pool)
    }

    /// A file pool that has been read; `locked` until it is closed, or not at all.
    pub(crate) fn read_only(
        directory: &Path,
        sb: &Superblock,
        recovered: Recovered,
        locked: Option<LockedPool>,
    ) -> Self {
        let (info, report) = (sb.info(directory), recovered.report);
        let (memory, grown, damage) = recovered.into_reader();
        let usable = memory.len() as u64;
        let medium = ReadOnlyRegion::new(memory, MediumKind::File, usable, grown);
        if let Some(locked) = locked {
            medium.keep(locked);
        }
        Self {
            region: medium.region(),
            info,
            report,
            backing: Backing::ReadOnly(medium),
            threads: Vec::new(),
            damage,
            creation: None,
        }
    }

    fn open_mapped(
        directory: &Path,
        options: &PoolOptions,
        sb: Superblock,
        file: LockedPool,
        data: DataFiles,
    ) -> Result<Self> {
        let info = sb.info(directory);
        let (opened, report) = open_mapped(options, sb, file, data)?;
        let (region, backing) = match opened {
            OpenMapped::ReadWrite(medium) => (medium.region(), Backing::Mapped(medium)),
            OpenMapped::ReadOnly(medium) => (medium.region(), Backing::ReadOnly(medium)),
        };
        Ok(Self { region, info, report, backing, threads: Vec::new(), damage: Vec::new(), creation: None })
    }

    /// Waits for the part of opening that [`PoolOptions::finish_later`] has left to a thread. Until this returns,
    /// the caller must not show what the region holds.
    ///
    /// # Errors
    /// Those of opening: `Corrupt`, `Io`.
    pub fn finish(&self) -> Result<()> {
        match &self.backing {
            Backing::File(medium) => medium.wait_finished(),
            Backing::Bulk(_) | Backing::Mapped(_) | Backing::ReadOnly(_) => Ok(()),
        }
    }

    /// Ends the pool as dropping it does, and removes it if this call of `open` created it: for an owner that could
    /// not make its object, or may not use it. The caller has dropped what uses the region. A pool on mapped media that
    /// had been closed is closed again, since only its opening has said "not clean". Does nothing in a child of fork.
    pub fn undo_creation(mut self) {
        if !self.is_ours() {
            return;
        }
        let Some(creation) = self.creation.take() else {
            let OpenReport { was_clean, created, .. } = self.report;
            if was_clean && !created && matches!(self.backing, Backing::Mapped(_)) {
                // The caller reports the error that made it give up.
                let _ = self.close();
            }
            return;
        };
        if self.info.devdax.is_some() {
            // A device whose first page is not blank is not taken for a new pool.
            self.region.write(0, &[0; PAGE_BYTES]);
            self.region.flush(0, PAGE_BYTES);
            self.region.fence();
        }
        drop(self);
        creation.undo();
    }

    /// The owner of the region calls this when what it made in the region is durable, at each opening for writing.
    /// From then on [`PoolInfo::made`] says that a blank region is damaged. It costs one write of the superblock, the
    /// first time.
    ///
    /// # Errors
    /// `Io`, which poisons the pool; `Poisoned`, `Closed`.
    pub fn set_made(&self) -> Result<()> {
        match &self.backing {
            Backing::File(medium) => medium.set_made(),
            Backing::Bulk(medium) => medium.set_made(),
            Backing::Mapped(medium) => medium.set_made(),
            Backing::ReadOnly(_) => Ok(()),
        }
    }

    /// By what a pool that is open for writing on the file medium reaches its files: to this storage the pool's path
    /// means its directory, whatever has that path by now. None for any other pool.
    #[must_use]
    pub fn storage(&self) -> Option<Arc<dyn Storage>> {
        match &self.backing {
            Backing::File(medium) => Some(Arc::clone(&medium.storage)),
            Backing::Bulk(_) | Backing::Mapped(_) | Backing::ReadOnly(_) => None,
        }
    }

    /// The file that the region of a dax or emulated pool is mapped from, to map it once more; none for a device.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn image_file(&self) -> Result<Option<std::os::fd::OwnedFd>> {
        match &self.backing {
            Backing::Mapped(medium) => medium.image_file(),
            Backing::File(_) | Backing::Bulk(_) | Backing::ReadOnly(_) => Ok(None),
        }
    }

    /// The durable region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The superblock's content when the pool was opened.
    #[must_use]
    pub fn info(&self) -> &PoolInfo {
        &self.info
    }

    /// What opening did.
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        &self.report
    }

    /// The damage in the files that [`PoolOptions::salvage`] has passed over.
    #[must_use]
    pub fn damage(&self) -> &[String] {
        &self.damage
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

    /// True for a pool that is filled without a log, until a checkpoint has ended the load.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        matches!(&self.backing, Backing::Bulk(medium) if !medium.is_finished())
    }

    /// Ends a load, if this pool is filled without a log: when this returns, no thread of the pool reads the region any
    /// more. Without a checkpoint before it nothing is left of the load. In a child of fork it does nothing.
    pub fn end_load(&mut self) {
        if matches!(self.backing, Backing::Bulk(_)) && self.is_ours() {
            self.stop();
        }
    }

    /// True when opened read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.region.medium().capabilities().read_only
    }

    /// Counters.
    #[must_use]
    pub fn stat(&self) -> PoolStat {
        let mut stat = match &self.backing {
            Backing::File(medium) => medium.stat(),
            Backing::Bulk(medium) => medium.stat(),
            Backing::Mapped(medium) => medium.stat(),
            Backing::ReadOnly(medium) => medium.stat(),
        };
        stat.capacity = self.info.capacity;
        stat
    }

    /// Applies the log to the data file and frees the log. In a pool that is filled without a log it ends the load.
    ///
    /// # Errors
    /// The first I/O error, which poisons the pool.
    pub fn checkpoint(&self) -> Result<()> {
        self.region.medium().checkpoint()
    }

    /// Makes everything durable, marks the pool clean and releases the lock.
    ///
    /// The caller must have stopped using the region: clones of it that live on keep the memory mapped, but their
    /// later flushes fail.
    ///
    /// # Errors
    /// The first I/O error: the pool is then as after a crash, and opens again by recovery.
    pub fn close(self) -> Result<()> {
        self.close_leaving(None)
    }

    /// True when closing the pool shall leave an index: the pool is open for writing on the file medium, `bytes_min`
    /// bytes or more can be found through it, and the one that was left before counts no more.
    #[must_use]
    pub fn wants_index(&self, bytes_min: u64) -> bool {
        matches!(&self.backing, Backing::File(medium) if medium.wants_index(bytes_min))
    }

    /// As [`Pool::close`], and leaves `index`, by which the pool's owner finds what the region holds before it is read
    /// ([`crate::Opening::closed_pool`]). Whether it could be left is no part of the result.
    ///
    /// # Errors
    /// As `close`.
    pub fn close_leaving(mut self, index: Option<&[u8]>) -> Result<()> {
        let result = self.settle(index);
        if self.is_ours() {
            drop(self);
        } else {
            // Its locks may be held by threads that a child of fork does not have.
            std::mem::forget(self);
        }
        result
    }

    /// False in a child of the process that opened the pool for writing.
    fn is_ours(&self) -> bool {
        match &self.backing {
            Backing::File(medium) => medium.is_ours(),
            Backing::Bulk(medium) => medium.is_ours(),
            Backing::Mapped(medium) => medium.is_ours(),
            Backing::ReadOnly(_) => true,
        }
    }

    fn settle(&mut self, index: Option<&[u8]>) -> Result<()> {
        let medium = match &self.backing {
            Backing::File(medium) => Arc::clone(medium),
            Backing::Bulk(medium) => return medium.finish(),
            Backing::Mapped(medium) => return medium.settle(),
            Backing::ReadOnly(_) => return Ok(()),
        };
        medium.refuse_child()?;
        if let Some(e) = medium.first_error() {
            return Err(Error::Poisoned { first: e.to_string() });
        }
        medium.checkpoint_now()?;
        self.stop();
        if medium.is_settled() {
            medium.mark_clean()?;
            medium.leave_index(index);
        }
        Ok(())
    }

    /// Ends the threads and every write under way. A second call does nothing.
    fn stop(&mut self) {
        match &self.backing {
            Backing::File(medium) => medium.stop_threads(),
            Backing::Bulk(medium) => medium.stop_threads(),
            Backing::Mapped(_) | Backing::ReadOnly(_) => return,
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has poisoned nothing; the pool is being closed or dropped anyway.
            let _ = thread.join();
        }
        match &self.backing {
            Backing::File(medium) => medium.shut_down(),
            Backing::Bulk(medium) => medium.shut_down(),
            Backing::Mapped(_) | Backing::ReadOnly(_) => {}
        }
    }

    /// The superblock of the pool at `path`. Neither locks nor changes the pool.
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Newer`, `Corrupt`, `Io`.
    pub fn inspect(path: impl AsRef<Path>) -> Result<PoolInfo> {
        Self::inspect_in(&OsStorage, path.as_ref())
    }

    /// True when the creation of a pool at `path` was interrupted: the directory holds the beginning of a pool, in
    /// which nothing was ever stored, and nothing else.
    #[must_use]
    pub fn is_unfinished(path: impl AsRef<Path>) -> bool {
        let (storage, directory) = (&OsStorage, path.as_ref());
        let is_pools = |name: &String| name == "pool" || create::PARTS.contains(&name.as_str());
        let unfinished = || -> Result<bool> {
            let FoundPool::Pool = look(storage, directory)? else { return Ok(false) };
            let names = names_in(storage, directory)?;
            let file = PoolFile::open(storage, directory.join("pool"), OpenHow::Read, "open")?;
            let bytes = read_superblock_file(&file)?;
            Ok(names.iter().all(is_pools)
                && superblock::decode(file.path(), &bytes).is_err()
                && create::is_unfinished(storage, directory, &bytes)?)
        };
        unfinished().unwrap_or(false)
    }

    /// True when a process has the pool at `path` open for writing. A pool whose file `pool` cannot be opened counts as
    /// free: opening the pool reports why. Other openers wait for this call.
    #[must_use]
    pub fn is_busy(path: impl AsRef<Path>) -> bool {
        let storage = Arc::new(OsStorage) as Arc<dyn Storage>;
        matches!(LockedPool::take(&storage, path.as_ref(), OpenHow::Read, 1), Ok(None))
    }

    /// As [`Pool::inspect`], on another storage.
    ///
    /// # Errors
    /// As `inspect`.
    pub fn inspect_in(storage: &dyn Storage, directory: &Path) -> Result<PoolInfo> {
        inspect(storage, directory)
    }
}

impl PoolOptions {
    /// The superblock of the pool at `path`; see [`Pool::inspect`].
    ///
    /// # Errors
    /// As `inspect`.
    pub fn inspect(&self, path: impl AsRef<Path>) -> Result<PoolInfo> {
        Pool::inspect_in(&*self.storage, path.as_ref())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The threads are the parent's, and so are the locks that they hold.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.stop();
        match &self.backing {
            Backing::File(medium) => medium.release(),
            Backing::Bulk(medium) => {
                medium.release();
                // What was loaded without an end is nothing.
                if let (false, Some(creation)) = (medium.is_finished(), self.creation.take()) {
                    creation.undo();
                }
            }
            Backing::Mapped(medium) => medium.shut_down(),
            Backing::ReadOnly(medium) => medium.release(),
        }
    }
}
