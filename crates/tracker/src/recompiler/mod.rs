//! The recompiler: translates what a call reaches, and runs that.

#[macro_use]
mod context;
mod blocks;
mod branches;
mod cache;
mod decode;
mod dispatch;
mod emit;
mod gate;
mod index;
mod liveness;
mod maps;
mod rare;
mod raw;
mod recompile;
mod record;
mod signals;
mod state;
mod syscall_table;
mod syscalls;
mod thread;
mod translate;
mod unwind;

pub use recompile::Recompiler;
