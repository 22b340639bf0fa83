//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../support/mod.rs"]
mod support;

mod copy;
mod deferred;
mod file;
mod lease;
mod one_pass;
mod replay;
mod replayers;
mod rings;
mod stamps;
mod start;
mod write_back;
