//! Floor 0: the only place of Mangrove that names an operating system, a CPU or an instruction.
//!
//! Everything above is portable Rust; another machine is a matter of this crate alone.

mod barrier;
mod bits;
mod cacheline;
mod crc;
mod domain;
pub mod file;
#[path = "event_count.rs"]
mod gate;
mod mapping;
mod mirror;
mod modules;
mod parked;
mod process;
mod spin;
mod thread;

pub use barrier::AsymmetricBarrier;
pub use bits::count_ones;
pub use cacheline::{
    CACHE_LINE_BYTES, FlushInstruction, fence, flush_range, prefetch_lines, prefetch_read, prefetch_write,
    write_around,
};
pub use crc::crc32c_short;
pub use domain::{caches_are_persistent, dax_mounts};
pub use gate::Gate;
pub use mapping::{MapKind, Reservation, advise_huge_pages};
pub use mirror::Mirror;
pub use modules::{CopiedVariable, Module, ModulesWatch, loaded_modules};
pub use parked::{LeftMemory, Parked, own_mappings, park};
pub use process::ProcessMark;
pub use spin::{spin_ticks, ticks, ticks_per_microsecond};
pub use thread::{
    addresses_are_random, forget_variable, run_again, set_random_addresses, stack_limit, thread_count,
    thread_mark, without_signals,
};
