//! A pool: one durable region, locked, with its medium.

use crate::create;
use crate::file_medium::FileMedium;
use crate::mapped::Mapped;
use crate::open_mapped::{OpenMapped, open_mapped};
use crate::options::{CreateMode, MediumChoice, PoolOptions, Start};
use crate::os_storage::OsStorage;
use crate::read_only::ReadOnly;
use crate::recover::recover;
use crate::stat::{MediumKind, OpenReport, PoolInfo, PoolStat};
use crate::storage::{LockKind, OpenHow, PathKind, Storage, StorageFile, here};
use crate::superblock::{self, Superblock, SuperblockFile};
use crate::{Error, Region, Result};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Who only asks whether a pool is in use has its lock for an instant: whoever opens it asks so often...
const LOCK_TRIES: u32 = 6;
/// ...with this time in between.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What keeps the region durable.
enum Backing {
    File(Arc<FileMedium>),
    Mapped(Arc<Mapped>),
    ReadOnly(Arc<ReadOnly>),
}

/// An open pool.
///
/// Dropping it without [`Pool::close`] is a tidy crash: background threads stop, nothing more is
/// written, the next opening recovers what was durable.
pub struct Pool {
    region: Region,
    info: PoolInfo,
    report: OpenReport,
    backing: Backing,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("info", &self.info).field("report", &self.report).finish_non_exhaustive()
    }
}

/// The whole file `pool`, and one byte more than it can have.
pub(crate) fn read_superblock_file(file: &dyn StorageFile, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; superblock::FILE_BYTES + 1];
    let n = file.read_at(0, &mut bytes).map_err(|e| Error::from_io(path.to_owned(), "read", &e))?;
    bytes.truncate(n);
    Ok(bytes)
}

/// What a failure to open says: only who wants to write is told that he may not.
pub(crate) fn opening(read_only: bool) -> &'static str {
    if read_only { "read" } else { "open" }
}

/// What there is at the path of a pool.
enum Found {
    /// Neither folder nor file.
    Nothing,
    /// A folder without the file `pool`.
    Folder,
    /// A folder with the file `pool`.
    Pool,
}

fn look(storage: &dyn Storage, folder: &Path) -> Result<Found> {
    let kind = |path: &Path| storage.kind(path).map_err(|e| Error::from_io(path.to_owned(), "read", &e));
    let foreign = |what: &str| Err(Error::Foreign { path: folder.to_owned(), what: what.into() });
    match kind(folder)? {
        PathKind::Missing => return Ok(Found::Nothing),
        PathKind::File => return foreign("it is a file; a pool is a folder"),
        PathKind::Folder => {}
    }
    match kind(&folder.join("pool"))? {
        PathKind::File => Ok(Found::Pool),
        PathKind::Folder => foreign("the name `pool` in it is a folder"),
        PathKind::Missing => {
            let names = storage.list(folder).map_err(|e| Error::from_io(folder.to_owned(), "read", &e))?;
            match names.iter().find(|name| create::PARTS.contains(&name.as_str())) {
                Some(name) => foreign(&format!("it holds a file `{name}`, but no file `pool`")),
                None => Ok(Found::Folder),
            }
        }
    }
}

