//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../support/mod.rs"]
mod support;

mod between_threads;
mod blanked;
mod compaction;
mod counted;
mod durability;
mod full;
mod growing;
mod hostile;
mod model;
mod one_slot;
mod space;
mod threads;
mod values;
mod visits;
