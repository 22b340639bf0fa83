//! The files of a pool: found or made, and locked.

use crate::config::Create;
use crate::create;
use crate::format::superblock;
use crate::format::superblock::Superblock;
use crate::log::recent::UnusedRecent;
use crate::options::PoolOptions;
use crate::pool_files::{
    LockedPool, PoolFile, PoolFiles, kind_of, lock_tries, names_in, opening, read_superblock_file,
};
use crate::stat::{MediumKind, PoolInfo};
use crate::storage::traits::{OpenHow, PathKind, Storage};
use crate::{Error, Result};
use std::path::Path;

/// The open files of a pool.
pub(crate) struct OpenFiles {
    /// The file of recent writes, if that has been made. Dropped first: the pool is locked until it is removed.
    pub(crate) recent: Option<UnusedRecent>,
    /// With the directory held.
    pub(crate) options: PoolOptions,
    pub(crate) file: LockedPool,
    pub(crate) sb: Superblock,
    pub(crate) made: Made,
    pub(crate) files: PoolFiles,
}

/// Whether an opening has made the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// It was there.
    Before,
    Now,
    /// All but its superblock, which is written when the pool has been filled.
    ToLoad,
}

/// What there is at the path of a pool.
pub(crate) enum FoundPool {
    /// Neither directory nor file.
    Nothing,
    /// A directory without the file `pool`.
    Directory,
    /// A directory with the file `pool`.
    Pool,
}

/// Looks at the path of a pool.
pub(crate) fn look(storage: &dyn Storage, directory: &Path) -> Result<FoundPool> {
    let foreign = |what: &str| Err(Error::Foreign { path: directory.to_owned(), what: what.into() });
    match kind_of(storage, directory)? {
        PathKind::Missing => return Ok(FoundPool::Nothing),
        PathKind::File => return foreign("it is a file; a pool is a directory"),
        PathKind::Folder => {}
    }
    match kind_of(storage, &directory.join("pool"))? {
        PathKind::File => Ok(FoundPool::Pool),
        PathKind::Folder => foreign("the name `pool` in it is a directory"),
        PathKind::Missing => {
            let names = names_in(storage, directory)?;
            // Its creator has made it since.
            if names.iter().any(|name| name == "pool") {
                return Ok(FoundPool::Pool);
            }
            match names.iter().find(|name| create::PARTS.contains(&name.as_str())) {
                Some(name) => foreign(&format!("it holds a file `{name}`, but no file `pool`")),
                None => Ok(FoundPool::Directory),
            }
        }
    }
}

/// The superblock of the pool in `directory`.
pub(crate) fn inspect(storage: &dyn Storage, directory: &Path) -> Result<PoolInfo> {
    let FoundPool::Pool = look(storage, directory)? else {
        return Err(Error::NotFound { path: directory.to_owned() });
    };
    let file = PoolFile::open(storage, directory.join("pool"), OpenHow::Read, opening(true))?;
    let bytes = read_superblock_file(&file)?;
    Ok(superblock::decode(file.path(), &bytes)?.info(directory))
}

/// Opens and locks the file `pool`, after creating a pool where the options ask for it: then calls `begins` first.
/// Returns the file, the superblock in it (or to be written, for a pool that is made to be loaded), and whether
/// this call made the pool.
pub(crate) fn open_superblock(
    directory: &Path,
    options: &PoolOptions,
    begins: &mut dyn FnMut(&LockedPool),
) -> Result<(LockedPool, Superblock, Made)> {
    let storage = &*options.storage;
    let create = options.config.creates();
    let how = match (look(storage, directory)?, create) {
        (FoundPool::Pool, _) if options.config.read_only => OpenHow::Read,
        (FoundPool::Pool, _) => OpenHow::Write,
        (_, Create::Never) => return Err(Error::NotFound { path: directory.to_owned() }),
        (FoundPool::Nothing | FoundPool::Directory, _) => OpenHow::Create,
    };
    let tries = lock_tries(options.config.busy_wait);
    let taken = match options.unlocked {
        true => Some(LockedPool::unlocked(&options.storage, directory)?),
        false => LockedPool::take(&options.storage, directory, how, tries)?,
    };
    let Some(locked) = taken else {
        let found = inspect(storage, directory).map(|info| info.medium);
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
