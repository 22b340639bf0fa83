//! Where the states of this bench lie.

use crate::harness::media::BenchMedium;
use anyhow::Context as _;
use mangrove_durable::{Medium, Options};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A medium, and a directory for states on it.
#[derive(Clone, Debug)]
pub(super) struct StatePlace {
    pub(super) name: String,
    choice: Medium,
    dir: PathBuf,
}

impl StatePlace {
    /// Emulated memory lies in /dev/shm, which is never written back to a disk.
    pub(super) fn new(name: &str, disk: &Path) -> anyhow::Result<Self> {
        // Several benches may run in one process: the tests of this crate.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number carries no data with it.
        let id = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (choice, dir) = match BenchMedium::parse(name)? {
            BenchMedium::Emulated(latency) => {
                let memory = Path::new("/dev/shm");
                let parent = if memory.is_dir() { memory } else { disk };
                (Medium::Emulated(latency), parent.join(format!("mangrove-bench-{id}")))
            }
            BenchMedium::File => (Medium::File, disk.join(format!("durable-{id}"))),
        };
        Ok(Self { name: name.trim().to_owned(), choice, dir })
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.choice, Medium::File)
    }

    /// Options of a state on this medium. Emulated states are small, because all of their address space is memory.
    pub(super) fn options(&self) -> Options {
        let options = Options::new().medium(self.choice).keeps_variables(false);
        if self.is_file() { options } else { options.capacity(1 << 30) }
    }

    /// An empty directory.
    pub(super) fn fresh(&self) -> anyhow::Result<PathBuf> {
        self.clear()?;
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        Ok(self.dir.join("state"))
    }

    /// The path of a socket, next to the state.
    pub(super) fn door(&self) -> PathBuf {
        self.dir.join("door")
    }

    /// Removes the states.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        if self.dir.exists() {
            std::fs::remove_dir_all(&self.dir)
                .with_context(|| format!("cannot remove {}", self.dir.display()))?;
        }
        Ok(())
    }
}
