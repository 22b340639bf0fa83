//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod bulk_load;
mod changes;
mod commands;
mod demo;
mod export;
mod heaps;
mod installation;
mod leveldb;
mod scripts;
mod signals;
mod unclosed;
