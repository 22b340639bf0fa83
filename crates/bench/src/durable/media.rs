//! Where the states of this bench lie.

use crate::media::BenchMedium;
use anyhow::Context as _;
use mangrove_durable::{MediumChoice, Options};
use std::path::{Path, PathBuf};

/// A medium, and a folder for states on it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) name: String,
    choice: MediumChoice,
    dir: PathBuf,
}

impl Place {
    /// Emulated memory lies in /dev/shm: nothing writes it back to a disk.
    pub(super) fn new(name: &str, disk: &Path) -> anyhow::Result<Self> {
        let id = std::process::id();
        let (choice, dir) = match BenchMedium::parse(name)? {
            BenchMedium::Emulated(latency) => {
                let memory = Path::new("/dev/shm");
                let parent = if memory.is_dir() { memory } else { disk };
                (MediumChoice::Emulated(latency), parent.join(format!("mangrove-bench-{id}")))
            }
            BenchMedium::File => (MediumChoice::File, disk.join(format!("durable-{id}"))),
        };
        Ok(Self { name: name.trim().to_owned(), choice, dir })
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.choice, MediumChoice::File)
    }

    /// Options of a state on this medium. Emulated ones are small: all of their address space is memory.
    pub(super) fn options(&self) -> Options {
        let options = Options::new().medium(self.choice).keeps_variables(false);
        if self.is_file() { options } else { options.capacity(1 << 30) }
    }

    /// An empty folder.
    pub(super) fn fresh(&self) -> anyhow::Result<PathBuf> {
        self.clear()?;
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        Ok(self.dir.join("state"))
    }

    /// A socket file beside the state.
    pub(super) fn door(&self) -> PathBuf {
        self.dir.join("door")
    }

    /// Removes what was made.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        if self.dir.exists() {
            std::fs::remove_dir_all(&self.dir)
                .with_context(|| format!("cannot remove {}", self.dir.display()))?;
        }
        Ok(())
    }
}
