//! The options with which commands open a map or a heap.

use crate::terminal::size;
use clap::Args;
use mangrove::{Create, Domain, Durability, Map, MapOptions, Medium};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a command waits for another process that is in its way.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Wait so long for a process that has the pool, instead of failing after a fifth of a second
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,
}

impl Wait {
    /// For the options' `busy_wait`.
    pub(crate) fn duration(self) -> Duration {
        self.wait.unwrap_or_default()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "it is no time to wait".to_owned())
}

/// Options of commands that write.
#[derive(Args, Clone, Debug)]
pub(crate) struct OpenArgs {
    /// When a write is acknowledged: sync, or interval=MS (a crash keeps a prefix, about MS old)
    #[arg(long, default_value = "sync", value_name = "sync|interval=MS")]
    pub(crate) durability: Durability,
    /// What a new pool lies on: auto, file, dax, emulated, emulated=W/R (added nanoseconds), or
    /// emulated=W/R/L (flushes queue, L nanoseconds a line, and fences wait)
    #[arg(long, default_value = "auto")]
    pub(crate) medium: Medium,
    /// The devdax device that holds the data of a new pool on dax, like /dev/dax0.0; the pool's directory may lie
    /// anywhere
    #[arg(long, value_name = "DEVICE")]
    pub(crate) devdax: Option<PathBuf>,
    /// The most bytes the pool can grow to, like 512M or 64G (address space, not disk space); a pool that is
    /// there gets a greater one in place, and a smaller one is refused
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) capacity: Option<u64>,
    /// What the pool's redo log may grow to, like 64M; kept by the pool, and never less than the log has
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) log: Option<u64>,
    /// Persistence domain to assume on persistent memory: auto, adr or eadr
    #[arg(long, default_value = "auto")]
    pub(crate) domain: Domain,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

impl OpenArgs {
    /// Opens the pool for writing and creates it when it is not there.
    pub(crate) fn create(&self, path: &Path) -> mangrove::Result<Map> {
        self.options().open(path)
    }

    /// Opens an existing pool for writing.
    pub(crate) fn open(&self, path: &Path) -> mangrove::Result<Map> {
        self.options().create(Create::Never).open(path)
    }

    pub(crate) fn options(&self) -> MapOptions {
        let mut options = Map::options().durability(self.durability).medium(self.medium).domain(self.domain);
        options = options.busy_wait(self.wait.duration());
        if let Some(device) = &self.devdax {
            options = options.devdax(device);
        }
        if let Some(bytes) = self.capacity {
            options = options.capacity(bytes);
        }
        if let Some(bytes) = self.log {
            options = options.log_bytes(bytes);
        }
        options
    }
}

/// Opens the pool without writing a byte to it, also while another process writes to it.
pub(crate) fn read_only(path: &Path, wait: Wait) -> mangrove::Result<Map> {
    Map::options().read_only(true).busy_wait(wait.duration()).open(path)
}
