//! The one door to atomics and gates of code that is model-checked: `tests/gating_model.rs` compiles that code against
//! a `sync` module of its own.

pub(crate) use mangrove_sys::{EventCount, barrier_after_rmw};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
