//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../support/bank.rs"]
mod bank;
#[path = "../support/ways.rs"]
mod ways;

mod backup;
mod byte_ranges;
mod damaged;
mod durable;
mod htm_sgl;
mod memory_limit;
mod read_only;
mod space;
mod spht;
mod tickets;
