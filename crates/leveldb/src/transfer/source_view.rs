//! A LevelDB database, seen so that LevelDB can open it and leave it as it is.
//!
//! LevelDB writes into the folder of a database that it opens: it replays the log, begins new files and removes old
//! ones. So it opens a folder of symbolic links instead. It follows them to read; what it creates and removes are
//! names of that folder. It opens no linked file to write it, because new files get numbers that no linked file has:
//! files which an interrupted LevelDB had begun, and would use again, are not linked.

use super::manifest::Manifest;
use super::outcome::{Result, TransferError};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const CURRENT: &str = "CURRENT";
const LOCK: &str = "LOCK";

/// The folder of links, and the lock of the database.
pub(super) struct SourceView {
    pub(super) folder: PathBuf,
    /// Bytes of the database's files.
    pub(super) bytes: u64,
    pub(super) manifest: Manifest,
    /// Keeps programs out that would write the database.
    _lock: Option<File>,
}

impl SourceView {
    /// Links the database in `source` from `folder`, which is created.
    pub(super) fn create(source: &Path, folder: PathBuf) -> Result<Self> {
        let lock = lock(source)?;
        let manifest_name = current(source)?;
        let manifest = Manifest::read(&source.join(&manifest_name))?;
        let source = source.canonicalize().map_err(|e| TransferError::io("find", source, &e))?;
        std::fs::create_dir(&folder).map_err(|e| TransferError::io("create", &folder, &e))?;
        let mut bytes = 0;
        let names = std::fs::read_dir(&source).map_err(|e| TransferError::io("read", &source, &e))?;
        for name in names {
            let name = name.map_err(|e| TransferError::io("read", &source, &e))?.file_name();
            let Some(text) = name.to_str() else { continue };
            if !is_needed(text, &manifest_name, manifest.next_file) {
                continue;
            }
            let (from, to) = (source.join(text), folder.join(text));
            bytes += std::fs::metadata(&from).map_err(|e| TransferError::io("read", &from, &e))?.len();
            std::os::unix::fs::symlink(&from, &to).map_err(|e| TransferError::io("create", &to, &e))?;
        }
        Ok(Self { folder, bytes, manifest, _lock: lock })
    }
}

/// True for the files that LevelDB reads when it opens the database.
fn is_needed(name: &str, manifest: &str, next_file: u64) -> bool {
    if name == CURRENT || name == manifest {
        return true;
    }
    let Some((number, kind)) = name.split_once('.') else { return false };
    let Ok(number) = number.parse::<u64>() else { return false };
    match kind {
        "log" => true,
        "ldb" | "sst" => number < next_file,
        _ => false,
    }
}

/// The name of the newest MANIFEST file.
fn current(source: &Path) -> Result<String> {
    let path = source.join(CURRENT);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let name = text.trim_end_matches('\n');
            if !name.starts_with("MANIFEST-") || name.contains('/') {
                return Err(TransferError::refused(format!("{}: is damaged", path.display())));
            }
            Ok(name.to_owned())
        }
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(TransferError::refused(format!(
                "{}: holds no LevelDB database (it has no file {CURRENT})",
                source.display()
            )))
        }
        Err(e) => Err(TransferError::io("read", &path, &e)),
    }
}

/// Locks the database against programs that would write it, as LevelDB does, but to read. `None` where no program has
/// ever locked it.
fn lock(source: &Path) -> Result<Option<File>> {
    let path = source.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(TransferError::io("open", &path, &e)),
    };
    let whole = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: an open file, and a structure for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const whole) } == 0 {
        return Ok(Some(file));
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(TransferError::refused(format!(
            "{}: a program has the database open; close it there first",
            source.display()
        ))),
        // A file system without locks.
        Some(libc::ENOLCK | libc::EINVAL | libc::ENOTSUP) => Ok(None),
        _ => Err(TransferError::io("lock", &path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_leveldb_might_write_again_are_not_linked() {
        let needed = |name| is_needed(name, "MANIFEST-000004", 10);
        let linked = ["CURRENT", "MANIFEST-000004", "000003.log", "000011.log", "000009.ldb", "000001.sst"];
        assert!(linked.into_iter().all(needed));
        let left = [
            "LOCK",
            "LOG",
            "LOG.old",
            "MANIFEST-000002",
            "000010.ldb",
            "000012.sst",
            "000005.dbtmp",
            "x.ldb",
            "diary",
        ];
        assert!(!left.into_iter().any(needed));
    }
}
