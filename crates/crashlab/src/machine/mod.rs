//! The simulated machine: disk, cache lines, and what a crash may keep of them.

pub(super) mod cursor;
pub(super) mod disk;
pub(super) mod file_world;
pub(super) mod filter;
pub(super) mod interrupt;
pub(super) mod lines;
pub(super) mod medium;
pub(super) mod site;
pub(super) mod store_world;
pub(super) mod trace;
pub(super) mod waits;
pub(super) mod world;
