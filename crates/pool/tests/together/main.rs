//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

#[path = "../support/hooked.rs"]
mod hooked;

mod addresses;
mod appeared;
mod bad_sectors;
mod bulk_load;
mod capacity;
mod devdax;
mod faults;
mod file_pool;
mod foreign_log;
mod golden_log;
mod looks;
mod mapped_pool;
mod recent;
mod space;
mod torn_groups;