impl Pool {
    pub(crate) fn open_with(folder: &Path, options: &PoolOptions) -> Result<Self> {
        options.domain_resolved()?;
        let storage = &*options.storage;
        let path = folder.join("pool");
        let how = match (look(storage, folder)?, options.create) {
            (Found::Pool, _) if options.read_only => OpenHow::Read,
            (Found::Pool, _) => OpenHow::Write,
            (_, CreateMode::OpenOnly) => return Err(Error::NotFound { path: folder.to_owned() }),
            (Found::Nothing, _) => {
                create::make_folder(storage, folder)?;
                OpenHow::Create
            }
            (Found::Folder, _) => OpenHow::Create,
        };
        let file = storage
            .open(&path, how, here())
            .map_err(|e| Error::from_io(path.clone(), opening(options.read_only), &e))?;
        let lock = if options.read_only { LockKind::Shared } else { LockKind::Exclusive };
        let mut tries = LOCK_TRIES;
        while !file.lock(lock).map_err(|e| Error::from_io(path.clone(), "lock", &e))? {
            tries -= 1;
            if tries == 0 {
                return Err(Error::Busy { path: folder.to_owned() });
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        let mut bytes = read_superblock_file(&*file, &path)?;
        let mut created = false;
        let mut decoded = superblock::decode(&path, &bytes);
        if decoded.is_err() && create::is_half_made(&bytes) && create::image_is_empty(storage, folder)? {
            if options.create == CreateMode::OpenOnly {
                return Err(Error::Foreign {
                    path: folder.to_owned(),
                    what: "its creation was interrupted and nothing was stored in it; create it again".into(),
                });
            }
            create::create(options, folder, &*file)?;
            bytes = read_superblock_file(&*file, &path)?;
            decoded = superblock::decode(&path, &bytes);
            created = true;
        } else if decoded.is_ok() && options.create == CreateMode::CreateNew {
            return Err(Error::Exists { path: folder.to_owned() });
        }
        let sb = decoded?;
        if !options.kind.is_empty() && sb.kind != options.kind {
            return Err(Error::WrongKind {
                path: folder.to_owned(),
                found: sb.kind.clone(),
                wanted: options.kind.clone(),
            });
        }
        fits_choice(folder, &sb, options.medium)?;
        let mut pool = match sb.medium {
            MediumKind::File => Self::open_file(folder, options, sb, file)?,
            MediumKind::Dax | MediumKind::Emulated => Self::open_mapped(folder, options, sb, file)?,
        };
        pool.report.created = created;
        Ok(pool)
    }

    fn open_file(
        folder: &Path,
        options: &PoolOptions,
        sb: Superblock,
        file: Box<dyn StorageFile>,
    ) -> Result<Self> {
        let storage = &*options.storage;
        let lazy = options.start == Start::CopyOnWrite && !options.read_only;
        let recovered = recover(storage, folder, &sb, options.read_only, lazy)?;
        let (info, report) = (sb.info(folder), recovered.report);
        if options.read_only {
            recovered.finish_for_reader(folder, &sb)?;
            let usable = recovered.memory.len() as u64;
            let medium = ReadOnly::new(recovered.memory, MediumKind::File, usable);
            medium.keep(file);
            let region = medium.region();
            return Ok(Self {
                region,
                info,
                report,
                backing: Backing::ReadOnly(medium),
                threads: Vec::new(),
            });
        }
        let left = recovered.unfinished(storage, folder, &sb)?;
        let superblock = SuperblockFile::new(file, sb);
        let parts = recovered.into_parts(Arc::clone(&options.storage), folder, superblock);
        let medium = Arc::new(FileMedium::new(parts, options.durability, options.background));
        // A pool from here on, so that its drop ends what has been started.
        let mut pool = Self {
            region: medium.region(),
            info,
            report,
            backing: Backing::File(Arc::clone(&medium)),
            threads: Vec::new(),
        };
        if options.finish_later && options.background {
            medium.finish_later(left, &mut pool.threads)?;
        } else {
            medium.finish(&left)?;
        }
        medium.start(&mut pool.threads)?;
        Ok(pool)
    }

    fn open_mapped(
        folder: &Path,
        options: &PoolOptions,
        sb: Superblock,
        file: Box<dyn StorageFile>,
    ) -> Result<Self> {
        let info = sb.info(folder);
        let (opened, report) = open_mapped(options, folder, sb, file)?;
        let (region, backing) = match opened {
            OpenMapped::ReadWrite(medium) => (medium.region(), Backing::Mapped(medium)),
            OpenMapped::ReadOnly(medium) => (medium.region(), Backing::ReadOnly(medium)),
        };
        Ok(Self { region, info, report, backing, threads: Vec::new() })
    }

    /// Waits for what [`PoolOptions::finish_later`] has left for a thread. Until it has answered, nobody may be told
    /// what the region holds.
    ///
    /// # Errors
    /// Those of opening: `Corrupt`, `Io`.
    pub fn finish(&self) -> Result<()> {
        match &self.backing {
            Backing::File(medium) => medium.wait_finished(),
            Backing::Mapped(_) | Backing::ReadOnly(_) => Ok(()),
        }
    }

    /// The file that the region of a dax or emulated pool is mapped from, to map it once more; none for a device.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn image_file(&self) -> Result<Option<std::os::fd::OwnedFd>> {
        match &self.backing {
            Backing::Mapped(medium) => medium.image_file(),
            Backing::File(_) | Backing::ReadOnly(_) => Ok(None),
        }
    }

    /// The durable region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// What the superblock said when the pool was opened.
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
        let mut stat = match &self.backing {
            Backing::File(medium) => medium.stat(),
            Backing::Mapped(medium) => medium.stat(),
            Backing::ReadOnly(medium) => medium.stat(),
        };
        stat.capacity = self.info.capacity;
        stat
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
    pub fn close(mut self) -> Result<()> {
        let result = self.settle();
        drop(self);
        result
    }

    fn settle(&mut self) -> Result<()> {
        let medium = match &self.backing {
            Backing::File(medium) => Arc::clone(medium),
            Backing::Mapped(medium) => return medium.settle(),
            Backing::ReadOnly(_) => return Ok(()),
        };
        medium.refuse_child()?;
        if let Some(e) = medium.latched() {
            return Err(Error::Poisoned { first: e.to_string() });
        }
        medium.checkpoint_now()?;
        self.stop();
        if medium.is_settled() { medium.mark_clean() } else { Ok(()) }
    }

    /// Ends the threads and everything that is under way. Done again, it does nothing.
    fn stop(&mut self) {
        if let Backing::File(medium) = &self.backing {
            medium.stop_threads();
            for thread in self.threads.drain(..) {
                // A thread that panicked has latched nothing; the pool is being given up anyway.
                let _ = thread.join();
            }
            medium.shut_down();
        }
    }

    /// What the superblock of the pool at `path` says, without locking or changing it.
    ///
    /// # Errors
    /// `NotFound`, `Foreign`, `Newer`, `Corrupt`, `Io`.
    pub fn inspect(path: impl AsRef<Path>) -> Result<PoolInfo> {
        Self::inspect_in(&OsStorage, path.as_ref())
    }

    /// True when the making of a pool at `path` was interrupted: what is there is the beginning of one, in which nothing
    /// was ever stored, and nothing else.
    #[must_use]
    pub fn is_unfinished(path: impl AsRef<Path>) -> bool {
        let (storage, folder) = (&OsStorage, path.as_ref());
        let is_pools = |name: &String| name == "pool" || create::PARTS.contains(&name.as_str());
        let file = folder.join("pool");
        let unfinished = || -> Result<bool> {
            let Found::Pool = look(storage, folder)? else { return Ok(false) };
            let names = storage.list(folder).map_err(|e| Error::from_io(folder.to_owned(), "read", &e))?;
            let opened = storage.open(&file, OpenHow::Read, here());
            let opened = opened.map_err(|e| Error::from_io(file.clone(), "open", &e))?;
            let bytes = read_superblock_file(&*opened, &file)?;
            Ok(names.iter().all(is_pools)
                && superblock::decode(&file, &bytes).is_err()
                && create::is_half_made(&bytes)
                && create::image_is_empty(storage, folder)?)
        };
        unfinished().unwrap_or(false)
    }

    /// As [`Pool::inspect`], on another storage.
    ///
    /// # Errors
    /// As `inspect`.
    pub fn inspect_in(storage: &dyn Storage, folder: &Path) -> Result<PoolInfo> {
        let Found::Pool = look(storage, folder)? else {
            return Err(Error::NotFound { path: folder.to_owned() });
        };
        let path = folder.join("pool");
        let file = storage
            .open(&path, OpenHow::Read, here())
            .map_err(|e| Error::from_io(path.clone(), "open", &e))?;
        let bytes = read_superblock_file(&*file, &path)?;
        Ok(superblock::decode(&path, &bytes)?.info(folder))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Backing::File(medium) = &self.backing
            && !medium.is_ours()
        {
            // The threads are the parent's, and so are the locks that they hold.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.stop();
        match &self.backing {
            Backing::File(medium) => medium.release(),
            Backing::Mapped(medium) => medium.shut_down(),
            Backing::ReadOnly(medium) => medium.release(),
        }
    }
}

/// An existing pool keeps its medium; asking for another is a mistake worth a sentence.
fn fits_choice(folder: &Path, sb: &Superblock, choice: MediumChoice) -> Result<()> {
    let wanted = match choice {
        MediumChoice::Auto => return Ok(()),
        MediumChoice::File => MediumKind::File,
        MediumChoice::Dax => MediumKind::Dax,
        MediumChoice::Emulated(_) => MediumKind::Emulated,
    };
    if sb.medium == wanted {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!(
            "{} lies on the medium {}, not {wanted}; open it with `auto`",
            folder.display(),
            sb.medium
        ),
    })
}
