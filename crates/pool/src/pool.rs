//! A pool: one durable region, locked, with its medium.

use crate::config::Create;
use crate::create;
use crate::file::bulk::{BulkMedium, open_bulk};
use crate::file::exit_hook::flush_at_exit;
use crate::file::medium::FileMedium;
use crate::file::recover::{Recovered, recover};
use crate::format::page_sums::PAGE_BYTES;
use crate::format::superblock;
use crate::format::superblock::Superblock;
use crate::look::look as looks;
use crate::look::look::Look;
use crate::mapped::medium::Mapped;
use crate::mapped::open::{OpenMapped, open_mapped};
use crate::options::PoolOptions;
use crate::pool_files::{
    DataFiles, LockedPool, PoolFile, PoolFiles, SuperblockFile, hold, kind_of, lock_tries, names_in, opening,
    read_superblock_file,
};
use crate::read_only::ReadOnly;
use crate::stat::{MediumKind, OpenReport, PoolInfo, PoolStat};
use crate::storage::os::OsStorage;
use crate::storage::traits::{OpenHow, PathKind, Storage};
use crate::undo::{Creation, remove_directory};
use crate::{Error, Region, Result};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What keeps the region durable.
enum Backing {
    File(Arc<FileMedium>),
    /// A new pool, which is filled without a log.
    Bulk(Arc<BulkMedium>),
    Mapped(Arc<Mapped>),
    ReadOnly(Arc<ReadOnly>),
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
    creation: Option<Creation>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("info", &self.info).field("report", &self.report).finish_non_exhaustive()
    }
}

/// Whether an opening has made the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// It was there.
    Before,
    Now,
    /// All but its superblock, which is written when the pool has been filled.
    ToLoad,
}

/// What there is at the path of a pool.
enum Found {
    /// Neither directory nor file.
    Nothing,
    /// A directory without the file `pool`.
    Directory,
    /// A directory with the file `pool`.
    Pool,
}

fn look(storage: &dyn Storage, directory: &Path) -> Result<Found> {
    let foreign = |what: &str| Err(Error::Foreign { path: directory.to_owned(), what: what.into() });
    match kind_of(storage, directory)? {
        PathKind::Missing => return Ok(Found::Nothing),
        PathKind::File => return foreign("it is a file; a pool is a folder"),
        PathKind::Folder => {}
    }
    match kind_of(storage, &directory.join("pool"))? {
        PathKind::File => Ok(Found::Pool),
        PathKind::Folder => foreign("the name `pool` in it is a folder"),
        PathKind::Missing => {
            let names = names_in(storage, directory)?;
            // Its creator has made it since.
            if names.iter().any(|name| name == "pool") {
                return Ok(Found::Pool);
            }
            match names.iter().find(|name| create::PARTS.contains(&name.as_str())) {
                Some(name) => foreign(&format!("it holds a file `{name}`, but no file `pool`")),
                None => Ok(Found::Directory),
            }
        }
    }
}

impl Pool {
    /// Makes the pool's directory where there is none and the options ask for that; true if it did.
    fn make_directory(directory: &Path, options: &PoolOptions) -> Result<bool> {
        let Found::Nothing = look(&*options.storage, directory)? else { return Ok(false) };
        if options.config.creates() == Create::Never {
            return Err(Error::NotFound { path: directory.to_owned() });
        }
        create::make_directory(&*options.storage, directory)?;
        Ok(true)
    }

    fn open_with(directory: &Path, options: &PoolOptions) -> Result<Self> {
        options.domain_resolved()?;
        let made_directory = Self::make_directory(directory, options)?;
        let mut creation = None;
        let opened = Self::open_held(directory, options, made_directory, &mut creation);
        match (opened, creation) {
            (Ok(mut pool), creation) => {
                pool.creation = creation;
                Ok(pool)
            }
            (Err(error), Some(creation)) => {
                creation.undo();
                Err(error)
            }
            (Err(error), None) => {
                if made_directory {
                    remove_directory(&*options.storage, directory);
                }
                Err(error)
            }
        }
    }

    /// Holds the directory, and opens the pool in it or creates it there, which `creation` then can undo. From here on
    /// the path is only a part of messages.
    fn open_held(
        directory: &Path,
        options: &PoolOptions,
        made_directory: bool,
        creation: &mut Option<Creation>,
    ) -> Result<Self> {
        let held = hold(&options.storage, directory, opening(options.config.read_only))?;
        let mut begins = |file: &LockedPool| {
            *creation = file.directory().map(|lock| Creation {
                directory: directory.to_owned(),
                held: Arc::clone(&held),
                storage: Arc::clone(&options.storage),
                made_directory,
                lock,
            });
        };
        let options = &options.clone().storage(Arc::clone(&held));
        let storage = &*options.storage;
        let is_look = options.config.read_only && !options.unlocked && !options.salvage;
        if is_look
            && let Found::Pool = look(storage, directory)?
            && let Some(Look { sb, recovered }) = looks::look(directory, options)?
        {
            return Ok(Self::read_only(directory, &sb, recovered, None));
        }
        let (file, mut sb, made) = Self::open_superblock(directory, options, &mut begins)?;
        options.refuse_other(directory, &sb)?;
        if made == Made::Before {
            options.change(directory, &mut sb)?;
        }
        let PoolFiles { data, log } = PoolFiles::open(storage, directory, &sb, options.config.read_only)?;
        let mut pool = match log {
            Some(_) if made == Made::ToLoad => Self::open_to_load(directory, options, sb, file, data)?,
            Some(log) => Self::open_file(directory, options, sb, file, data, log)?,
            None => Self::open_mapped(directory, options, sb, file, data)?,
        };
        pool.report.created = made != Made::Before;
        Ok(pool)
    }

