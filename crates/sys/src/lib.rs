//! Floor 0: operating-system and CPU primitives that more than one crate needs.
//!
//! (The recompiler, the arena's interposition and the LevelDB door name the operating system and the CPU, too.)

mod barrier;
mod bits;
mod cacheline;
mod checkpoint;
mod crc;
mod domain;
mod event_count;
mod fan_out;
pub mod file;
mod key_bucket;
mod mapping;
mod mirror;
mod modules;
mod page_map;
mod parked;
mod process;
mod rtm;
mod second_stack;
mod spin;
mod stack_walk;
mod thread;
mod topology;
mod tsc;

pub use barrier::{AsymmetricBarrier, barrier_after_rmw};
pub use bits::count_ones;
pub use cacheline::{
    CACHE_LINE_BYTES, FlushInstruction, fence, flush_range, prefetch_lines, prefetch_read, prefetch_write,
    write_around,
};
pub use checkpoint::{AtCheckpoint, Checkpoint, checkpoint};
pub use crc::{Crc32c, Stored, crc32c_pairs, crc32c_short};
pub use domain::{caches_are_persistent, dax_mounts};
pub use event_count::EventCount;
pub use fan_out::fan_out;
pub use key_bucket::{KEY_BUCKET_COUNT, key_bucket};
pub use mapping::{MapKind, Reservation, advise_huge_pages};
pub use mirror::Mirror;
pub use modules::{CopiedVariable, Module, ModulesWatch, loaded_modules};
pub use page_map::{PageMap, own_memory_bytes};
pub use parked::{LeftMemory, Parked, own_mappings, park};
pub use process::ProcessMark;
pub use rtm::{AbortStatus, RTM_TRIAL_COUNT, Rtm, rtm, xabort, xbegin, xend, xtest};
pub use second_stack::{SECOND_STACK_BYTES, SecondStack};
pub use spin::{spin_ticks, ticks, ticks_per_microsecond};
pub use stack_walk::is_in_frame_of;
pub use thread::{
    addresses_are_random, forget_variable, run_again, set_cancelable, set_random_addresses, stack_limit,
    thread_count, thread_mark, without_signals,
};
pub use topology::{NumaNode, Topology, cpu_list, parse_cpu_list};
pub use tsc::{Tsc, rdtscp, tsc};
