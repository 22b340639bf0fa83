//! `cargo xtask powercut`: cut the power of a virtual machine while it loads; boot again and verify.
//! `docs/powercut.md` tells what is simulated and what is not.

mod args;
mod cpio;
mod disk;
mod hypervisor;
mod initramfs;
mod instants;
mod kernel;
mod media;
mod nbd;
mod packages;
mod program;
mod raw;
mod redis;
mod rig;
mod rounds;
mod run;
mod tape;

pub(crate) use args::Args;
pub(crate) use run::run;
