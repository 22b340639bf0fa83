//! The recompiler: translates the code that a call reaches, and runs the translation.

#[macro_use]
mod run;
mod code_cache;
mod kernel;
mod recompiler;
mod state;
mod translate;

pub use recompiler::Recompiler;
