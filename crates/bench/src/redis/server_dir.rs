//! The directory of a server under measurement: gone with its owner, so that a bench that fails leaves no memory in
//! use.

use crate::harness::own_path::{emptied, own_path};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a server's log that an error shows.
const LAST_WORDS_BYTES_MAX: usize = 500;

/// A directory that is removed when dropped.
#[derive(Debug)]
pub(super) struct ServerDir(PathBuf);

impl ServerDir {
    /// An empty directory in DRAM, if the machine has a file system there, or in `disk`.
    pub(super) fn new(name: &str, in_memory: bool, disk: &Path) -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let dir = if in_memory && memory.is_dir() {
            // Several benches may run at once, also in one process: the tests of this crate.
            let own = NEXT.fetch_add(1, Ordering::Relaxed);
            memory.join(format!("mangrove-bench-{}-{own}-{name}", std::process::id()))
        } else {
            own_path(disk, &format!("redis-{name}"))
        };
        Ok(Self(emptied(dir)?.canonicalize()?))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it, and says so if it cannot.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(&self.0).with_context(|| format!("cannot remove {}", self.0.display()))
    }
}

impl Drop for ServerDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The end of the server's log in `dir`.
pub(super) fn last_words(dir: &Path) -> String {
    let text = std::fs::read(dir.join("log")).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_WORDS_BYTES_MAX)..]).trim().to_owned()
}
