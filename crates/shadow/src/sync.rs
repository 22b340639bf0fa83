//! The one source of locks, atomics and event counts for code that is model-checked: `tests/handover_model.rs`
//! compiles that code with a `sync` module of its own, which takes them from the model checker.

pub(crate) use mangrove_sys::EventCount;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
