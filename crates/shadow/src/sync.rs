//! The one source of locks, atomics and event counts for code that is model-checked: `tests/handover_model.rs`,
//! `tests/lease_model.rs` and `tests/rounds_model.rs` compile that code with a `sync` module of their own, which takes
//! them from the model checker.

pub(crate) use mangrove_sys::EventCount;
pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
