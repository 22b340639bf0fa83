//! The recompiler: translates what a call reaches, and runs that.

#[macro_use]
#[path = "run/context.rs"]
mod context;
#[path = "code_cache/blocks.rs"]
mod blocks;
#[path = "translate/branches.rs"]
mod branches;
#[path = "code_cache/cache.rs"]
mod cache;
#[path = "translate/decode.rs"]
mod decode;
#[path = "run/dispatch.rs"]
mod dispatch;
#[path = "translate/emit.rs"]
mod emit;
#[path = "run/trampolines.rs"]
mod gate;
#[path = "run/store_filter.rs"]
mod index;
#[path = "translate/liveness.rs"]
mod liveness;
#[path = "code_cache/proc_maps.rs"]
mod maps;
#[path = "translate/masked_stores.rs"]
mod rare;
#[path = "run/raw_syscall.rs"]
mod raw;
#[path = "recompiler.rs"]
mod recompile;
#[path = "translate/record.rs"]
mod record;
#[path = "run/signals.rs"]
mod signals;
mod state;
#[path = "kernel/syscall_table.rs"]
mod syscall_table;
#[path = "kernel/syscalls.rs"]
mod syscalls;
#[path = "run/stack_bounds.rs"]
mod thread;
#[path = "translate/translate.rs"]
mod translate;
#[path = "run/unwind.rs"]
mod unwind;

pub use recompile::Recompiler;
