//! Opening a pool: its files are found or made, and locked; then they are read.

use crate::appear::may_lose_name;
use crate::config::Create;
use crate::create;
use crate::file::closed::ClosedPool;
use crate::file::exit_hook::hook_exit;
use crate::look::look as looks;
use crate::look::look::Look;
use crate::open_files::{FoundPool, Made, OpenFiles, look, open_superblock};
use crate::options::PoolOptions;
use crate::pool_files::{LockedPool, PoolFiles, hold, opening};
use crate::stat::PoolInfo;
use crate::storage::traits::Storage;
use crate::undo::{Creation, remove_directory};
use crate::{Error, Pool, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A pool whose files are open and locked, but have not been read.
pub struct Opening {
    directory: PathBuf,
    begun: Begun,
    undo: Undo,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// How far an opening has come.
enum Begun {
    /// To its end: a reader that keeps no writer out.
    Whole(Box<Pool>),
    Files(Box<OpenFiles>),
}

/// What an opening that fails undoes.
#[derive(Default)]
struct Undo {
    creation: Option<Creation>,
    /// The directory that it has made, and where.
    directory: Option<(Arc<dyn Storage>, PathBuf)>,
}

impl Undo {
    fn run(self) {
        match (self.creation, self.directory) {
            (Some(creation), _) => creation.undo(),
            (None, Some((storage, directory))) => remove_directory(&*storage, &directory),
            (None, None) => {}
        }
    }
}

impl Opening {
    fn begin(directory: &Path, options: &PoolOptions) -> Result<Self> {
        options.domain_resolved()?;
        let mut undo = Undo::default();
        if make_directory(directory, options)? {
            undo.directory = Some((Arc::clone(&options.storage), directory.to_owned()));
        }
        match begin_held(directory, options, &mut undo) {
            Ok(begun) => Ok(Self { directory: directory.to_owned(), begun, undo }),
            Err(error) => {
                undo.run();
                Err(error)
            }
        }
    }

    /// The pool's region before it is read, if the pool lies on the file medium and was closed, its data file has
    /// `bytes_min` bytes, its owner left an index ([`Pool::close_leaving`]), and it is opened for writing. `None` also
    /// where anything fails: [`Opening::finish`] reports that, or does without.
    ///
    /// [`Opening::finish`] may then run in a thread: it opens no more files, and what the process has hooked to its end
    /// after this call still comes before the pool's last writes.
    pub fn closed_pool(&mut self, bytes_min: u64) -> Option<ClosedPool> {
        match &mut self.begun {
            Begun::Files(open) if open.made == Made::Before && !open.options.config.read_only => {
                let closed = ClosedPool::of(open, &self.directory, bytes_min)?;
                if open.options.background {
                    hook_exit();
                }
                Some(closed)
            }
            _ => None,
        }
    }

    /// The superblock's content.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        match &self.begun {
            Begun::Files(open) => open.sb.info(&self.directory),
            Begun::Whole(pool) => pool.info().clone(),
        }
    }

    /// Has [`Opening::finish`] end with the error `Closed` when another thread sets `ended`.
    pub fn until(&mut self, ended: Arc<AtomicBool>) {
        if let Begun::Files(open) = &mut self.begun {
            open.options.ended = Some(ended);
        }
    }

    /// Opens the pool.
    ///
    /// # Errors
    /// See [`Error`]: each states what the user can do about it.
    pub fn finish(self) -> Result<Pool> {
        let Self { directory, begun, undo } = self;
        let opened = match begun {
            Begun::Whole(pool) => Ok(*pool),
            Begun::Files(files) => Pool::of_files(&directory, *files),
        };
        match opened {
            Ok(mut pool) => {
                pool.creation = undo.creation;
                Ok(pool)
            }
            Err(error) => {
                undo.run();
                Err(error)
            }
        }
    }
}

/// Makes the pool's directory where there is none and the options ask for that; true if it did. Makes the
/// directory's name durable where the process that gave it may have been killed before.
///
/// Durable-order: the directory's name before the file `pool`. Otherwise a power cut could take all of a pool away in
/// which something was acknowledged.
fn make_directory(directory: &Path, options: &PoolOptions) -> Result<bool> {
    let storage = &*options.storage;
    let creates = options.config.creates() != Create::Never;
    match look(storage, directory)? {
        FoundPool::Nothing if !creates => Err(Error::NotFound { path: directory.to_owned() }),
        FoundPool::Nothing => create::make_directory(storage, directory).map(|()| true),
        FoundPool::Directory if creates => create::keep_directory(storage, directory).map(|()| false),
        FoundPool::Pool if !options.config.read_only && may_lose_name(storage, directory) => {
            create::keep_directory(storage, directory).map(|()| false)
        }
        FoundPool::Directory | FoundPool::Pool => Ok(false),
    }
}

/// Holds the directory, and opens the files of the pool in it or creates them, which `undo` then can undo. From
/// here on the path is only a part of messages.
fn begin_held(directory: &Path, options: &PoolOptions, undo: &mut Undo) -> Result<Begun> {
    let held = hold(&options.storage, directory, opening(options.config.read_only))?;
    let made_directory = undo.directory.is_some();
    let mut begins = |file: &LockedPool| {
        undo.creation = file.directory().map(|lock| Creation {
            directory: directory.to_owned(),
            held: Arc::clone(&held),
            storage: Arc::clone(&options.storage),
            made_directory,
            lock,
        });
    };
    let options = options.clone().storage(Arc::clone(&held));
    let storage = &*options.storage;
    let is_look = options.config.read_only && !options.unlocked && !options.salvage;
    if is_look
        && let FoundPool::Pool = look(storage, directory)?
        && let Some(Look { sb, recovered }) = looks::look(directory, &options)?
    {
        return Ok(Begun::Whole(Box::new(Pool::read_only(directory, &sb, recovered, None))));
    }
    let (file, mut sb, made) = open_superblock(directory, &options, &mut begins)?;
    options.refuse_other(directory, &sb)?;
    if made == Made::Before {
        options.change(directory, &mut sb)?;
    }
    let mut files = PoolFiles::open(storage, directory, &sb, options.config.read_only)?;
    if options.salvage {
        files = files.noting_unread();
    }
    Ok(Begun::Files(Box::new(OpenFiles { options, file, sb, made, files, recent: None })))
}

impl PoolOptions {
    /// Opens or creates the pool in the directory `path`.
    ///
    /// # Errors
    /// See [`Error`]: each states what the user can do about it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.begin(path)?.finish()
    }

    /// Opens the files of the pool, or creates it, and locks them; [`Opening::finish`] reads them.
    ///
    /// # Errors
    /// As `open`.
    pub fn begin(&self, path: impl AsRef<Path>) -> Result<Opening> {
        self.validate()?;
        Opening::begin(path.as_ref(), self)
    }
}
