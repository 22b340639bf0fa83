//! The options of `cargo xtask powercut`.

use std::path::PathBuf;

use super::hypervisor::Accelerator;
use super::program::Program;
use super::raw::{Numbers, Role};

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Power cuts on each medium
    #[arg(long, default_value_t = 50)]
    pub(super) rounds: u64,
    /// What the guest's pool lies on
    #[arg(long, value_enum, default_value_t = MediumArg::Both)]
    pub(super) medium: MediumArg,
    /// Chooses instants, keys, and what a cut leaves of the disk's cache
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Where disk images are kept after a failure [default: target/powercut/kept]
    #[arg(long, value_name = "DIR")]
    pub(super) keep: Option<PathBuf>,
    /// Boot a kept disk image and judge it again
    #[arg(long, value_name = "DIR")]
    pub(super) examine: Option<PathBuf>,
    /// Plant bugs (acknowledge early, a disk that lies about flushes) and demand that each is found out
    #[arg(long)]
    pub(super) planted: bool,
    /// Writer threads in the guest
    #[arg(long, default_value_t = 4)]
    pub(super) threads: u8,
    /// Different keys; few keys make more updates and deletes
    #[arg(long, default_value_t = 1000)]
    pub(super) keys: u64,
    /// The program under test
    #[arg(long, alias = "app", value_enum, default_value_t = Program::Map)]
    pub(super) program: Program,
    /// The program under test; built when left out, but for redis, which `make redis` builds
    #[arg(long)]
    pub(super) binary: Option<PathBuf>,
    /// How the guest is executed [default: kvm if it works, else tcg]
    #[arg(long, value_enum)]
    pub(super) accelerator: Option<Accelerator>,
    /// Used inside the guest
    #[arg(long, value_enum, hide = true)]
    pub(super) inside: Option<Role>,
    #[command(flatten)]
    pub(super) numbers: Numbers,
}

/// Which media are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MediumArg {
    /// ext4 on a virtio disk with a volatile write cache
    Ext4,
    /// ext4 with DAX and MAP_SYNC on a virtual NVDIMM
    Dax,
    /// A devdax device on a virtual NVDIMM; for the map and transactions
    Devdax,
    /// ext4 and dax, at the same time
    Both,
}
