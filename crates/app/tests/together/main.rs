//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod bank;
mod batches;
mod event_loop;
mod kill;
mod lua;
mod mappings;
mod programs;
mod sqlite;