    /// Opens and locks the file `pool`, after creating a pool where the options ask for it: then calls `begins` first.
    /// Returns the file, the superblock in it (or to be written, for a pool that is made to be loaded), and whether
    /// this call made the pool.
    fn open_superblock(
        directory: &Path,
        options: &PoolOptions,
        begins: &mut dyn FnMut(&LockedPool),
    ) -> Result<(LockedPool, Superblock, Made)> {
        let storage = &*options.storage;
        let create = options.config.creates();
        let how = match (look(storage, directory)?, create) {
            (Found::Pool, _) if options.config.read_only => OpenHow::Read,
            (Found::Pool, _) => OpenHow::Write,
            (_, Create::Never) => return Err(Error::NotFound { path: directory.to_owned() }),
            (Found::Nothing | Found::Directory, _) => OpenHow::Create,
        };
        let tries = lock_tries(options.config.busy_wait);
        let taken = match options.unlocked {
            true => Some(LockedPool::unlocked(&options.storage, directory)?),
            false => LockedPool::take(&options.storage, directory, how, tries)?,
        };
        let Some(locked) = taken else {
            let found = Self::inspect_in(storage, directory).map(|info| info.medium);
            return Err(match found {
                Ok(MediumKind::Dax | MediumKind::Emulated) if options.config.read_only => {
                    let why =
                        "stores into its data file in place, so no other process can read one instant of it";
                    Error::busy_since(directory, why)
                }
                _ => Error::busy(directory),
            });
        };
        let file = locked.file();
        let bytes = read_superblock_file(file)?;
        let decoded = superblock::decode(file.path(), &bytes);
        if decoded.is_err() && create::is_unfinished(storage, directory, &bytes)? {
            if create == Create::Never {
                return Err(Error::Foreign {
                    path: directory.to_owned(),
                    what: "its creation was interrupted and nothing was stored in it; create it again".into(),
                });
            }
            begins(&locked);
            if !options.config.bulk_load {
                create::create(options, directory, file)?;
            } else if let Some(sb) = create::create_for_load(options, directory, file)? {
                return Ok((locked, sb, Made::ToLoad));
            }
            let bytes = read_superblock_file(file)?;
            let sb = superblock::decode(file.path(), &bytes)?;
            return Ok((locked, sb, Made::Now));
        }
        if decoded.is_ok() && create == Create::New {
            return Err(Error::Exists { path: directory.to_owned() });
        }
        Ok((locked, decoded?, Made::Before))
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
        data: DataFiles,
        log: PoolFile,
    ) -> Result<Self> {
        let storage = &*options.storage;
        let recovered = recover(options, directory, &sb, data, log)?;
        if options.config.read_only {
            recovered.check_for_reader(&sb, false)?;
            recovered.sync_for_reader(&sb)?;
            return Ok(Self::read_only(directory, &sb, recovered, Some(file)));
        }
        let (info, report) = (sb.info(directory), recovered.report);
        if options.config.keeps_recent {
            recovered.remove_superfluous(storage, &sb)?;
        }
        let left = recovered.deferred(storage, directory, &sb)?;
        let mut superblock = SuperblockFile::new(file, sb);
        superblock.save()?;
        let parts = recovered.into_parts(
            Arc::clone(&options.storage),
            directory,
            superblock,
            options.config.keeps_recent,
        )?;
        let medium = Arc::new(FileMedium::new(parts, &options.config, options.background));
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
    fn read_only(
        directory: &Path,
        sb: &Superblock,
        recovered: Recovered,
        locked: Option<LockedPool>,
    ) -> Self {
        let (info, report) = (sb.info(directory), recovered.report);
        let (memory, grown, damage) = recovered.into_reader();
        let usable = memory.len() as u64;
        let medium = ReadOnly::new(memory, MediumKind::File, usable, grown);
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
    /// not make its object. The caller has dropped what uses the region.
    pub fn undo_creation(mut self) {
        let Some(creation) = self.creation.take() else { return };
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
    pub fn close(mut self) -> Result<()> {
        let result = self.settle();
        if self.is_ours() {
            drop(self);
        } else {
            // Its locks may be held by threads that a child of fork does not have.
            std::mem::forget(self);
        }
        result
    }

    /// False in a child of the process that opened the pool on a disk.
    fn is_ours(&self) -> bool {
        match &self.backing {
            Backing::File(medium) => medium.is_ours(),
            Backing::Bulk(medium) => medium.is_ours(),
            Backing::Mapped(_) | Backing::ReadOnly(_) => true,
        }
    }

    fn settle(&mut self) -> Result<()> {
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
            medium.remove_recent();
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
            let Found::Pool = look(storage, directory)? else { return Ok(false) };
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
        let Found::Pool = look(storage, directory)? else {
            return Err(Error::NotFound { path: directory.to_owned() });
        };
        let file = PoolFile::open(storage, directory.join("pool"), OpenHow::Read, opening(true))?;
        let bytes = read_superblock_file(&file)?;
        Ok(superblock::decode(file.path(), &bytes)?.info(directory))
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

    /// Opens or creates the pool in the directory `path`.
    ///
    /// # Errors
    /// See [`Error`]: each states what the user can do about it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.validate()?;
        Pool::open_with(path.as_ref(), self)
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
