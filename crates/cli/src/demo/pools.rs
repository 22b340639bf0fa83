//! The places of the demo's pools. A demo removes what an earlier one left there, whole or half made, and nothing else.
//!
//! Invariant: a directory has the mark from before a demo makes a pool in it until all other files of that pool are
//! gone. So what has no mark is no demo's, and stays.

use crate::terminal::exit::Usage;
use anyhow::Context;
use mangrove::Error;
use mangrove_sys::file::{sync_dir, try_lock};
use mangrove_sys::{lock_holder, process_name};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the mark; `make clean` knows it, too.
const MARK: &str = "made-by-mangrove-demo";
const MARK_TEXT: &[u8] = b"mangrove demo made this directory, and the next demo removes it\n";
/// Names of the files of a pool, and how others begin.
const POOL_FILES: [&str; 5] = ["pool", "image", "log", "sums", "index"];
const POOL_FILE_PREFIXES: [&str; 2] = ["unit-", "recent-"];
/// Who only looks whether a process has a pool holds it for an instant.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What lies in the place of a demo's pool, and is a demo's.
struct Old {
    path: PathBuf,
    /// Locked: no process has the pool, or opens it.
    directory: File,
    names: Vec<OsString>,
}

/// Removes from `dir` what an earlier demo left, and returns the paths of the new demo's pools. Refuses, before
/// anything is removed, where one of them is in use or is no demo's.
pub(super) fn clear(dir: &Path) -> anyhow::Result<[PathBuf; 3]> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let pools = ["demo.pool", "demo.heap", "demo.sqlite"].map(|name| dir.join(name));
    let mut olds = Vec::new();
    for pool in &pools {
        olds.extend(Old::find(pool)?);
    }
    for old in olds {
        old.remove().with_context(|| format!("cannot remove {}", old.path.display()))?;
    }
    Ok(pools)
}

/// Makes the directory for a pool that the demo makes next, with the mark.
pub(super) fn begin(pool: &Path) -> anyhow::Result<()> {
    make(pool).with_context(|| format!("cannot create {}", pool.display()))
}

fn make(pool: &Path) -> io::Result<()> {
    fs::create_dir(pool)?;
    let mut mark = File::create_new(pool.join(MARK))?;
    mark.write_all(MARK_TEXT)?;
    // Durable-order: the mark before any file of the pool. Otherwise a power cut could leave a pool without it, which
    // no demo would remove.
    mark.sync_all()?;
    sync_dir(pool)?;
    let parent = pool.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_dir(parent)
}

impl Old {
    /// What a demo left at `path`, locked; `None` where there is nothing.
    fn find(path: &Path) -> anyhow::Result<Option<Self>> {
        let cannot_read = || format!("cannot read {}", path.display());
        match path.symlink_metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(meta) if !meta.is_dir() => return Err(not_a_demos(path)),
            there => there.with_context(cannot_read)?,
        };
        let directory = File::open(path).with_context(cannot_read)?;
        let mut tries = LOCK_TRIES;
        while !try_lock(&directory, true).with_context(cannot_read)? {
            tries -= 1;
            if tries == 0 {
                return Err(busy(path).into());
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        let names = fs::read_dir(path).and_then(|names| names.map(|name| Ok(name?.file_name())).collect());
        let names: Vec<OsString> = names.with_context(cannot_read)?;
        // A demo that was killed before it made the mark leaves an empty directory.
        if !names.is_empty() && !path.join(MARK).is_file() {
            return Err(not_a_demos(path));
        }
        if let Some(name) = names.iter().find(|name| *name != MARK && !is_pool_file(name)) {
            let sentence =
                format!("{} holds {name:?}, which no demo made; remove it yourself", path.display());
            return Err(Usage(sentence).into());
        }
        Ok(Some(Self { path: path.to_owned(), directory, names }))
    }

    fn remove(&self) -> io::Result<()> {
        for name in self.names.iter().filter(|name| *name != MARK) {
            fs::remove_file(self.path.join(name))?;
        }
        // Durable-order: the mark last, as the invariant says.
        self.directory.sync_all()?;
        if !self.names.is_empty() {
            fs::remove_file(self.path.join(MARK))?;
        }
        fs::remove_dir(&self.path)
    }
}

fn is_pool_file(name: &OsString) -> bool {
    POOL_FILES.iter().any(|file| name == file)
        || name.to_str().is_some_and(|name| POOL_FILE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

fn not_a_demos(path: &Path) -> anyhow::Error {
    let path = path.display();
    let sentence = format!(
        "{path} is in the way: no demo made it, or an early version did; remove it yourself, or name another \
         directory with --dir"
    );
    Usage(sentence).into()
}

/// The error that a process has the pool.
fn busy(path: &Path) -> Error {
    let holder = lock_holder(path).map(|pid| match process_name(pid) {
        Some(name) => format!("process {pid} ({name})"),
        None => format!("process {pid}"),
    });
    Error::Busy { path: path.to_owned(), holder }
}
