//! The one door to locks, atomics and gates of code that is model-checked: `tests/handover_model.rs` compiles
//! that code against a `sync` module of its own, made of the model checker's parts.

pub(crate) use mangrove_sys::Gate;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
