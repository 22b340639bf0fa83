//! Floor 0: operating-system and CPU primitives that more than one crate needs.
//!
//! (The recompiler, the allocator's names in `app` and the LevelDB door call the operating system and the CPU too.)

mod cpu;
mod digits;
mod domain;
mod event_count;
mod fan_out;
pub mod file;
mod key_bucket;
mod lock_holder;
mod memory;
mod process;
mod stack;

pub use cpu::barrier::{AsymmetricBarrier, barrier_after_rmw};
pub use cpu::bits::{count_ones, equal_bytes};
pub use cpu::cacheline::{
    CACHE_LINE_BYTES, FlushInstruction, fence, flush_range, prefetch_lines, prefetch_read, prefetch_write,
    write_around,
};
pub use cpu::crc::{Crc32c, Stored, crc32c_pairs, crc32c_short};
pub use cpu::rtm::{AbortStatus, RTM_TRIAL_COUNT, Rtm, rtm, xabort, xbegin, xend, xtest};
pub use cpu::spin::{spin_ticks, ticks, ticks_per_microsecond};
pub use cpu::topology::{NumaNode, Topology, cpu_list, parse_cpu_list};
pub use cpu::tsc::{Tsc, rdtscp, tsc};
pub use digits::sort_by_upper_bits;
pub use domain::{caches_are_persistent, dax_mounts, is_on_dax_mount};
pub use event_count::EventCount;
pub use fan_out::fan_out;
pub use key_bucket::{KEY_BUCKET_COUNT, key_bucket};
pub use lock_holder::{lock_holder, process_name};
pub use memory::allowed::{has_address_space, memory_allowed, memory_available};
pub use memory::freed::give_back_freed_memory;
pub use memory::mapping::{MapKind, Reservation, advise_huge_pages};
pub use memory::mirror::Mirror;
pub use memory::node::{current_cpu, node_of_device, prefer_node, run_on};
pub use memory::page_map::{PageMap, own_memory_bytes};
pub use memory::parked::{LeftMemory, Mapped, Parked, mapped, park};
pub use memory::zero_pages::copy_nonzero_pages;
pub use process::above_standard::{make_above_standard, open_above_standard};
pub use process::kept_from_children::KeptFromChildren;
pub use process::left_in_child::LeftInChild;
pub use process::modules::{CopiedVariable, Module, ModulesWatch, loaded_modules, touch_module};
pub use process::process::ProcessMark;
pub use process::thread::{
    addresses_are_random, forget_variable, run_again, set_cancelable, set_random_addresses, stack_limit,
    thread_count, thread_mark, thread_stack, without_signals, without_size_signal,
};
pub use stack::checkpoint::{AtCheckpoint, Checkpoint, checkpoint};
pub use stack::second_stack::{SECOND_STACK_BYTES, SecondStack};
pub use stack::stack_walk::{CallState, call_state};
