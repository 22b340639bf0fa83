//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

mod background_recovery;
mod capacity;
mod damaged;
mod examples;
mod expect;
mod load;
mod opening;
mod salvage;
mod space;
