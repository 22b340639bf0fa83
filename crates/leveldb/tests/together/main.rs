//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../common/mod.rs"]
mod common;

mod copied;
mod environment;
mod example;
mod kill9;
mod limits;
mod order;
mod programs;
mod unsynced;
